"""What a `tunnel` test may say, how long it takes, and every refusal with its place."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from leadline.kinds.tunnel.model import TunnelTest, addresses_of
from leadline.plan.field_types import validate_input


def made(**given: Any) -> TunnelTest:
    return validate_input(TunnelTest, {"name": "t", "number": 100, **given})


def refusal(**given: Any) -> tuple[str, str]:
    """Where, and what."""
    with pytest.raises(ValidationError) as caught:
        made(**given)
    first = caught.value.errors()[0]
    at = first.get("ctx", {}).get("at", ())
    return ".".join(str(part) for part in (*first["loc"], *at)), first["msg"].removeprefix("Value error, ")


def test_default_arrival_is_all_at_once() -> None:
    test = made()
    assert (test.stages, test.settled, test.ping_every_ms, test.traffic) == ((), 0, None, None)
    assert test.stay_ms == 65_000 + 2_000, "an attempt, its first data, and some time for taking leave"
    assert test.expected_ms == 2_000, "what clients take is what is measured"


def test_one_rate_lasts_until_all_have_come() -> None:
    [stage] = made(rate="50/s").stages
    assert (stage.from_per_s, stage.to_per_s) == (50, 50)
    assert stage.duration_ms >= 2_000
    first, second = made(rate="0:50/2s,50/60s").stages
    assert (first.to_per_s, second.duration_ms) == (50, 60_000)


def test_a_stay_is_as_long_as_everything_takes_unless_it_is_given() -> None:
    assert made(retries=3).stay_ms == 4 * 65_000 + 1_000 + 2_000 + 4_000 + 2_000
    late = made(reconnect_at=["90s/10s"], attempt_timeout="10s")
    assert late.stay_ms == 100_000 + 10_000 + 5_000 + 2_000
    loaded = made(traffic={"kind": "echo", "rate": "10/s", "duration": "30s"})
    assert loaded.stay_ms == made().stay_ms + 30_000
    assert made(duration="7s").stay_ms == made(duration="7s").expected_ms == 7_000
    assert made(retries=1000).stay_ms > 300_000 * 900, "a great many retries do not overflow"


def test_settled_clients_are_pinged() -> None:
    assert made(settled=10).ping_every_ms == 100
    assert made(settled=10, ping="1s").ping_every_ms == 1000
    assert made(settled=10).stay_ms == 65_000 + 10_000 + 2_000, "after the last way up, pings go on for their time"
    assert made(settled=10).longest_ms == made(settled=10).stay_ms + 65_000 + 10 * 10 + 1_000
    assert made(settled=10, ping="1s").settling_ms == 65_000 + 10 * 10 + 10 * 1_000, "ten pings before the arrivals"


@pytest.mark.parametrize(
    ("kind", "given", "rate", "size"),
    [
        ("udp", {"rate": "50/s"}, 50.0, 1200),
        ("udp", {"rate": "2mbit", "packet": "1000"}, 250.0, 1000),
        ("udp", {}, None, 1200),
        ("echo", {"rate": 10}, 10.0, 100),
        ("http", {"rate": "5/s"}, 5.0, 1),
    ],
)
def test_traffic_has_a_rate_in_packets_whatever_it_was_given_in(
    kind: str, given: dict[str, Any], rate: float | None, size: int
) -> None:
    load = made(traffic={"kind": kind, **given}).traffic
    assert load is not None
    assert (load.rate_per_s, load.size_bytes) == (rate, size)


def test_addresses_are_single_networks_and_ranges() -> None:
    assert list(addresses_of("192.0.2.0/30")) == ["192.0.2.1", "192.0.2.2"]
    assert list(addresses_of("192.0.2.9-192.0.2.12")) == ["192.0.2.9", "192.0.2.10", "192.0.2.11", "192.0.2.12"]
    assert list(addresses_of("2001:db8::1")) == ["2001:db8::1"]
    assert made(bind=["127.0.0.1", "127.0.1.0/31"]).addresses == ("127.0.0.1", "127.0.1.0", "127.0.1.1")


@pytest.mark.parametrize(
    ("given", "where", "what"),
    [
        ({"number": 0}, "number", "too small"),
        ({"settled": 100}, "settled", "leave no client to arrive"),
        ({"threads": 101}, "threads", "101 threads for 100 clients"),
        ({"warmup": "1s"}, "warmup", "no warm-up"),
        ({"rate": "10/2s"}, "rate", "for 20 arrivals, but 100 clients"),
        ({"attempt_timeout": "10ms"}, "attempt_timeout", "too small"),
        ({"duration": "5s", "renegotiate_at": ["6s"]}, "renegotiate_at", "after the end"),
        ({"expect": {"pools": ["10.8.0.1/24"]}}, "expect.pools.0", "is not a network"),
        ({"expect": {"dns": ["ns.example.org"]}}, "expect.dns.0", "is not an IP address"),
        ({"bind": ["192.0.2.300"]}, "bind.0", "is not an address, a network"),
        ({"bind": ["10.0.0.0/8"]}, "bind.0", "more than 65536 addresses"),
        ({"bind": ["192.0.2.9-2001:db8::1"]}, "bind.0", "a range FIRST-LAST"),
        ({"traffic": {"kind": "echo"}}, "traffic.rate", "need a rate"),
        ({"traffic": {"kind": "echo", "rate": "1/s", "packet": 50}}, "traffic.packet", "too small for an echo"),
        ({"traffic": {"kind": "tcp", "rate": "1mbit"}}, "traffic.rate", "its own rate and segments"),
        ({"traffic": {"kind": "http", "direction": "down"}}, "traffic.direction", "no direction"),
        ({"traffic": {"kind": "udp", "rate": "0/s"}}, "traffic.rate", "above 0"),
        ({"traffic": {"kind": "udp", "rate": "much"}}, "traffic.rate", "not a rate per second"),
        ({"traffic": {"kind": "udp", "rate": "2mbit", "packet": 0}}, "traffic.packet", "0 bytes is too small"),
        ({"traffic": {"kind": "http", "rate": "2mbit"}}, "traffic.rate", "write requests per second"),
        ({"traffic": {"kind": "http", "packet": 100}}, "traffic.packet", "no packet size"),
        ({"reconnect_at": ["soon"]}, "reconnect_at.0", "not a duration"),
        ({"reconnect_at": ["9999999999999h"]}, "reconnect_at.0", "too large; at most 86400000 ms (one day)"),
        ({"renegotiate_at": ["1s/25h"]}, "renegotiate_at.0", "too large; at most 86400000 ms (one day)"),
    ],
)
def test_impossible_value_is_refused_with_its_location(given: dict[str, Any], where: str, what: str) -> None:
    found, said = refusal(**given)
    assert found == where
    assert what in said
