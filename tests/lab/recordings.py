"""A visit to a shop as HAR files of Chrome, Firefox and mitmproxy, and a server that plays the other part of it.

The visit names values that differ from session to session as `<name>`: a file has those that were recorded, the server
gives others. The server answers in the order of the file: an answer waits until all that began or ended before its end
in the file has done so here. Which requests overlap is thereby a fact of order, and not of time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import Any
from urllib.parse import quote

RECORDED = {"sid": "r1r2r3r4r5", "csrf": "aa11bb22cc33", "token": "tok0123456789abc", "xsrf": "x/1y+2z=34567"}
LIVE = {"sid": "l9l8l7l6l5", "csrf": "dd44ee55ff66", "token": "tokfedcba9876543", "xsrf": "p/9q-8r=76543"}
FORM = "application/x-www-form-urlencoded"
_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_LONGEST_S = 30
"""After this an answer is given in any case; the test fails then."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request and its answer; times in ms."""

    page: str
    wanted: float
    sent: float
    end: float
    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    status: int = 200
    gives: tuple[tuple[str, str], ...] = ()
    answer: str = "ok"


BEARER = {"Authorization": "Bearer <token>"}
HOME = '<form action="/cart"><input type="hidden" name="csrf" value="<csrf>"></form>'
VISITS = (
    Visit("p1", 0, 0, 40, "GET", "/", answer="<html>welcome</html>"),
    # Four parts of a page over two connections: the third and the fourth wait for the first and the third.
    Visit("p1", 50, 50, 70, "GET", "/app.css"),
    Visit("p1", 50, 51, 110, "GET", "/app.js"),
    Visit("p1", 50, 80, 100, "GET", "/logo.png"),
    Visit("p1", 50, 105, 108, "GET", "/font"),
    Visit("p2", 160, 160, 180, "POST", "/login", {"Content-Type": FORM}, "user=ada&password=a%20b", 302,
          (("Location", "/home?sid=<sid>"), ("Set-Cookie", "XSRF=<xsrf%>; Path=/"), ("Set-Cookie", "seen=1; Path=/"))),
    Visit("p2", 180, 180, 200, "GET", "/home?sid=<sid>", answer=HOME),
    Visit("p2", 220, 220, 250, "GET", "/me?sid=<sid>", answer='{"user": {"token": "<token>"}}'),
    Visit("p2", 221, 221, 260, "GET", "/items"),
    # It needs the token, which the first of two requests gives that overlap: it waits for both.
    Visit("p2", 300, 300, 320, "POST", "/cart", BEARER | {"Content-Type": "application/json", "X-XSRF": "<xsrf>"},
          '{"csrf": "<csrf>", "item": 7}'),
)  # fmt: skip
FOLLOWED = 6
"""The place of the request that follows a redirect."""


def filled(text: str, values: dict[str, str]) -> str:
    """A text with the values of one session."""
    for name, value in values.items():
        text = text.replace(f"<{name}>", value).replace(f"<{name}%>", quote(value, safe=""))
    return text


def named(text: str, values: dict[str, str]) -> str:
    """A text with names in place of one session's values."""
    for name, value in values.items():
        text = text.replace(value, f"<{name}>").replace(quote(value, safe=""), f"<{name}%>")
    return text


def overlapping() -> set[tuple[int, int]]:
    """The pairs of requests of the file that were outstanding at the same time."""
    return {
        (first, second)
        for first, one in enumerate(VISITS)
        for second, other in enumerate(VISITS)
        if first < second and one.sent < other.end and other.sent < one.end
    }


def har(shape: str, port: int) -> bytes:
    """The file as a browser or a proxy writes it."""
    write = {"chrome": _chrome, "firefox": _firefox, "mitmproxy": _mitmproxy}[shape]
    log: dict[str, Any] = {"version": "1.2", "creator": {"name": shape, "version": "1"}}
    if shape != "mitmproxy":
        log["pages"] = [
            {"id": page, "title": title, "startedDateTime": _BEGAN.isoformat(), "pageTimings": {"onLoad": 1.0}}
            for page, title in (("p1", "Welcome"), ("p2", "Shop"))
        ]
    log["entries"] = [write(one, f"http://127.0.0.1:{port}") for one in VISITS]
    return json.dumps({"log": log}).encode()


def _chrome(one: Visit, base: str) -> dict[str, Any]:
    """Times from when it was wanted, `blocked` with the browser's own queue; header names in lower case."""
    found = _entry(one, base, one.wanted)
    found["startedDateTime"] = _at(one.wanted).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    found |= {"_initiator": {"type": "parser"}, "_priority": "High", "_resourceType": "document", "pageref": one.page}
    queued = one.sent - one.wanted
    found["timings"] = {"blocked": queued, "_blocked_queueing": queued, "dns": -1, "ssl": -1, "connect": -1,
                        "send": 0, "wait": one.end - one.sent, "receive": 0}  # fmt: skip
    for part in ("request", "response"):
        headers = [{**header, "name": header["name"].lower()} for header in found[part]["headers"]]
        found[part]["headers"] = headers
    found["request"]["headers"].append({"name": ":authority", "value": "127.0.0.1"})
    # One field has all cookies, a line each.
    cookies = [header for header in found["response"]["headers"] if header["name"] == "set-cookie"]
    if cookies:
        kept = [header for header in found["response"]["headers"] if header["name"] != "set-cookie"]
        joined = {"name": "set-cookie", "value": "\n".join(header["value"] for header in cookies)}
        found["response"]["headers"] = [*kept, joined]
    return found


