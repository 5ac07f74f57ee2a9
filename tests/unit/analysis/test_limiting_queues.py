"""Queues that were full, as the limit of a test: where they drop a share of the packets, or are never empty."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_journals import EPOCH_NS, S, load, observation, steady_test, thread

from leadline.analysis import TestData, analyse_test
from leadline.analysis.model import Bound, LimitedBy, Verdict

PACKETS_PER_S = 10_000


def with_queue(
    host: str,
    kind: str,
    dropped_per_s: int,
    *,
    backlog: int = 0,
    in_lab: bool = True,
    sent_bytes: int = 1_000_000,
    data: TestData | None = None,
) -> TestData:
    """A test with a queue in front of the interface `wan` of a host, beside an interface with another load."""
    data = data or steady_test()
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


def flood(generator: float = 0.99, receiver: float = 0.3, lost: int = 9_950) -> TestData:
    """Datagrams as fast as the generator can send them, of which most are lost."""
    own, far = load(thread(generator)), load(thread(receiver), side="peer")
    return steady_test("udp", received=10_000 - lost, generator=own, receiver=far)


@pytest.mark.parametrize(
    ("host", "kind", "in_lab", "by"),
    [
        ("client1", "tbf", False, LimitedBy.LINK),
        ("client1", "tbf", True, LimitedBy.LINK),
        ("gateway", "fq_codel", True, LimitedBy.GATEWAY),
        ("gateway", "tbf", False, LimitedBy.GATEWAY),
    ],
)
@pytest.mark.parametrize("ends", [(0.99, 0.3), (0.6, 0.99)])
def test_full_queue_comes_before_busy_ends_and_its_rate_is_no_bound(
    host: str, kind: str, in_lab: bool, by: LimitedBy, ends: tuple[float, float]
) -> None:
    """As of a flood into a shaper, which drops 99.5 %."""
    busy = analyse_test(flood(*ends))
    assert busy.limit is not None and busy.limit.by in (LimitedBy.GENERATOR, LimitedBy.ANSWERING_SIDE)
    assert busy.metrics["throughput_bps"].side is Bound.LEAST
    found = analyse_test(with_queue(host, kind, 199 * PACKETS_PER_S, in_lab=in_lab, data=flood(*ends)))
    assert found.limit is not None and found.limit.by is by
    assert "dropped 99.5 % of the packets to send: it was full" in found.limit.evidence
    rate = found.metrics["throughput_bps"]
    assert (rate.side, rate.verdict) == (None, Verdict.VALID)


@pytest.mark.parametrize(
    ("dropped_per_s", "backlog", "by"),
    [
        (PACKETS_PER_S // 50, 0, LimitedBy.GENERATOR),
        (PACKETS_PER_S // 50, 1, LimitedBy.LINK),
        (PACKETS_PER_S // 4, 0, LimitedBy.LINK),
    ],
)
def test_bursts_of_a_busy_generator_fill_no_queue(dropped_per_s: int, backlog: int, by: LimitedBy) -> None:
    """It drops 2 % and is empty most of the time: a faster generator would bring more through."""
    data = with_queue("client1", "tbf", dropped_per_s, backlog=backlog, data=flood())
    found = analyse_test(data)
    assert found.limit is not None and found.limit.by is by
    is_bound = found.metrics["throughput_bps"].side is Bound.LEAST
    assert is_bound == (by is LimitedBy.GENERATOR)


def with_shaper(
    host: str = "client1", kind: str = "tbf", *, held: float = 1.0, uneven: float = 0.0, direction: str = "up"
) -> TestData:
    """TCP into a shaper of 50 Mbit/s on an interface of a given host, sampled ten times a second, without drops."""
    data = steady_test(generator=load(thread(0.99)))
    data.spec = replace(data.spec, direction=direction)
    for step in range(-10, 120):
        sent = round(625_000 * (step + 10 + uneven * (step % 2)))
        event = observation(EPOCH_NS + step * S // 10, interfaces={"wan": (0, sent)})
        backlog = 100_000 if step % 100 < 100 * held else 0
        row = {"packets": 400 * (step + 10), "drops": 0, "overlimits": 0, "backlog_bytes": backlog}
        event["network"]["queues"] = [{"name": "wan", "kind": kind, **row}]
        data.add(host, event)
    return data


@pytest.mark.parametrize("kind", ["tbf", "htb"])
def test_shaper_of_the_senders_interface_is_named_with_its_rate(kind: str) -> None:
    found = analyse_test(with_shaper(kind=kind))
    assert found.limit is not None and found.limit.by is LimitedBy.LINK
    text = f"the shaper ({kind}) of wan on client1 held packets 100 % of the time, and let out 50.0 Mbit/s"
    assert found.limit.evidence == text
    assert found.metrics["throughput_bps"].side is None


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(with_shaper(held=0.6), id="it was empty"),
        pytest.param(with_shaper(uneven=0.5), id="packets left it unevenly, as delayed ones do"),
        pytest.param(with_shaper(kind="fq"), id="no shaper"),
        pytest.param(with_shaper(host="server"), id="the receiver's"),
    ],
)
def test_queue_that_is_no_full_shaper_of_the_sender(data: TestData) -> None:
    assert limit(data)[0] is LimitedBy.GENERATOR
