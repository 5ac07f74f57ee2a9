"""A relay between a load and its server that drops, doubles and delays datagrams by a script, so that the right counts
are known to the datagram.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from waiting import free_port

Script = Callable[[int], Sequence[int]]
"""What is passed on when a datagram arrives: the numbers of datagrams, counted from 1, that have arrived so far."""

_INTRODUCTION = b"LLD1\x02"
"""A hello and its kind; data has another kind, or a short header without a kind."""


@dataclass
class Relay:
    """Passes a session on to the server, and its datagrams upwards as the script says."""

    server: tuple[str, int]
    script: Script
    port: int = field(default_factory=free_port)
    passed: int = 0

    @contextmanager
    def running(self) -> Iterator[Relay]:
        front = socket.create_server(("127.0.0.1", self.port))
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        datagrams.bind(("127.0.0.1", self.port))
        for body in (self._accept, self._datagrams):
            threading.Thread(target=body, args=(front if body == self._accept else datagrams,), daemon=True).start()
        with front, datagrams:
            yield self
            front.shutdown(socket.SHUT_RDWR)

    def _accept(self, front: socket.socket) -> None:
        while True:
            try:
                near, _ = front.accept()
            except OSError:
                return
            far = socket.create_connection(self.server)
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_copy, args=(source, sink), daemon=True).start()

    def _datagrams(self, front: socket.socket) -> None:
        back = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        back.connect(self.server)
        back.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        client: list[Any] = []
        threading.Thread(target=_answer, args=(back, front, client), daemon=True).start()
        arrived: list[bytes] = []
        while True:
            try:
                datagram, sender = front.recvfrom(65536)
            except OSError:
                return
            client[:] = [sender]
            if datagram.startswith(_INTRODUCTION):
                back.send(datagram)
                continue
            arrived.append(datagram)
            self.passed = len(arrived)
            for number in self.script(len(arrived)):
                back.send(arrived[number - 1])


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


def _answer(back: socket.socket, front: socket.socket, client: list[Any]) -> None:
    while True:
        try:
            datagram = back.recv(65536)
            front.sendto(datagram, client[0])
        except OSError:
            return
