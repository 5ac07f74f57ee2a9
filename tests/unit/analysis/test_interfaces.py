"""Packets and bytes on the wire, from bundles whose segments are known."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.analysis.interfaces import header_bytes, segments, wire_bytes
from leadline.analysis.test_spec import TestSpec

ETHERNET, FULL_FRAME = 14, 1514
TCP_V4, TCP_V6, UDP_V4, UDP_V6 = 66, 86, 42, 62


@pytest.mark.parametrize(
    ("test", "headers"),
    [
        ({"kind": "tcp"}, TCP_V4),
        ({"kind": "tcp", "ip": 6}, TCP_V6),
        ({"kind": "tcp", "target": "server"}, TCP_V4),
        ({"kind": "tcp", "target": {"host": "::1", "port": 5}}, TCP_V6),
        ({"kind": "tcp", "target": {"host": "server.example", "port": 5, "ip_version": "v6"}}, TCP_V6),
        ({"kind": "udp"}, UDP_V4),
        ({"kind": "udp", "rate_pps": 10.0}, UDP_V4),
        ({"kind": "udp", "rate_bps": 1e6, "payload_bytes": 100, "ip": 6}, UDP_V6),
        ({"kind": "rr"}, TCP_V4),
        ({"kind": "rr", "protocol": "udp"}, UDP_V4),
        ({"kind": "load-latency", "protocol": "udp"}, TCP_V4),
        ({"kind": "http", "requests": [{"url": "http://server.example/"}]}, TCP_V4),
        ({"kind": "http", "requests": [{"url": "https://[::1]:8443/"}]}, TCP_V6),
        ({"kind": "tunnel", "traffic": {"kind": "udp"}}, UDP_V4),
        ({"kind": "tunnel", "traffic": {"kind": "tcp"}}, TCP_V4),
    ],
)
def test_headers_are_those_of_the_loads_protocol(test: dict[str, Any], headers: int) -> None:
    assert header_bytes(TestSpec.read(test)) == headers


@pytest.mark.parametrize("headers", [TCP_V4, TCP_V6, UDP_V4, UDP_V6])
@pytest.mark.parametrize("number", [1, 2, 44])
def test_a_bundle_is_the_full_packets_that_it_becomes(headers: int, number: int) -> None:
    bundle_bytes = headers + number * (FULL_FRAME - headers)
    assert segments(10 * bundle_bytes, 10, 1500, headers) == pytest.approx(number)
    assert wire_bytes(10 * bundle_bytes, 10, 1500, headers) == pytest.approx(10 * number * FULL_FRAME)
    assert wire_bytes(10 * bundle_bytes, 10, 1500, headers, 24) == pytest.approx(10 * number * (FULL_FRAME + 24))


def test_a_short_packet_is_one() -> None:
    assert segments(66.0, 1, 1500, TCP_V4) == 1.0
    assert wire_bytes(66.0, 1, 1500, TCP_V4) == 66.0
    assert wire_bytes(0.0, 0, 1500, TCP_V4) == 0.0