def _firefox(one: Visit, base: str) -> dict[str, Any]:
    """Local time with its offset; forms as parameters beside the text; cookies and caches in the headers."""
    found = _entry(one, base, one.sent)
    local = _at(one.sent).astimezone(timezone(timedelta(hours=2)))
    found["startedDateTime"] = local.isoformat(timespec="milliseconds")
    found |= {"pageref": one.page, "_securityState": "insecure", "serverIPAddress": "127.0.0.1", "connection": "1"}
    found["timings"] = {"blocked": 0, "dns": 0, "connect": 0, "ssl": 0, "send": 0, "wait": one.end - one.sent,
                        "receive": 0}  # fmt: skip
    stale = [("Cookie", "seen=0; XSRF=old"), ("If-None-Match", '"x"'), ("Connection", "keep-alive")]
    found["request"]["headers"] += [{"name": name, "value": value} for name, value in stale]
    if one.headers.get("Content-Type") == FORM:
        pairs = [part.split("=") for part in filled(one.body, RECORDED).split("&")]
        found["request"]["postData"]["params"] = [{"name": name, "value": value} for name, value in pairs]
    return found


def _mitmproxy(one: Visit, base: str) -> dict[str, Any]:
    """No pages; microseconds; -1 for what is not known; an empty list of parameters beside the text."""
    found = _entry(one, base, one.sent)
    found["startedDateTime"] = _at(one.sent).isoformat(timespec="microseconds")
    found["timings"] = {"connect": -1.0, "ssl": -1.0, "send": 0.0, "receive": 0.0, "wait": one.end - one.sent}
    found["response"]["content"] |= {"compression": 0}
    if one.body:
        found["request"]["postData"]["params"] = []
    return found


def _entry(one: Visit, base: str, start: float) -> dict[str, Any]:
    """What all of them write."""
    request: dict[str, Any] = {
        "method": one.method,
        "url": base + filled(one.path, RECORDED),
        "httpVersion": "HTTP/1.1",
        "headers": [{"name": "Host", "value": "127.0.0.1"}]
        + [{"name": name, "value": filled(value, RECORDED)} for name, value in one.headers.items()],
        "cookies": [],
        "queryString": [],
        "bodySize": len(one.body),
    }
    if one.body:
        text = filled(one.body, RECORDED)
        request["postData"] = {"mimeType": one.headers["Content-Type"], "text": text}
    gives = [{"name": name, "value": filled(value, RECORDED)} for name, value in one.gives]
    target = next((header["value"] for header in gives if header["name"] == "Location"), "")
    content = {"size": len(one.answer), "mimeType": "text/html", "text": filled(one.answer, RECORDED)}
    response = {"status": one.status, "headers": gives, "content": content, "redirectURL": target, "cookies": []}
    return {"time": one.end - start, "request": request, "response": response, "cache": {}}


def _at(ms: float) -> datetime:
    return _BEGAN + timedelta(milliseconds=ms)


class Replayer(ThreadingHTTPServer):
    """The server, with what it was asked for and which requests overlapped."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.changed = Condition()
        self.asked: list[tuple[int, str, dict[str, str], str]] = []
        """By each request its place in the visit (-1: none), its target, the headers that the visit has, its body."""
        self.arrived: set[int] = set()
        self.ended: set[int] = set()
        self.overlaps: set[tuple[int, int]] = set()
        self.late: list[int] = []
        """Requests whose answer waited too long for others."""

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def await_turn(self, place: int) -> None:
        """Return when all that was before this request's end in the file has happened."""
        with self.changed:
            self.overlaps |= {tuple(sorted((one, place))) for one in self.arrived - self.ended}  # type: ignore[misc]
            self.arrived.add(place)
            self.changed.notify_all()
            end = VISITS[place].end
            begun = {index for index, one in enumerate(VISITS) if one.sent < end}
            over = {index for index, one in enumerate(VISITS) if one.end < end}
            if not self.changed.wait_for(lambda: self.arrived >= begun and self.ended >= over, _LONGEST_S):
                self.late.append(place)
            self.ended.add(place)
            self.changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Replayer

    def do_GET(self) -> None:
        self._answer("")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode())

    def _answer(self, body: str) -> None:
        target = named(self.path, LIVE)
        place = next((at for at, one in enumerate(VISITS) if (one.method, one.path) == (self.command, target)), -1)
        known = VISITS[place].headers if place >= 0 else {}
        headers = {name: named(self.headers.get(name, ""), LIVE) for name in known}
        self.server.asked.append((place, target, headers, named(body, LIVE)))
        if place < 0:
            self.send_error(404)
            return
        self.server.await_turn(place)
        one = VISITS[place]
        content = filled(one.answer, LIVE).encode()
        self.send_response(one.status)
        for name, value in one.gives:
            self.send_header(name, filled(value, LIVE))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


@contextmanager
def replayer() -> Iterator[Replayer]:
    """A server for one visit."""
    with Replayer() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
