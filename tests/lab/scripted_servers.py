"""Servers of Leadline's own protocol and of iperf3's that follow it up to a stage, and then do something else.

Owns the conversation and the ways to break it off. Which error the client shows is the tests'.
"""

from __future__ import annotations

import errno
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from waiting import WITHIN_S, free_port

MAGIC = b"LEADLINE/2\n"
HEADER_BYTES = 40
COOKIE_BYTES = 37
TOKEN = 77


class Gone(Exception):
    """The client has closed its connection."""


@dataclass
class Talk:
    """One client's connections, as a server sees them."""

    listener: socket.socket
    datagrams: socket.socket
    control: socket.socket
    flows: list[socket.socket] = field(default_factory=list)

    def receive(self, length: int) -> bytes:
        """Exactly that many bytes of the control connection."""
        return exactly(self.control, length)

    def frame(self) -> dict[str, Any]:
        """The client's next message: a length and JSON."""
        (length,) = struct.unpack(">I", self.receive(4))
        message: dict[str, Any] = json.loads(self.receive(length))
        return message

    def send(self, message: object) -> None:
        """Send a message with its length."""
        self.control.sendall(frame(message))

    def accept_flow(self, introduction_bytes: int) -> None:
        """Take a flow, and read how it introduces itself."""
        flow, _ = self.listener.accept()
        flow.settimeout(WITHIN_S)
        exactly(flow, introduction_bytes)
        self.flows.append(flow)

    def everything(self) -> list[socket.socket]:
        return [self.control, *self.flows]


Script = Callable[[Talk], Iterator[str]]
"""A server: it names each stage that it has reached."""
Act = Callable[[Talk], None]
"""What a server does instead of going on."""


