"""A wire between two hosts that loses, doubles, swaps and delays frames as its argument says, and counts what it did:
`wire.py BEHAVIOUR`, JSON. Its interfaces are `near` (the client's side) and `far`.

Prints a line once it forwards. When its stdin ends it prints its account as one line of JSON. Frames pass through this
process one by one, at some thousands per second. Runs as a process of its own, and imports nothing of Leadline.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

NEAR, FAR = "near", "far"
_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING, _SO_RCVBUFFORCE = 263, 15, 23, 33
_EVERY_PROTOCOL = 0x0003
_VNET = 10
"""Bytes of the virtio header before each frame: with it, checksums that the sender's kernel left out stay left out."""
_ETHERNET = 14
_IPV4, _TCP, _UDP = 0x0800, 6, 17
_MAX_FRAME = 65_536 + _VNET
_BUFFER = 1 << 23


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What happens to frames. Datagrams are those from near to far with this payload, counted from 1; all other frames
    are only delayed."""

    payload_bytes: int = 0
    """UDP payload of the datagrams that are counted."""
    drop_every: int = 0
    """Each datagram of this number is lost."""
    duplicate_every: int = 0
    """Each datagram of this number comes twice."""
    swap_every: int = 0
    """Each datagram of this number comes after the next one."""
    rate_bps: float = 0.0
    """Bits per second of the datagrams' frames, in a queue without an end; 0: no limit."""
    delay_s: float = 0.0
    """How long each frame takes, in each direction."""


@dataclass(slots=True)
class Account:
    """What the wire did."""

    datagrams: int = 0
    """Datagrams that arrived."""
    dropped: int = 0
    duplicated: int = 0
    swapped: int = 0
    carried_bytes: int = 0
    """Payload of the datagrams that left."""
    first_s: float = 0.0
    last_s: float = 0.0
    """When the first and the last datagram left, by the monotonic clock."""
    streams: dict[int, list[tuple[float, int, int]]] = field(default_factory=dict)
    """For each TCP connection, by the client's port: its segments with payload, as time, direction (0 from near when it
    arrived, 1 to near when it left, 2 to far when it left) and bytes."""


class Wire:
    """Both directions: frames that wait for their time."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.account = Account()
        self.waiting: dict[str, deque[tuple[float, bytes]]] = {NEAR: deque(), FAR: deque()}
        """By the interface that they leave by."""
        self._held: bytes | None = None
        self._free_s = 0.0

    def take(self, frame: bytes, leaves_by: str, now_s: float) -> None:
        """Take a frame that has arrived."""
        queue = self.waiting[leaves_by]
        due_s = now_s + self.behaviour.delay_s
        if leaves_by == FAR and (port := _segment(frame)) is not None:
            self.account.streams.setdefault(port[0], []).append((now_s, 0, port[1]))
        if leaves_by == NEAR or not self._is_datagram(frame):
            queue.append((due_s, frame))
            return
        for one in self._passed_on(frame):
            if self.behaviour.rate_bps:
                begin_s = max(now_s, self._free_s)
                self._free_s = begin_s + (len(one) - _VNET) * 8 / self.behaviour.rate_bps
                due_s = self._free_s + self.behaviour.delay_s
            queue.append((due_s, one))

    def sent(self, frame: bytes, leaves_by: str, now_s: float) -> None:
        """Note that a frame has left."""
        account = self.account
        if (segment := _segment(frame)) is not None:
            direction = 1 if leaves_by == NEAR else 2
            account.streams.setdefault(segment[0], []).append((now_s, direction, segment[1]))
        elif leaves_by == FAR and self._is_datagram(frame):
            account.first_s = account.first_s or now_s
            account.last_s = now_s
            account.carried_bytes += self.behaviour.payload_bytes

    def _passed_on(self, frame: bytes) -> list[bytes]:
        """The frames that leave because a datagram has arrived."""
        asked, account = self.behaviour, self.account
        account.datagrams += 1
        held, self._held = self._held, None
        after = [] if held is None else [held]
        if _is_due(account.datagrams, asked.drop_every):
            account.dropped += 1
            return after
        if _is_due(account.datagrams, asked.swap_every):
            account.swapped += 1
            self._held = frame
            return after
        if _is_due(account.datagrams, asked.duplicate_every):
            account.duplicated += 1
            return [frame, frame, *after]
        return [frame, *after]

    def _is_datagram(self, frame: bytes) -> bool:
        found = _ip_payload(frame, _UDP)
        return found is not None and struct.unpack_from("!H", frame, found + 4)[0] - 8 == self.behaviour.payload_bytes


def _segment(frame: bytes) -> tuple[int, int] | None:
    """The client's port and the payload of a TCP segment that has some; the server's port is the lower one."""
    at = _ip_payload(frame, _TCP)
    if at is None:
        return None
    source, destination = struct.unpack_from("!HH", frame, at)
    (length,) = struct.unpack_from("!H", frame, _VNET + _ETHERNET + 2)
    payload = length - (at - _VNET - _ETHERNET) - 4 * (frame[at + 12] >> 4)
    return (max(source, destination), payload) if payload > 0 else None


def _ip_payload(frame: bytes, protocol: int) -> int | None:
    """Where the payload of an IPv4 packet of this protocol begins; None for other frames."""
    at = _VNET + _ETHERNET
    if len(frame) < at + 28 or struct.unpack_from("!H", frame, at - 2)[0] != _IPV4 or frame[at + 9] != protocol:
        return None
    return at + 4 * (frame[at] & 15)


def _is_due(number: int, every: int) -> bool:
    return every > 0 and number % every == 0


def _opened(interface: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    made.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    made.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    for option in (socket.SO_RCVBUF, _SO_RCVBUFFORCE):
        try:
            made.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        except PermissionError:
            continue  # without rights in the machine's own namespace the lower limit holds
    made.bind((interface, _EVERY_PROTOCOL))
    made.setblocking(False)
    return made


def _forward(wire: Wire) -> None:
    sockets = {name: _opened(name) for name in (NEAR, FAR)}
    other: dict[Any, str] = {sockets[NEAR]: FAR, sockets[FAR]: NEAR}
    print("forwarding", flush=True)
    while True:
        now_s = time.monotonic()
        next_s = min((queue[0][0] for queue in wire.waiting.values() if queue), default=now_s + 1.0)
        ready, _, _ = select.select([0, *other], [], [], max(0.0, next_s - now_s))
        if 0 in ready:
            return
        for source in ready:
            for frame in _received(source):
                wire.take(frame, other[source], time.monotonic())
        for name, queue in wire.waiting.items():
            while queue and queue[0][0] <= time.monotonic():
                frame = queue.popleft()[1]
                sockets[name].send(frame)
                wire.sent(frame, name, time.monotonic())


def _received(source: socket.socket) -> list[bytes]:
    """The frames that wait in a socket, a few of them at once, so that none that is due waits for long."""
    frames: list[bytes] = []
    try:
        while len(frames) < 8:
            frames.append(source.recv(_MAX_FRAME))
    except BlockingIOError:
        pass
    return frames


if __name__ == "__main__":
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -15)  # other work on the machine then changes little of what is true
    wire = Wire(Behaviour(**json.loads(sys.argv[1])))
    _forward(wire)
    sys.stdout.write(json.dumps({name: getattr(wire.account, name) for name in Account.__slots__}))
    sys.stdout.flush()
    os._exit(0)
