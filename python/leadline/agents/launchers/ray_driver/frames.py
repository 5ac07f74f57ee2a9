"""The messages between a controller and a driver: a header, then bytes. Pure.

A frame belongs to a command by its number, or to the cluster (number 0). Frames of bytes carry a command's stdio; all
others carry one JSON object.
"""

from __future__ import annotations

import json
import struct
from enum import IntEnum
from typing import Any

_HEADER = struct.Struct(">IIB")
"""Length of what follows, bytes; number of the command; kind."""
MAX_FRAME_BYTES = 64 * 1024 * 1024
CLUSTER = 0
"""The number of frames that belong to no command."""


class Kind(IntEnum):
    """What a frame says. C: the controller sends it, D: the driver."""

    CONNECT = 1
    """C: the cluster's address and how many hosts; the first frame."""
    PLACED = 2
    """D: the hosts."""
    REFUSED = 3
    """D: why a request of this number failed: message, hint, code."""
    INSTALL = 4
    """C: put a program into the cache of each host; the number is of this request."""
    INSTALLED = 5
    """D: its path on each host."""
    START = 6
    """C: a host's position, a command."""
    STARTED = 7
    """D: it runs."""
    INPUT = 8
    """C: bytes for its stdin."""
    CLOSE_INPUT = 9
    """C: the end of its stdin."""
    SIGNAL = 10
    """C: a signal for it, by number."""
    OUTPUT = 11
    """D: bytes of its stdout; empty at its end."""
    ERRORS = 12
    """D: bytes of its stderr; empty at its end."""
    EXITED = 13
    """D: its status."""
    LOST = 14
    """D: its host is gone, and why."""
    CLOSE = 15
    """C: end all commands and give the hosts back."""
    CLOSED = 16
    """D: that is done; what could not be."""
    CONNECTED = 17
    """D: the cluster lets it in; the hosts follow."""


def encode_frame(kind: Kind, number: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return _HEADER.pack(len(payload), number, kind) + payload


def encode_object(kind: Kind, number: int, value: dict[str, Any]) -> bytes:
    """One frame with a JSON object."""
    return encode_frame(kind, number, json.dumps(value).encode())


class FrameReader:
    """Cuts a stream into frames."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[tuple[Kind, int, bytes]]:
        """The frames (kind, number, payload) that these bytes complete.

        Raises:
            ValueError: the stream is not one of frames.
        """
        self._pending += data
        found: list[tuple[Kind, int, bytes]] = []
        at = 0
        while len(self._pending) - at >= _HEADER.size:
            length, number, kind = _HEADER.unpack_from(self._pending, at)
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"a frame of {length} bytes is longer than {MAX_FRAME_BYTES}")
            end = at + _HEADER.size + length
            if len(self._pending) < end:
                break
            found.append((Kind(kind), number, bytes(self._pending[at + _HEADER.size : end])))
            at = end
        del self._pending[:at]
        return found
