"""A server that answers as Keystone, Nova, Glance and Neutron do, for the few requests that fleets need. Its documents
are those that libcloud tests its own driver with, changed where a fleet sees it.

Machines are built when they have been listed twice, and gone when they have been listed once after their removal. A
security group that a machine uses cannot be removed.
"""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REGION = "regionOne"

Answer = tuple[int, Any]


class OpenStackServer:
    """The state of the cloud. `fixtures` is libcloud's folder of them."""

    def __init__(self, fixtures: Path, password: str) -> None:
        self.url = ""
        self.query = ""
        """Of the request that is being answered."""
        self.requests: list[tuple[str, str, Any]] = []
        """Method, path and document of each request."""
        self.faults: dict[tuple[str, str], Answer] = {}
        """What a method and path answer, once, in place of doing it."""
        self.network = "10.1.0."
        """Where machines have their addresses."""
        self.builds = True
        """Whether machines come up; otherwise they fail."""
        self.servers: dict[str, dict[str, Any]] = {}
        self.groups: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, dict[str, Any]] = {}
        self.floating: dict[str, dict[str, Any]] = {}
        self.has_floating = True
        """Whether the cloud has floating addresses at all."""
        self._looks: dict[str, int] = {}
        self._fixtures = fixtures
        self._password = password
        self._count = 0

    def is_empty(self) -> bool:
        return not (self.servers or self.groups or self.keys or self.floating)

    def sent(self, method: str, path: str) -> list[Any]:
        return [document for how, where, document in self.requests if (how, where) == (method, path)]

    def answer(self, method: str, path: str, document: Any) -> Answer:
        self.requests.append((method, path, document))
        fault = self.faults.pop((method, path), None)
        if fault is not None:
            return fault
        for pattern, handle in _ROUTES:
            found = re.fullmatch(pattern, f"{method} {path}")
            if found:
                answer: Answer = getattr(self, handle)(document, *found.groups())
                return answer
        return 404, {"itemNotFound": {"code": 404, "message": f"no {method} {path}"}}

    def load(self, name: str) -> Any:
        return json.loads((self._fixtures / name).read_text(encoding="utf-8"))

    def _authenticate(self, document: Any) -> Answer:
        secrets = json.dumps(document["auth"]["identity"])
        if self._password not in secrets:
            return 401, {"error": {"code": 401, "title": "Unauthorized", "message": "Wrong password."}}
        token = self.load("openstack/_v3__auth.json")
        token["token"]["expires_at"] = "2099-01-01T00:00:00.000000Z"
        token["token"]["catalog"] = [
            {
                "type": kind,
                "id": kind,
                "endpoints": [
                    {"url": f"{self.url}/{kind}", "region": REGION, "interface": interface, "id": f"{kind}-{interface}"}
                    for interface in ("public", "internal")
                ],
            }
            for kind in ("compute", "image", "network")
        ]
        return 201, token

    def _flavors(self, _: Any) -> Answer:
        flavors = self.load("openstack_v1_1/_flavors_detail.json")
        flavors["flavors"][0]["name"] = "m1.small"
        return 200, flavors

    def _images(self, _: Any) -> Answer:
        (first, *_others) = self.load("openstack_v1_1/_images_v2.json")["images"]
        kinds = (
            ("ubuntu-24.04", "public", "2026-11-01"), ("debian-13-generic-amd64", "public", "2026-10-01"),
            ("debian-13-generic-arm64", "public", "2026-11-01"), ("debian-14-mine", "private", "2026-11-02"),
        )  # fmt: skip
        return 200, {
            "images": [
                {**first, "name": name, "id": f"image-{name}", "visibility": seen, "created_at": f"{day}T00:00:00Z"}
                for name, seen, day in kinds
            ]
        }

    def _networks(self, _: Any) -> Answer:
        networks = self.load("openstack_v1_1/_v2_0__networks.json")["networks"]
        inner, outer = networks[0], {**networks[0], "id": "outer", "name": "public", "router:external": True}
        return 200, {"networks": [inner, outer]}

    def _list_servers(self, _: Any) -> Answer:
        for identifier in list(self.servers):
            self._age(identifier)
        return 200, {"servers": list(self.servers.values())}

    def _create_server(self, document: Any) -> Answer:
        wanted = document["server"]
        identifier = self._new("server")
        server = self.load("openstack_v1_1/_servers_26f7fbee_8ce1_4c28_887a_bfe8e4bb10fe.json")["server"]
        server |= {"id": identifier, "name": wanted["name"], "metadata": wanted["metadata"]}
        server |= {"created": "2026-11-29T12:00:00Z", "key_name": wanted["key_name"]}
        server["flavor"] = {**server["flavor"], "id": wanted["flavorRef"]}
        server["security_groups"] = wanted["security_groups"]
        self.servers[identifier] = server
        created = copy.deepcopy(self.load("openstack_v1_1/_servers_create.json"))
        created["server"]["id"] = identifier
        return 202, created

    def _server(self, _: Any, identifier: str) -> Answer:
        if identifier not in self.servers:
            return 404, {"itemNotFound": {"code": 404, "message": "Instance could not be found."}}
        return 200, {"server": self.servers[identifier]}

    def _delete_server(self, _: Any, identifier: str) -> Answer:
        if identifier not in self.servers:
            return 404, {"itemNotFound": {"code": 404, "message": "Instance could not be found."}}
        self.servers[identifier]["OS-EXT-STS:task_state"] = "deleting"
        self._looks[identifier] = 0
        return 204, None

    def _list_keys(self, _: Any) -> Answer:
        return 200, {"keypairs": [{"keypair": key} for key in self.keys.values()]}

    def _create_key(self, document: Any) -> Answer:
        answer = self.load("openstack_v1_1/_os_keypairs_create_import.json")
        answer["keypair"] |= document["keypair"]
        self.keys[document["keypair"]["name"]] = answer["keypair"]
        return 200, answer

    def _delete_key(self, _: Any, name: str) -> Answer:
        return (202, None) if self.keys.pop(name, None) else (404, {"itemNotFound": {"code": 404, "message": "none"}})

    def _list_groups(self, _: Any) -> Answer:
        return 200, {"security_groups": list(self.groups.values())}

    def _create_group(self, document: Any) -> Answer:
        answer = self.load("openstack_v1_1/_v2_0__security_group.json")
        answer["security_group"] |= {**document["security_group"], "id": self._new("group")}
        self.groups[answer["security_group"]["id"]] = answer["security_group"]
        return 201, answer

    def _create_rule(self, document: Any) -> Answer:
        answer = self.load("openstack_v1_1/_v2_0__security_group_rule.json")
        answer["security_group_rule"] |= document["security_group_rule"]
        return 201, answer

    def _delete_group(self, _: Any, identifier: str) -> Answer:
        group = self.groups.get(identifier)
        if group is None:
            return 404, {"NeutronError": {"type": "SecurityGroupNotFound", "message": "none", "detail": ""}}
        if any({"name": group["name"]} in server["security_groups"] for server in self.servers.values()):
            return 409, {"NeutronError": {"type": "SecurityGroupInUse", "message": "in use", "detail": ""}}
        del self.groups[identifier]
        return 204, None

    def _list_ports(self, _: Any) -> Answer:
        return 200, {
            "ports": [{"id": f"port-{name}", "device_id": name} for name in self.servers if name in self.query]
        }

    def _list_floating(self, _: Any) -> Answer:
        if not self.has_floating:
            return 404, {"NeutronError": {"type": "HTTPNotFound", "message": "no such resource", "detail": ""}}
        return 200, {"floatingips": list(self.floating.values())}

    def _create_floating(self, document: Any) -> Answer:
        wanted = document["floatingip"]
        identifier = self._new("floating")
        address = f"192.168.3.{len(self.floating) + 1}"
        self.floating[identifier] = {**wanted, "id": identifier, "floating_ip_address": address}
        server = self.servers[wanted["port_id"].removeprefix("port-")]
        server["addresses"]["net1"].append({"version": 4, "addr": address, "OS-EXT-IPS:type": "floating"})
        return 201, {"floatingip": self.floating[identifier]}

    def _delete_floating(self, _: Any, identifier: str) -> Answer:
        return (204, None) if self.floating.pop(identifier, None) else (404, {"NeutronError": {"message": "none"}})

    def _age(self, identifier: str) -> None:
        server = self.servers[identifier]
        looks = self._looks[identifier] = self._looks.get(identifier, 0) + 1
        if server.get("OS-EXT-STS:task_state") == "deleting":
            if looks >= 2:
                del self.servers[identifier]
        elif looks >= 2 and server["status"] == "BUILD":
            server["status"] = "ACTIVE" if self.builds else "ERROR"
            if self.builds:
                address = f"{self.network}{list(self.servers).index(identifier) + 1}"
                server["addresses"] = {"net1": [{"version": 4, "addr": address, "OS-EXT-IPS:type": "fixed"}]}
            else:
                server["fault"] = {"code": 500, "message": "No valid host was found."}

    def _new(self, what: str) -> str:
        self._count += 1
        return f"{what}-{self._count}"


