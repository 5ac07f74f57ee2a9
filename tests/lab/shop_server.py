"""A small shop over HTTP/1.1 for the tests of scenarios: log in for a token, look at items, order. It counts answers.

Run as a program it listens at a port of loopback and, at its end, prints its counts as JSON.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import parse_qs

USERS = {"ada": "analytical", "bob": "engine", "cleo": "difference", "dan": "number"}


class Shop(ThreadingHTTPServer):
    """The shop, with its counts by method, path and status."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.counts: Counter[str] = Counter()
        self.tokens: set[str] = set()
        self.lock = Lock()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    server: Shop

    def do_GET(self) -> None:
        known = self.headers.get("Authorization", "").removeprefix("Bearer ") in self.server.tokens
        if self.path.startswith("/item/"):
            self._answer("item", 200 if known else 403, {"item": self.path.removeprefix("/item/")})
        else:
            self._answer("other", 404, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        if self.path == "/login":
            fields = parse_qs(body)
            is_right = USERS.get(fields.get("user", [""])[0]) == fields.get("password", [""])[0]
            token = secrets.token_hex(16)
            if is_right:
                self.server.tokens.add(token)
            self._answer("login", 200 if is_right else 401, {"token": token} if is_right else {})
        elif self.path == "/cart":
            known = self.headers.get("Authorization", "").removeprefix("Bearer ") in self.server.tokens
            self._answer("buy", 200 if known else 403, {"order": json.loads(body)["item"]})
        else:
            self._answer("other", 404, {})

    def _answer(self, name: str, status: int, document: dict[str, object]) -> None:
        with self.server.lock:
            self.server.counts[f"{name} {status}"] += 1
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


def main() -> None:
    """Serve at the port of the command line until stdin ends."""
    shop = Shop(int(sys.argv[1]))
    Thread(target=shop.serve_forever, daemon=True).start()
    sys.stdin.read()
    print(json.dumps(shop.counts))


if __name__ == "__main__":
    main()
