"""An HTTP server whose behaviour is an argument, and which writes down what it did: `http_server.py BEHAVIOUR`, JSON.

Prints its port. When its stdin ends it prints its account as one line of JSON. Runs as a process of its own, so that no
other Python code takes its time, and imports nothing of Leadline, so that it starts at once.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

_BODY = b"x" * 100
_GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: keep-alive\r\n\r\n" + _BODY
_BAD = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 100\r\nConnection: keep-alive\r\n\r\n" + _BODY
_CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: keep-alive\r\n\r\n" + _BODY[:60]
_END = b"\r\n\r\n"
_MIN_TIMER_S = 0.0005
"""A shorter wait is left out: the event loop's timers have a resolution of 1 ms."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What the server does with the requests of all connections, which it counts from 1."""

    service_s: float = 0.0
    """Time from a request's arrival to its answer."""
    stall_every_s: float = 0.0
    """Period of the stalls, counted from the first request; 0: no stalls."""
    stall_s: float = 0.0
    """Length of a stall, in which no request's service goes on. A period ends with its stall."""
    bad_every: int = 0
    """Each request of this number is answered by 500."""
    cut_every: int = 0
    """Each request of this number gets 60 bytes of a body of 100, and a reset of its connection."""
    short_every: int = 0
    """The same, with an orderly end of the connection."""
    capacity_per_s: float = 0.0
    """Answers per second at most, in order of arrival; 0: no limit."""
    head_first: bool = False
    """Whether the head of an answer leaves as soon as its request has come, and the body when it is due."""


@dataclass(slots=True)
class Account:
    """What happened, with times of the monotonic clock, s."""

    arrived_s: list[float] = field(default_factory=list)
    answered_s: list[float] = field(default_factory=list)
    """Of each complete answer, in the order of the answers."""
    took_s: list[float] = field(default_factory=list)
    """Of each complete answer: time since its request was read."""
    late_s: list[float] = field(default_factory=list)
    """Of each complete answer: time since it was due. As late as that a request may have been read, too."""
    bad: int = 0
    cut: int = 0
    short: int = 0
    unanswered: int = 0
    """Requests whose connection ended before their answer."""


class Server:
    """What the connections share: the count of requests, the schedule, and the account."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.account = Account()
        self.next_free_s = -math.inf

    def finish_s(self, arrived_s: float) -> float:
        """When a request is answered."""
        asked = self.behaviour
        end_s = arrived_s + asked.service_s
        if asked.stall_every_s:
            origin_s = self.account.arrived_s[0]
            end_s = origin_s + stalled_finish_s(asked, arrived_s - origin_s)
        if asked.capacity_per_s:
            end_s = max(end_s, self.next_free_s)
            self.next_free_s = end_s + 1 / asked.capacity_per_s
        return end_s


def stalled_finish_s(asked: Behaviour, arrived_s: float) -> float:
    """When a request is answered, with times since the first request: its service stands still during stalls."""
    now_s, left_s = arrived_s, asked.service_s
    while True:
        period = math.floor(now_s / asked.stall_every_s)
        next_period_s = (period + 1) * asked.stall_every_s
        stall_s = next_period_s - asked.stall_s
        if now_s + left_s <= stall_s:
            return now_s + left_s
        left_s -= max(0.0, stall_s - now_s)
        now_s = next_period_s


class Connection(asyncio.Protocol):
    """One client's connection, whose requests are answered in order."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._received = b""
        self._waiting: deque[tuple[int, float, float]] = deque()
        """Requests by their number, with the times of their arrival and of their answer."""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        """Count what stays unanswered."""
        self._server.account.unanswered += len(self._waiting)
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        """Take each complete request."""
        self._received += data
        while _END in self._received:
            _, _, self._received = self._received.partition(_END)
            account = self._server.account
            account.arrived_s.append(now_s := time.monotonic())
            end_s = self._server.finish_s(now_s)
            self._waiting.append((len(account.arrived_s), now_s, end_s))
            if self._server.behaviour.head_first:
                self._transport.write(_GOOD[: -len(_BODY)])
            if end_s - now_s < _MIN_TIMER_S:
                self._answer()
            else:
                asyncio.get_running_loop().call_at(end_s, self._answer)

    def _answer(self) -> None:
        if not self._waiting:
            return
        number, arrived_s, due_s = self._waiting.popleft()
        asked, account = self._server.behaviour, self._server.account
        if _is_due(number, asked.cut_every) or _is_due(number, asked.short_every):
            self._break_off(is_reset=_is_due(number, asked.cut_every))
            return
        is_bad = _is_due(number, asked.bad_every)
        account.bad += is_bad
        account.answered_s.append(now_s := time.monotonic())
        account.took_s.append(now_s - arrived_s)
        account.late_s.append(max(0.0, now_s - due_s))
        self._transport.write(_BODY if asked.head_first else _BAD if is_bad else _GOOD)

    def _break_off(self, *, is_reset: bool) -> None:
        account = self._server.account
        self._transport.write(_CUT)
        if is_reset:
            account.cut += 1
            # What is received and not read makes the kernel reset the connection; an abort does so in any case.
            self._transport.get_extra_info("socket").setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER, 0 s
            asyncio.get_running_loop().call_later(0.002, self._transport.abort)
        else:
            account.short += 1
            self._transport.close()


def _is_due(number: int, every: int) -> bool:
    return every > 0 and number % every == 0


async def _serve(behaviour: Behaviour, address: str) -> Account:
    loop = asyncio.get_running_loop()
    server = Server(behaviour)
    listener = await loop.create_server(lambda: Connection(server), address, 0, backlog=1024)
    print(listener.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    loop.add_reader(0, ended.set)
    with suppress(asyncio.CancelledError):
        await ended.wait()
    listener.close()
    return server.account


if __name__ == "__main__":
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -15)  # other work on the machine then changes little of what is true
    found = asyncio.run(_serve(Behaviour(**json.loads(sys.argv[1])), sys.argv[2]))
    sys.stdout.write(json.dumps({name: getattr(found, name) for name in Account.__slots__}))
    sys.stdout.flush()
    os._exit(0)
