"""What an interface's counters mean on the wire: a kernel counts a bundle of segments, which it has not cut yet, as one
packet. Pure."""

from __future__ import annotations

_ETHERNET_BYTES = 14
_HEADERS_BYTES = 42  # Ethernet, IPv4 and UDP: what each packet on the wire has at least

BETWEEN_FRAMES_BYTES = 24
"""Preamble, checksum and gap of each frame, which an Ethernet link carries and no interface counts."""


def segments(count: float, packets: float, mtu_bytes: int) -> float:
    """Packets on the wire for each packet that an interface counted, from its bytes and packets; 1 or more."""
    if packets <= 0:
        return 1.0
    payload = max(0.0, count / packets - _HEADERS_BYTES)
    return max(1.0, payload / (mtu_bytes + _ETHERNET_BYTES - _HEADERS_BYTES))


def wire_bytes(count: float, packets: float, mtu_bytes: int, more_bytes: int = 0) -> float:
    """Bytes with the headers of each packet on the wire, and `more_bytes` for each."""
    if packets <= 0:
        return max(0.0, count)
    on_wire = segments(count, packets, mtu_bytes)
    return count + packets * ((on_wire - 1) * _HEADERS_BYTES + on_wire * more_bytes)
