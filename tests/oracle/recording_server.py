"""An HTTP server that answers by its paths and records what each user asked for, in order: method, target, headers that
matter, body. A user is what the header `X-User` says.
"""

from __future__ import annotations

import email
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from waiting import WITHIN_S

PAGE = (
    '<html><a href="/one" id="a1">first</a><a href="/two" id="a2">second</a><a href="/three" id="a3">third</a>'
    '<input type="hidden" name="csrf" value="c-77"></html>'
)
LIST = {
    "items": [{"id": 11, "name": "ant"}, {"id": 12, "name": "bee"}, {"id": 13, "name": "cat"}],
    "total": 3,
    "token": "t-1",
    "empty": "",
    "nothing": None,
    "deep": {"flag": True, "price": 2.5},
}
_HEADERS = ("content-type", "cookie", "authorization", "referer", "if-none-match", "if-modified-since")


class RecordingServer(ThreadingHTTPServer):
    """The server and its records."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.records: dict[str, list[list[Any]]] = defaultdict(list)
        self.instants_s: dict[str, list[float]] = defaultdict(list)
        self.lock = threading.Lock()
        self.recorded = threading.Condition(self.lock)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def taken(self) -> dict[str, list[list[Any]]]:
        """The records since the last call."""
        with self.lock:
            found = {user: self.records[user] for user in sorted(self.records)}
            self.records = defaultdict(list)
            self.instants_s = defaultdict(list)
        return found

    def until_asked(self, path: str) -> None:
        """Returns once a user has asked for this."""

        def is_asked() -> bool:
            return any(record[1] == path for records in self.records.values() for record in records)

        with self.recorded:
            assert self.recorded.wait_for(is_asked, WITHIN_S), f"no request for {path} came"


@contextmanager
def recording_server() -> Iterator[RecordingServer]:
    """A server on loopback."""
    with RecordingServer() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RecordingServer
    wbufsize = 65536

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = self._chunks()
        user = self.headers.get("X-User", "")
        with self.server.lock:
            self.server.instants_s[user].append(time.monotonic())
            self.server.records[user].append([self.command, self.path, self._matter(), self._body(body)])
            count = len(self.server.records[user])
            self.server.recorded.notify_all()
        path = self.path.partition("?")[0]
        if path == "/held":
            # No answer comes, however long the client takes to hang up.
            self.connection.settimeout(WITHIN_S)
            assert self.rfile.read(1) == b"", "the client asks for more"
            self.close_connection = True
            return
        if path == "/slow/x":
            self.server.until_asked("/status/500")
        known = _ANSWERS.get(path.strip("/").partition("/")[0], _other)
        status, headers, text = known(path, user, count)
        if path.startswith("/cache/") and ("If-None-Match" in self.headers or "If-Modified-Since" in self.headers):
            status, text = 304, ""
        if status == 0:
            self.close_connection = True
            return
        content = text.encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _chunks(self) -> bytes:
        found = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _matter(self) -> dict[str, str]:
        """Headers that the scenario decides; a boundary is not one of them."""
        found = {}
        for name, value in self.headers.items():
            key = name.lower()
            if key == "connection" and value.lower() == "close":
                found[key] = "close"
            if key in _HEADERS or (key.startswith("x-") and key != "x-user"):
                found[key] = f"{found[key]}, {value}" if key in found else value
        if found.get("content-type", "").startswith("multipart/"):
            # A boundary is chosen for each body.
            found["content-type"] = found["content-type"].partition(";")[0]
        if "cookie" in found:
            found["cookie"] = "; ".join(sorted(found["cookie"].split("; ")))
        return dict(sorted(found.items()))

    def _body(self, body: bytes) -> Any:
        kind = self.headers.get("Content-Type", "")
        if not kind.startswith("multipart/"):
            return body.decode("utf-8", "backslashreplace")
        message = email.message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
        return [
            {
                "name": part.get_param("name", header="content-disposition"),
                "filename": part.get_filename(),
                "type": part.get("Content-Type"),
                "content": str(part.get_payload()),
            }
            for part in message.walk()
            if not part.is_multipart()
        ]

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


_Answer = tuple[int, list[tuple[str, str]], str]
_JSON = ("Content-Type", "application/json")
_TEXT = ("Content-Type", "text/plain")


def _other(path: str, user: str, count: int) -> _Answer:
    return 200, [_TEXT], "ok"


def _login(path: str, user: str, count: int) -> _Answer:
    return 200, [_JSON, ("Set-Cookie", f"sid=s-{user}; Path=/; HttpOnly")], json.dumps({"token": f"tok-{user}"})


def _cookies(path: str, user: str, count: int) -> _Answer:
    given = [
        "root=1; Path=/",
        "deep=2; Path=/deep",
        "near=3",
        "gone=4; Expires=Thu, 01 Jan 1970 00:00:10 GMT; Path=/",
        "other=5; Domain=other.test",
        "safe=6; Path=/; Secure",
        "long=7; Path=/; Expires=Fri, 01 Jan 2100 00:00:00 GMT",
    ]
    return 200, [_TEXT, *(("Set-Cookie", one) for one in given)], "cookies"


def _redirect(path: str, user: str, count: int) -> _Answer:
    rest = path.rpartition("/")[2]
    if rest == "0":
        return 200, [_TEXT], "landed"
    following = {"loop": "/redirect/loop", "query": "/landed?x=1&y=a%20b", "relative": "sub/../0"}
    target = following.get(rest) or (f"/redirect/{int(rest) - 1}" if rest.isdecimal() else "/landed")
    return 302, [("Location", target), ("Set-Cookie", f"hop={rest}; Path=/")], "moved"


def _status(path: str, user: str, count: int) -> _Answer:
    code = int(path.rpartition("/")[2])
    return (
        code,
        [_TEXT, *([("Location", "/landed")] if 300 <= code < 400 else [])],
        "" if code in (204, 304) else str(code),
    )


def _slow(path: str, user: str, count: int) -> _Answer:
    time.sleep(0.3)
    return _other(path, user, count)


def _cache(path: str, user: str, count: int) -> _Answer:
    """What an answer says of its freshness, by its path."""
    kind = path.split("/")[2]
    return 200, [_TEXT, *_FRESHNESS.get(kind, [])], kind


def _resources(path: str, user: str, count: int) -> _Answer:
    """A page with resources of each kind, and the resources: one is missing, one redirects."""
    kind = path.split("/")[2]
    if kind == "page":
        return 200, [("Content-Type", "text/html")], RESOURCES
    if kind == "broken":
        return (
            200,
            [("Content-Type", "text/html")],
            '<img src="/res/missing"><img src="/res/moved"><img src="/res/there.png">',
        )
    if kind == "missing":
        return 404, [_TEXT], "none"
    if kind == "moved":
        return 302, [_TEXT, ("Location", "/res/there.png")], ""
    return 200, [("Cache-Control", "max-age=600"), ("Content-Type", "image/png")], kind


RESOURCES = """<html><head><title>resources</title>
<link rel="stylesheet" href="/res/a.css"><script src="/res/b.js"></script>
<link rel="icon" href="/res/icon.ico"></head><body background="/res/back.png"><img src="c.png"><img src='/res/c.png'>
<img src="/res/d.png?x=1&amp;y=2"><input type="image" src="/res/e.png">
<table background="/res/f.png"><tr><td>x</td></tr>
</table><iframe src="/res/frame.html"></iframe><a href="/res/link">no</a><embed src="/res/g.swf">
<!-- <img src="/res/no.png"> -->
<div style="background: url('/res/style.png')">x</div></body></html>"""
_NEVER, _LONG_AGO = "Fri, 01 Jan 2100 00:00:00 GMT", "Mon, 01 Jan 2001 00:00:00 GMT"
_FRESHNESS: dict[str, list[tuple[str, str]]] = {
    "max-age": [("Cache-Control", "max-age=600")],
    "expires": [("Expires", _NEVER)],
    "expired": [("Expires", _LONG_AGO), ("ETag", '"e"')],
    "etag": [("ETag", '"x1"')],
    "modified": [("Last-Modified", _LONG_AGO)],
    "both": [("ETag", '"x2"'), ("Last-Modified", _LONG_AGO), ("Cache-Control", "no-cache")],
    "no-store": [("Cache-Control", "no-store"), ("ETag", '"x3"')],
    "zero": [("Cache-Control", "max-age=0"), ("ETag", '"x4"')],
    "private": [("Cache-Control", "private, max-age=600")],
    "vary": [("Cache-Control", "max-age=600"), ("Vary", "X-Kind")],
    "plain": [],
}
_ANSWERS: dict[str, Callable[[str, str, int], _Answer]] = {
    "login": _login,
    "cookies": _cookies,
    "redirect": _redirect,
    "status": _status,
    "page": lambda path, user, count: (200, [("Content-Type", "text/html"), ("X-Token", "h-9")], PAGE),
    "list": lambda path, user, count: (200, [_JSON], json.dumps(LIST)),
    "count": lambda path, user, count: (200, [_JSON], json.dumps({"n": count})),
    "slow": _slow,
    "cache": _cache,
    "res": _resources,
    "close": lambda path, user, count: (0, [], ""),
}
