"""A server that answers as EC2 does: moto's, as a program. `ec2_server.py IMAGES` prints its URL, and ends with stdin.

Added to moto: answers have exactly EC2's namespace, which libcloud reads; requests are recorded; and an
action can be made to fail, or to be carried out without an answer.

    GET /control/requests                                    the parameters of all requests, as JSON
    GET /control/fault?action=A&code=C&message=M&status=400  an A is refused, after `skip` others; without a code it is
                                                             carried out, and its connection closed
    GET /control/fault?action=A&hang=yes                     an A gets no answer until everything is forgotten
    GET /control/hung                                        whether one does
    GET /control/hold?state=pending                          what state machines that run are said to have
    GET /control/end?fleet=F                                 moves the end in the tags of a fleet to the past
    GET /control/left                                        machines that are not gone, and names of groups and keys
    GET /control/reset                                       forgets everything
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qsl

os.environ["MOTO_AMIS_PATH"] = sys.argv[1]

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

_NAMESPACE = b'xmlns="http://ec2.amazonaws.com/doc/2016-11-15"'
_PAST = "2020-01-01T00:00:00Z"

Start = Callable[[str, list[tuple[str, str]]], Any]


class Ec2:
    """moto's application, with what is added to it."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._requests: list[dict[str, str]] = []
        self._faults: dict[str, dict[str, str]] = {}
        self._held = "running"
        self._hung = 0
        self._go_on = threading.Event()

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        words = dict(parse_qsl(environ["QUERY_STRING"]))
        path = environ["PATH_INFO"]
        if path.startswith("/control/"):
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(self._control(path.removeprefix("/control/"), words)).encode()]
        if not path.startswith("/moto-api"):
            self._requests.append(words)
        fault = self._next_fault(words.get("Action", ""))
        if fault is not None and "hang" in fault:
            self._hung += 1
            self._go_on.wait()
        if fault is not None and "code" in fault:
            start(f"{fault.get('status', '400')} Refused", [("Content-Type", "text/xml")])
            error = f"<Code>{fault['code']}</Code><Message>{fault['message']}</Message>"
            return [f"<Response><Errors><Error>{error}</Error></Errors></Response>".encode()]
        head: list[Any] = []
        body = b"".join(self._moto(environ, lambda *given: head.extend(given)))
        if fault is not None:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionError("the answer is lost")
        # Errors of EC2 have no namespace.
        body = body.replace(b"<Response " + _NAMESPACE, b"<Response")
        body = body.replace(_NAMESPACE, _NAMESPACE[:-1] + b'/"')
        body = body.replace(b"<name>running</name>", f"<name>{self._held}</name>".encode())
        start(head[0], [(name, value) for name, value in head[1] if name.lower() != "content-length"])
        return [body]

    def _next_fault(self, action: str) -> dict[str, str] | None:
        fault = self._faults.get(action)
        if fault is None:
            return None
        skip = int(fault.get("skip", "0"))
        if skip:
            fault["skip"] = str(skip - 1)
            return None
        return self._faults.pop(action)

    def _control(self, name: str, words: dict[str, str]) -> Any:
        backend = ec2_backends[DEFAULT_ACCOUNT_ID]["us-east-1"]
        if name == "fault":
            self._faults[words["action"]] = words
        elif name == "hung":
            return self._hung
        elif name == "hold":
            self._held = words["state"]
        elif name == "end":
            for instance in backend.all_instances():
                if ("leadline-fleet", words["fleet"]) in [(tag["key"], tag["value"]) for tag in instance.get_tags()]:
                    instance.add_tags({"leadline-end": _PAST})
            for group in backend.describe_security_groups():
                if group.name == f"leadline-fleet-{words['fleet']}":
                    group.description = f"leadline-end={_PAST}"
        elif name == "left":
            machines = [one.id for one in backend.all_instances() if one._state.name != "terminated"]
            groups = [one.name for one in backend.describe_security_groups() if one.name != "default"]
            return {"machines": machines, "groups": groups, "keys": list(backend.key_pairs)}
        elif name == "reset":
            ec2_backends.reset()
            self._requests, self._faults, self._held, self._hung = [], {}, "running", 0
            self._go_on.set()
            self._go_on = threading.Event()
        return self._requests


class _Quiet(WSGIRequestHandler):  # type: ignore[misc]
    def log(self, *_: Any) -> None:
        """Nothing of each request."""


if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, Ec2(), threaded=True, request_handler=_Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()
