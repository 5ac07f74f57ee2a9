"""A raw socket that receives the packets of one port alone: those of other tests would fill its buffer."""

from __future__ import annotations

import ctypes
import socket
import struct

_SO_ATTACH_FILTER = 26
"""Python does not have its name."""


def see_port_alone(watch: socket.socket, port: int, *, least_bytes: int = 0, kept_bytes: int = 0xFFFF) -> None:
    """Let the socket receive IPv4 packets to or from the port that are as long as `least_bytes`, and their first
    `kept_bytes`."""
    # Classic BPF: the packet's length; then X is the length of the IPv4 header, behind which both ports are.
    program = (
        (0x28, 0, 0, 2),
        (0x35, 0, 6, least_bytes),
        (0xB1, 0, 0, 0),
        (0x48, 0, 0, 0),
        (0x15, 2, 0, port),
        (0x48, 0, 0, 2),
        (0x15, 0, 1, port),
        (0x06, 0, 0, kept_bytes),
        (0x06, 0, 0, 0),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    watch.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(code)))
