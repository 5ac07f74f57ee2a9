"""An HTTP server for tests that behaves as each request asks, and writes down what it did:
`counting_server.py FILE`.

Prints its port; at SIGTERM it reads what was sent to it, until every client has closed its connection, writes its
account to FILE and ends. A path names the behaviour: `/ok`, `/ok/50` after 50 ms, `/first/50` for the first 50 requests
alone, `/reset`, `/hang` and others. With `--stall` it stops for a second, two seconds after its first request and every
five seconds from then on; with `--keep` every path is answered, and requests are kept. Only whole ones count.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import signal
import socket
import struct
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Key: open\r\n\r\nright"
# What a path is answered with before the connection is left as it is, or closed where a length is wrong.
SAYS = {
    "ok": OK,
    "failed": b"HTTP/1.1 503 Busy\r\nContent-Length: 5\r\n\r\nwrong",
    "old": b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    "old_length": b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nright",
    "old_kept": b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nright",
    "leaves": OK,
    "early": b"",
    "truncated": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nthat is not it",
    "truncated_head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "truncated_chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nright\r\nff\r\nthere is more",
    "reset": b"",
    "reset_in_head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "reset_in_body": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nthat is not it",
    "reset_after": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nright",
    "no_http": b"SSH-2.0-server\r\n\r\n",
    "version": b"HTTP/3.7 200 OK\r\nContent-Length: 0\r\n\r\n",
    "long_head": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000 + b"\r\nContent-Length: 0\r\n\r\n",
    "no_colon": b"HTTP/1.1 200 OK\r\nwhat is this\r\nContent-Length: 0\r\n\r\n",
    "control": b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n",
    "folded": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n 0\r\n\r\nright",
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nright",
    "lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nright",
    "both": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nright\r\n0\r\n\r\n",
    "coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n5\r\nright\r\n0\r\n\r\n",
    "old_coding": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nright\r\n0\r\n\r\n",
    "chunk_size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfive\r\nright\r\n0\r\n\r\n",
    "chunk_line": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;"
    + b"x" * 100_000
    + b"\r\nright\r\n0\r\n\r\n",
    "chunk_end": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nright\r\n0\r\n\r\n",
    "trailer": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n",
    "upgrade": b"HTTP/1.1 101 Other\r\nUpgrade: other\r\nConnection: upgrade\r\n\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\n" * 1000 + OK,
    "some_interim": b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" * 3 + OK,
    "too_much": OK + b"and more",
}
CLOSES = {"leaves", "old", "old_length", "early", "truncated", "truncated_head", "truncated_chunk"}
# What is followed by a reset in place of an orderly end.
RESETS = {"reset", "reset_in_head", "reset_in_body", "reset_after"}
# A piece that is sent for as long as it is taken.
ENDLESS = {
    "endless_head": (b"HTTP/1.1 200 OK\r\n", b"X-Another: one\r\n" * 4096),
    "endless_line": (b"HTTP/1.1 ", b"2" * 65_536),
    "endless_trailer": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Another: one\r\n" * 4096),
    "endless_interim": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 4096),
}
# A body that goes on until it is cut off: so much of it at once, the rest a byte at a time.
LONG_BODY_PIECES, DRIP_S = 256, 0.02
# How long an answer takes where requests are kept: a closed loop would send tens of thousands.
KEPT_AFTER_S = 0.005
_HEAD = re.compile(rb"(\S+) (\S+) (\S+)\r\n(.*?)\r\n\r\n", re.DOTALL)
_LENGTH = re.compile(rb"(?im)^content-length: *(\d+)")


@dataclass
class Account:
    """What the server saw and did."""

    requests: Counter[str] = field(default_factory=Counter)
    """By what they asked for."""
    connections: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    kept: list[list[object]] = field(default_factory=list)
    """With --keep, each request: connection, request line, header fields, body."""
    times_s: list[tuple[float, float]] = field(default_factory=list)
    """With --stall, when each request was read and when it was answered, by the monotonic clock."""
    carried_by: list[int] = field(default_factory=list)
    """With --stall, the connection of each of them."""
    stalls_s: list[tuple[float, float]] = field(default_factory=list)
    """When nothing moved, from and to."""
    hung_up_s: float = 0.0
    """When the last connection was seen to have ended, by the same clock."""


class Server:
    """All connections' common part."""

    def __init__(self, *, stalls: bool, keeps: bool) -> None:
        self.account = Account()
        self.stalls = stalls
        self.keeps = keeps
        self.has_begun = False
        self.open = 0
        self.no_connections = asyncio.Event()
        """Set where no connection is open."""
        self.last: tuple[str, int] | None = None
        """Who comes last, as far as counts go."""
        self.all_in = asyncio.Event()
        """Set once that one is in."""

    def begin(self, now_s: float) -> None:
        """At the first request."""
        self.has_begun = True
        if self.stalls:
            asyncio.get_running_loop().call_at(now_s + 2, self.stall, now_s + 2)

    def stall(self, due_s: float) -> None:
        """The whole process does nothing."""
        from_s = time.monotonic()
        time.sleep(1)
        self.account.stalls_s.append((from_s, time.monotonic()))
        asyncio.get_running_loop().call_at(due_s + 5, self.stall, due_s + 5)