_ROUTES = (
    ("POST /identity/v3/auth/tokens", "_authenticate"),
    ("GET /compute/flavors/detail", "_flavors"),
    ("GET /image/v2/images", "_images"),
    ("GET /network/v2.0/networks", "_networks"),
    ("GET /compute/servers/detail", "_list_servers"),
    ("POST /compute/servers", "_create_server"),
    ("GET /compute/servers/(.+)", "_server"),
    ("DELETE /compute/servers/(.+)", "_delete_server"),
    ("GET /compute/os-keypairs", "_list_keys"),
    ("POST /compute/os-keypairs", "_create_key"),
    ("DELETE /compute/os-keypairs/(.+)", "_delete_key"),
    ("GET /network/v2.0/security-groups", "_list_groups"),
    ("POST /network/v2.0/security-groups", "_create_group"),
    ("DELETE /network/v2.0/security-groups/(.+)", "_delete_group"),
    ("POST /network/v2.0/security-group-rules", "_create_rule"),
    ("GET /network/v2.0/ports", "_list_ports"),
    ("GET /network/v2.0/floatingips", "_list_floating"),
    ("POST /network/v2.0/floatingips", "_create_floating"),
    ("DELETE /network/v2.0/floatingips/(.+)", "_delete_floating"),
)


@contextmanager
def openstack_server(fixtures: Path, password: str) -> Iterator[OpenStackServer]:
    """The server on a port of this machine, for as long as the block."""
    cloud = OpenStackServer(fixtures, password)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                path, _, cloud.query = self.path.partition("?")
                status, document = cloud.answer(self.command, path, json.loads(body) if body else None)
                content = b"" if document is None else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("X-Subject-Token", "token-of-the-test")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Nothing of each request."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    cloud.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield cloud
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