def exactly(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        try:
            piece = connection.recv(length - len(data))
        except ConnectionResetError:
            piece = b""
        if not piece:
            raise Gone
        data += piece
    return data


def frame(message: object) -> bytes:
    text = json.dumps(message).encode()
    return struct.pack(">I", len(text)) + text


# --- What servers do up to a stage ------------------------------------------------------------------------------------


def leadline_tcp(talk: Talk, report: dict[str, Any] | None = None) -> Iterator[str]:
    """Leadline's own responder for one TCP flow from the client."""
    yield from _granted(talk)
    talk.accept_flow(HEADER_BYTES)
    yield from _begun(talk)
    flow = talk.flows[0]
    exactly(flow, 1000)
    drained = Drained(flow)
    talk.send(progress(1000))
    yield "running"
    assert talk.frame()["say"] == "end"
    yield "ended"
    drained.join()
    talk.send(report or report_of({"received_bytes": drained.length}))
    yield "reported"


def leadline_down(talk: Talk, sent_bytes: int = 100_000, claimed_bytes: int | None = None) -> Iterator[str]:
    """The same for one TCP flow to the client."""
    yield from _granted(talk)
    talk.accept_flow(HEADER_BYTES)
    yield from _begun(talk)
    talk.flows[0].sendall(b"x" * sent_bytes)
    talk.send(progress(0, sent_bytes))
    yield "running"
    talk.flows[0].shutdown(socket.SHUT_WR)
    yield "ended"
    talk.send(report_of({"sent_bytes": sent_bytes if claimed_bytes is None else claimed_bytes}))
    yield "reported"


def leadline_udp(talk: Talk, more: int = 0) -> Iterator[str]:
    """The same for one UDP flow from the client; it claims some datagrams more than were sent."""
    yield from _granted(talk)
    hello, client = talk.datagrams.recvfrom(2048)
    talk.datagrams.connect(client)
    yield "greeted"
    talk.datagrams.send(hello[:4] + b"\x03" + hello[5:])
    yield from _begun(talk)
    talk.datagrams.recv(2048)
    talk.send(progress(0))
    yield "running"
    (sent,) = talk.frame()["sent_units"]
    yield "ended"
    talk.send(report_of({"received_units": sent + more}))
    yield "reported"


def leadline_rr(talk: Talk) -> Iterator[str]:
    """The same for request-response over one TCP connection; it answers once."""
    yield from _granted(talk)
    talk.accept_flow(HEADER_BYTES)
    yield from _begun(talk)
    exactly(talk.flows[0], 1)
    talk.flows[0].sendall(b"y")
    yield "running"


def _granted(talk: Talk) -> Iterator[str]:
    assert talk.receive(len(MAGIC)) == MAGIC
    assert talk.frame()["say"] == "open"
    yield "asked"
    talk.send({"say": "accepted", "token": TOKEN})
    yield "granted"
    for _ in range(16):
        query, now_ns = talk.frame(), time.monotonic_ns()
        talk.send({"say": "clock", "id": query["id"], "received_ns": now_ns, "sent_ns": now_ns})
    yield "compared"


def _begun(talk: Talk) -> Iterator[str]:
    yield "arrived"
    talk.send({"say": "ready"})
    assert talk.frame()["say"] == "begin"
    yield "begun"


def progress(received_bytes: int, sent_bytes: int = 0) -> dict[str, Any]:
    row = {"flow": 0, "sent_bytes": sent_bytes, "received_bytes": received_bytes}
    return {"say": "progress", "t_ns": time.monotonic_ns(), "flows": [row]}


def report_of(row: dict[str, Any], errors: dict[str, int] | None = None, **load: Any) -> dict[str, Any]:
    """The last message: a row of one flow, and what it cost."""
    cost = {"side": "peer", "wall_s": 1.0, "threads": [], "pushback": 0, **load}
    flow = {"flow": 0, "sent_bytes": 0, "received_bytes": 0, **row}
    return {"say": "report", "flows": [flow], "load": cost, "errors": errors or {}}


def iperf3_tcp(talk: Talk, results: dict[str, Any] | None = None) -> Iterator[str]:
    """`iperf3 -s` for one TCP flow from the client."""
    talk.receive(COOKIE_BYTES)
    yield "asked"
    talk.control.sendall(b"\x09")
    talk.frame()
    yield "agreed"
    talk.control.sendall(b"\x0a")
    talk.accept_flow(COOKIE_BYTES)
    yield "arrived"
    talk.control.sendall(b"\x01")
    yield "prepared"
    talk.control.sendall(b"\x02")
    exactly(talk.flows[0], 1000)
    drained = Drained(talk.flows[0])
    yield "running"
    assert talk.receive(1) == b"\x04"
    yield "ended"
    talk.control.sendall(b"\x0d")
    theirs = talk.frame()
    yield "told"
    talk.send(results or results_of(theirs["streams"][0]["bytes"]))
    yield "reported"
    talk.control.sendall(b"\x0e")
    assert talk.receive(1) == b"\x10"
    drained.join()


def iperf3_udp(talk: Talk, more_datagrams: int = 0, **more: Any) -> Iterator[str]:
    """`iperf3 -s` for one UDP flow from the client; it claims some datagrams more than were sent."""
    talk.receive(COOKIE_BYTES)
    yield "asked"
    talk.control.sendall(b"\x09")
    length = talk.frame()["len"]
    yield "agreed"
    talk.control.sendall(b"\x0a")
    hello, client = talk.datagrams.recvfrom(2048)
    assert hello == b"9876"
    talk.datagrams.connect(client)
    yield "greeted"
    talk.datagrams.send(b"6789")
    talk.control.sendall(b"\x01\x02")
    talk.datagrams.recv(2048)
    yield "running"
    assert talk.receive(1) == b"\x04"
    yield "ended"
    talk.control.sendall(b"\x0d")
    theirs = talk.frame()["streams"][0]
    yield "told"
    packets = theirs["packets"]
    talk.send(results_of((packets + more_datagrams) * length, **{"packets": packets, **more}))
    yield "reported"
    talk.control.sendall(b"\x0e")
    assert talk.receive(1) == b"\x10"


def results_of(count: int, **more: Any) -> dict[str, Any]:
    """iperf3's figures of one flow."""
    stream = {"id": 1, "bytes": count, "retransmits": -1, "jitter": 0, "errors": 0, "packets": 0, **more}
    cpu = dict.fromkeys(("cpu_util_total", "cpu_util_user", "cpu_util_system"), 0)
    return {**cpu, "sender_has_retransmits": -1, "streams": [stream]}


class Drained:
    """Reads a flow to its end beside the conversation."""

    def __init__(self, flow: socket.socket) -> None:
        self.length = 1000
        self._flow = flow
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(WITHIN_S)

    def _read(self) -> None:
        with suppress(OSError):
            while piece := self._flow.recv(1 << 20):
                self.length += len(piece)


# --- What they do instead of going on ---------------------------------------------------------------------------------


def fall_silent(talk: Talk) -> None:
    """Send nothing more. Every connection stays open."""


def close(talk: Talk) -> None:
    for one in talk.everything():
        one.shutdown(socket.SHUT_RDWR)


def reset(talk: Talk) -> None:
    for one in talk.everything():
        abort(one)


def reset_control(talk: Talk) -> None:
    abort(talk.control)


def abort(connection: socket.socket) -> None:
    """Close a connection by RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def sending(data: bytes, then: Act = fall_silent) -> Act:
    """Send bytes that are wrong here."""

    def act(talk: Talk) -> None:
        talk.control.sendall(data)
        then(talk)

    return act


def sending_for_ever(piece: Callable[[], bytes]) -> Act:
    """Send the same again and again until the client is gone."""

    def act(talk: Talk) -> None:
        with suppress(OSError):
            while True:
                talk.control.sendall(piece())

    return act


# --- The server -------------------------------------------------------------------------------------------------------


class ScriptedServer:
    """A server for one client on a port of its own."""

    def __init__(self, script: Script, stage: str | None, act: Act) -> None:
        self.port = free_port()
        self.reached: list[str] = []
        self._script, self._stage, self._act = script, stage, act
        self._failure: BaseException | None = None
        self._open = ExitStack()
        self._listener = self._open.enter_context(socket.create_server(("127.0.0.1", self.port)))
        self._datagrams = self._open.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._datagrams.bind(("127.0.0.1", self.port))
        for one in (self._listener, self._datagrams):
            one.settimeout(WITHIN_S)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def came(self) -> bool:
        """Whether the client got as far as the stage."""
        return self._stage in (None, *self.reached)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ends(self) -> None:
        """Wait until the client has closed all of its connections. Raises what went wrong here."""
        # The client has ended: who still waits for a connection of it waits in vain.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive(), f"the client holds a connection; reached: {self.reached}"
        self._open.close()
        if self._failure is not None:
            raise self._failure
        assert self.came, self.reached

    def _serve(self) -> None:
        try:
            control, _ = self._listener.accept()
        except OSError as failure:
            self._failure = failure
            return
        control.settimeout(WITHIN_S)
        talk = Talk(self._listener, self._datagrams, control)
        try:
            self._follow(talk)
            for one in talk.everything():
                wait_for_end(one)
        except Gone:
            pass
        except BaseException as failure:  # raised again where the test waits
            self._failure = failure
        finally:
            for one in talk.everything():
                one.close()

    def _follow(self, talk: Talk) -> None:
        for stage in self._script(talk):
            self.reached.append(stage)
            if stage == self._stage:
                self._act(talk)
                return


def wait_for_end(connection: socket.socket) -> None:
    """Read until the other end closes. A timeout here is a client that does not."""
    try:
        while connection.fileno() >= 0 and connection.recv(1 << 20):
            pass
    except ConnectionError:
        pass
    except OSError as error:
        if error.errno != errno.ENOTCONN:
            raise


@contextmanager
def serving(script: Script, stage: str | None = None, act: Act = fall_silent) -> Iterator[ScriptedServer]:
    server = ScriptedServer(script, stage, act)
    yield server
    server.ends()
