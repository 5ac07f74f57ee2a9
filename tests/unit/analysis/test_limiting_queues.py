"""Queues that were full, as the limit of a test: where they drop a share of the packets, or are never empty."""

from __future__ import annotations

import pytest
from made_journals import EPOCH_NS, S, observation, steady_test

from leadline.analysis import TestData, analyse_test
from leadline.analysis.model import LimitedBy

PACKETS_PER_S = 10_000


def with_queue(
    host: str, kind: str, dropped_per_s: int, *, backlog: int = 0, in_lab: bool = True, sent_bytes: int = 1_000_000
) -> TestData:
    """A test with a queue in front of the interface `wan` of a host, beside an interface with another load."""
    data = steady_test()
    data.in_lab, data.link_bps = in_lab, 1e9 if in_lab else None
    for second in range(-1, 13):
        past = second + 2
        sent = {"wan": (0, sent_bytes * past), "other": (0, 1_000_000 * past)}
        event = observation(EPOCH_NS + second * S, interfaces=sent)
        row = {"packets": PACKETS_PER_S * past, "drops": 7 + dropped_per_s * past, "overlimits": 0}
        event["network"]["queues"] = [{"name": "wan", "kind": kind, "backlog_bytes": backlog, **row}]
        data.add(host, event)
    return data


def limit(data: TestData) -> tuple[LimitedBy, str]:
    found = analyse_test(data).limit
    assert found is not None
    return found.by, found.evidence


def step(data: TestData) -> str:
    """What to do about the limit."""
    found = analyse_test(data).limit
    assert found is not None
    return found.next_step


@pytest.mark.parametrize(
    ("host", "kind", "in_lab", "by"),
    [
        ("gateway", "tbf", True, LimitedBy.LINK),
        ("client1", "tbf", True, LimitedBy.LINK),
        ("gateway", "fq_codel", True, LimitedBy.GATEWAY),
        ("gateway", "tbf", False, LimitedBy.GATEWAY),
        ("server", "fq_codel", False, LimitedBy.LINK),
        ("server", "fq_codel", True, LimitedBy.UNKNOWN),
    ],
)
def test_queue_that_drops_a_share_of_the_packets(host: str, kind: str, in_lab: bool, by: LimitedBy) -> None:
    found, text = limit(with_queue(host, kind, PACKETS_PER_S // 19, in_lab=in_lab))
    assert found is by
    if by is not LimitedBy.UNKNOWN:
        assert text == f"the queue ({kind}) of wan on {host} dropped 5.0 % of the packets to send: it was full"


def test_shaper_in_a_lab_whose_links_have_no_rate_is_the_gateways_own() -> None:
    data = with_queue("gateway", "tbf", PACKETS_PER_S // 19)
    data.link_bps = None
    assert limit(data)[0] is LimitedBy.GATEWAY
    assert step(data).startswith("look first at the queue of wan on gateway")


@pytest.mark.parametrize(
    ("kind", "backlog", "dropped_per_s", "by"),
    [
        ("tbf", 1, 9, LimitedBy.LINK),
        ("tbf", 0, 9, LimitedBy.UNKNOWN),
        ("tbf", 1, 0, LimitedBy.UNKNOWN),
        ("netem", 1, 9, LimitedBy.UNKNOWN),
    ],
)
def test_queue_that_is_never_empty_and_drops_a_little(
    kind: str, backlog: int, dropped_per_s: int, by: LimitedBy
) -> None:
    found, text = limit(with_queue("gateway", kind, dropped_per_s, backlog=backlog))
    assert found is by
    if by is LimitedBy.LINK:
        assert text.startswith("the queue (tbf) of wan on gateway held packets 100 % of the time and dropped ")


def test_queue_of_an_interface_that_carries_no_load_is_no_limit() -> None:
    assert limit(with_queue("gateway", "tbf", PACKETS_PER_S, sent_bytes=1000))[0] is LimitedBy.UNKNOWN


def test_host_without_queues_has_no_such_limit() -> None:
    data = steady_test()
    for second in range(-1, 13):
        data.add("gateway", observation(EPOCH_NS + second * S))
    assert limit(data)[0] is LimitedBy.UNKNOWN


@pytest.mark.parametrize(
    ("host", "dropped", "system", "by"),
    [
        ("gateway", 200, ("openvpn",), LimitedBy.GATEWAY),
        ("client1", 200, ("openvpn",), LimitedBy.GATEWAY),
        ("gateway", 20, ("openvpn",), LimitedBy.UNKNOWN),
        ("gateway", 200, (), LimitedBy.UNKNOWN),
        ("server", 200, ("openvpn",), LimitedBy.UNKNOWN),
    ],
)
def test_tunnel_whose_socket_is_not_read_in_time(
    host: str, dropped: int, system: tuple[str, ...], by: LimitedBy
) -> None:
    data = steady_test()
    data.sut_processes = system
    for second in range(-1, 13):
        event = observation(EPOCH_NS + second * S)
        counts = {"in_datagrams": 9_800 * (second + 2), "receive_buffer_errors": dropped * (second + 2)}
        event["network"]["udp"] = {**counts, "out_datagrams": 0, "no_ports": 0, "in_errors": 0, "send_buffer_errors": 0}
        data.add(host, event)
    found, text = limit(data)
    assert found is by
    if by is LimitedBy.GATEWAY:
        assert text.startswith(f"sockets on {host} dropped 2.0 % of the datagrams that arrived (2,")
        assert step(data).startswith(f"look first at the tunnel's socket on {host}")