class Connection(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self.server = server
        self.account = server.account
        self.buffer = b""
        self.is_full = False
        self.endless = b""

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self.go_on()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.account.connections += 1
        self.number = self.account.connections
        self.server.open += 1
        self.server.no_connections.clear()
        if transport.get_extra_info("peername") == self.server.last:
            self.server.all_in.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.account.hung_up_s = time.monotonic()
        self.server.open -= 1
        if not self.server.open:
            self.server.no_connections.set()

    def data_received(self, data: bytes) -> None:
        now_s = time.monotonic()
        self.account.received_bytes += len(data)
        self.buffer += data
        while found := _HEAD.match(self.buffer):
            length = _LENGTH.search(found[4])
            end = found.end() + (int(length[1]) if length else 0)
            if len(self.buffer) < end:
                return
            body, self.buffer = self.buffer[found.end() : end], self.buffer[end:]
            if not self.server.has_begun:
                self.server.begin(now_s)
            self.answer(found, body, now_s)

    def answer(self, found: re.Match[bytes], body: bytes, now_s: float) -> None:
        kind, _, number = found[2].decode().strip("/").partition("/")
        self.account.requests[kind] += 1
        if self.server.keeps:
            fields = sorted(found[4].decode().split("\r\n"))
            line = b" ".join(found.group(1, 2, 3)).decode()
            self.account.kept.append([self.number, line, fields, body.decode()])
        if kind == "first":
            if self.account.requests[kind] <= int(number):
                self.respond(kind, now_s)
        elif number.isdecimal():
            asyncio.get_running_loop().call_at(now_s + int(number) / 1e3, self.respond, kind, now_s)
        elif self.server.keeps:
            asyncio.get_running_loop().call_at(now_s + KEPT_AFTER_S, self.respond, kind, now_s)
        elif kind in SAYS:
            self.respond(kind, now_s)
        else:
            self.misbehave(kind)

    def respond(self, kind: str, read_s: float) -> None:
        if self.server.stalls:
            self.account.times_s.append((read_s, time.monotonic()))
            self.account.carried_by.append(self.number)
        self.send(SAYS.get(kind, OK))
        if kind in CLOSES:
            self.transport.close()
        elif kind in RESETS:
            linger = struct.pack("ii", 1, 0)
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.transport.abort()

    def send(self, piece: bytes) -> None:
        if not self.transport.is_closing():
            self.account.sent_bytes += len(piece)
            self.transport.write(piece)

    def misbehave(self, kind: str) -> None:
        if kind == "long_body":
            self.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.drip(LONG_BODY_PIECES)
        elif kind in ENDLESS:
            head, self.endless = ENDLESS[kind]
            self.send(head)
            self.go_on()
        else:
            assert kind == "hang", kind

    def go_on(self) -> None:
        """Until the other side hangs up."""
        if self.endless and not self.is_full and not self.transport.is_closing():
            self.send(self.endless)
            asyncio.get_running_loop().call_soon(self.go_on)

    def drip(self, pieces: int) -> None:
        if not self.transport.is_closing():
            self.send(b"10000\r\n" + b"x" * 65_536 + b"\r\n" if pieces else b"1\r\nx\r\n")
            asyncio.get_running_loop().call_later(0 if pieces else DRIP_S, self.drip, max(pieces - 1, 0))


async def main() -> Account:
    """Serves until it is asked to end."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    server = Server(stalls="--stall" in sys.argv, keeps="--keep" in sys.argv)
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    listening = await loop.create_server(partial(Connection, server), "127.0.0.1", 0, backlog=4096)
    port = listening.sockets[0].getsockname()[1]
    print(port, flush=True)
    await over.wait()
    # Connections that came before this one are accepted before it.
    with socket.create_connection(("127.0.0.1", port)) as last:
        server.last = last.getsockname()
        await server.all_in.wait()
    await server.no_connections.wait()
    return server.account


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(vars(asyncio.run(main()))))
