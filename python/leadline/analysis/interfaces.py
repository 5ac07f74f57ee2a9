"""What an interface's counters mean on the wire: a kernel counts a bundle of segments, which it has not cut yet, as one
packet. Owns the headers of each packet on the wire, by the load's protocol. Pure."""

from __future__ import annotations

from leadline.analysis.test_spec import TestSpec

ETHERNET_BYTES = 14
_IPV4_BYTES, _IPV6_BYTES = 20, 40
_UDP_BYTES = 8
_TCP_BYTES = 32
"""With the timestamps that Linux puts into each segment."""

BETWEEN_FRAMES_BYTES = 24
"""Preamble, checksum and gap of each frame, which an Ethernet link carries and no interface counts."""


def header_bytes(spec: TestSpec) -> int:
    """Ethernet, IP, and TCP or UDP: what each packet of a test's load has of its own on the wire."""
    transport_bytes = _UDP_BYTES if spec.over_udp else _TCP_BYTES
    return ETHERNET_BYTES + (_IPV6_BYTES if spec.over_ipv6 else _IPV4_BYTES) + transport_bytes


LEAST_TUNNEL_BYTES = ETHERNET_BYTES + _IPV4_BYTES + _UDP_BYTES
"""Headers of each packet of a tunnel on the wire, at least."""


def segments(count: float, packets: float, mtu_bytes: int, headers: int) -> float:
    """Packets on the wire for each packet that an interface counted, from its bytes and packets; 1 or more. A bundle
    has the `headers` of one packet."""
    if packets <= 0:
        return 1.0
    payload = max(0.0, count / packets - headers)
    return max(1.0, payload / max(1, mtu_bytes + ETHERNET_BYTES - headers))


def wire_bytes(count: float, packets: float, mtu_bytes: int, headers: int, more_bytes: int = 0) -> float:
    """Bytes with the headers of each packet on the wire, and `more_bytes` for each."""
    if packets <= 0:
        return max(0.0, count)
    on_wire = segments(count, packets, mtu_bytes, headers)
    return count + packets * ((on_wire - 1) * headers + on_wire * more_bytes)
