"""What the servers and wires of the truths do, and what is read as true from their accounts; all in virtual time."""

from __future__ import annotations

import dataclasses
import json
import struct
import subprocess
from unittest import mock

import pytest

from leadline.errors import LeadlineError
from leadline.truths import http_server, link_meter, wire
from leadline.truths.http_truths import HttpSite, read_counts, read_latencies, read_stalls, read_starved
from leadline.truths.model import HttpLoad, NotDecided
from leadline.truths.network_truths import read_datagrams, read_goodput, read_link, read_round_trips
from leadline.truths.processes import read_account

STALLS = http_server.Behaviour(service_s=0.01, stall_every_s=2.0, stall_s=0.2)
LOAD = HttpLoad(connections=4, duration_s=4, rate_per_s=1000)


@pytest.mark.parametrize(
    ("arrived_s", "finish_s"),
    [(0.0, 0.01), (1.79, 1.80), (1.795, 2.005), (1.8, 2.01), (1.9, 2.01), (2.0, 2.01), (3.9, 4.01)],
)
def test_service_stands_still_during_stalls(arrived_s: float, finish_s: float) -> None:
    assert http_server.stalled_finish_s(STALLS, arrived_s) == pytest.approx(finish_s)


def test_capacity_spaces_the_answers() -> None:
    server = http_server.Server(http_server.Behaviour(capacity_per_s=100))
    assert [server.finish_s(5.0) for _ in range(3)] == pytest.approx([5.0, 5.01, 5.02])
    assert server.finish_s(9.0) == pytest.approx(9.0)


def test_true_latencies_of_stalls_are_those_of_due_requests() -> None:
    # A closed loop saw 10 ms in the middle; a tenth of what is due waits for the end of a stall.
    account = http_server.Account(took_s=[0.01] * 99 + [0.2])
    found = read_stalls(STALLS, account, LOAD)
    assert found["latency_p50_us"] == pytest.approx(10_000)
    assert found["latency_p99_us"] == pytest.approx(200_000, rel=0.01)
    assert found["latency_max_us"] == pytest.approx(210_000, rel=0.01)


def test_lateness_of_the_server_is_part_of_the_truth() -> None:
    account = http_server.Account(took_s=[0.012])
    assert read_stalls(STALLS, account, LOAD)["latency_p50_us"] == pytest.approx(12_000)


def test_true_rate_and_latencies_are_the_servers_own() -> None:
    account = http_server.Account(arrived_s=[1.0, 1.5], answered_s=[1.2, 2.0, 3.0], took_s=[0.2, 0.5, 0.1])
    found = read_latencies(account, LOAD)
    assert found["requests_per_s"] == pytest.approx(1.5)
    assert found["latency_p50_us"] == pytest.approx(200_000)
    assert found["latency_p99_us"] == pytest.approx(500_000)
    account.bad, account.cut, account.short = 3, 2, 1
    assert read_counts(account, LOAD) == {"requests": 3, "bad_statuses": 3, "failed": 3}


def test_answers_that_are_late_make_the_truth_uncertain() -> None:
    account = http_server.Account(arrived_s=[0.0], answered_s=[0.3], took_s=[0.3], late_s=[0.1])
    process = mock.Mock(communicate=lambda timeout: (json.dumps(dataclasses.asdict(account)), ""))
    site = HttpSite(80, LOAD, read_latencies, process)
    assert site.true_figures()["latency_p99_us"] == pytest.approx(300_000)
    assert site.uncertain["latency_p99_us"] == pytest.approx(100_000)


def test_generator_is_the_limit_while_it_has_most_requests() -> None:
    account = http_server.Account(arrived_s=[0.0], answered_s=[1.0] * 100, took_s=[0.01] * 100, late_s=[0.005] * 100)
    assert read_starved(account, HttpLoad(connections=4, duration_s=1))["limited_by"] == "generator"
    with pytest.raises(NotDecided, match="at the server for 75 % of their time"):
        read_starved(account, HttpLoad(connections=2, duration_s=1))


# --- The wire ---------------------------------------------------------------------------------------------------------


def ip_frame(protocol: int, transport: bytes) -> bytes:
    ethernet = bytes(12) + b"\x08\x00"
    ip = struct.pack("!BxHxxxxxBxx", 0x45, 20 + len(transport), protocol) + bytes(8)
    return bytes(10) + ethernet + ip + transport


def datagram(number: int, payload_bytes: int = 100) -> bytes:
    udp = struct.pack("!HHHxx", 40000, 5301, 8 + payload_bytes)
    return ip_frame(17, udp + bytes([number]) * payload_bytes)


def segment(source: int, destination: int, payload_bytes: int) -> bytes:
    tcp = struct.pack("!HHxxxxxxxxBx", source, destination, 5 << 4) + bytes(6)
    return ip_frame(6, tcp + bytes(payload_bytes))


def passed(behaviour: wire.Behaviour, numbers: range) -> tuple[list[int], wire.Account]:
    """The numbers of the datagrams that leave, and the account."""
    made = wire.Wire(behaviour)
    for number in numbers:
        made.take(datagram(number), wire.FAR, 0.0)
    left = [frame for _, frame in made.waiting[wire.FAR]]
    for frame in left:
        made.sent(frame, wire.FAR, 1.0)
    return [frame[-1] for frame in left], made.account


def test_wire_drops_doubles_and_swaps_by_number() -> None:
    dropped, account = passed(wire.Behaviour(payload_bytes=100, drop_every=3), range(1, 8))
    assert (dropped, account.dropped) == ([1, 2, 4, 5, 7], 2)
    doubled, account = passed(wire.Behaviour(payload_bytes=100, duplicate_every=3), range(1, 5))
    assert (doubled, account.duplicated) == ([1, 2, 3, 3, 4], 1)
    swapped, account = passed(wire.Behaviour(payload_bytes=100, swap_every=3), range(1, 6))
    assert (swapped, account.swapped) == ([1, 2, 4, 3, 5], 1)
    assert account.carried_bytes == 500
    assert read_datagrams(account) == {"sent": 5, "lost": 0, "duplicates": 0, "reordered": 1}


def test_wire_leaves_other_frames_alone() -> None:
    made = wire.Wire(wire.Behaviour(payload_bytes=100, drop_every=1, delay_s=0.5))
    for frame in (datagram(1, 99), segment(40000, 5301, 100)):
        made.take(frame, wire.FAR, 2.0)
    made.take(datagram(2), wire.NEAR, 2.0)
    assert [due_s for due_s, _ in made.waiting[wire.FAR]] == [2.5, 2.5]
    assert [due_s for due_s, _ in made.waiting[wire.NEAR]] == [2.5]
    assert made.account.datagrams == 0


def test_slow_wire_queues_without_an_end() -> None:
    made = wire.Wire(wire.Behaviour(payload_bytes=100, rate_bps=142 * 8))
    for number in range(3):
        made.take(datagram(number), wire.FAR, 10.0)
    assert [due_s for due_s, _ in made.waiting[wire.FAR]] == pytest.approx([11, 12, 13])


def test_round_trips_are_those_of_the_load() -> None:
    made = wire.Wire(wire.Behaviour())
    # A control connection, and three requests with answers after 20, 30 and 20 ms.
    made.take(segment(41000, 5301, 50), wire.FAR, 0.0)
    for at_s, took_s in ((1.0, 0.02), (2.0, 0.03), (3.0, 0.02)):
        made.take(segment(42000, 5301, 1), wire.FAR, at_s)
        made.sent(segment(42000, 5301, 1), wire.FAR, at_s + took_s / 2)
        made.sent(segment(5301, 42000, 1), wire.NEAR, at_s + took_s)
    # An acknowledgment without payload is none.
    made.take(segment(42000, 5301, 0), wire.FAR, 4.0)
    found = read_round_trips(made.account)
    assert found["transactions"] == 3
    assert found["latency_p50_us"] == pytest.approx(20_000)
    assert found["latency_p99_us"] == pytest.approx(30_000)


def test_goodput_begins_with_the_first_full_segment() -> None:
    # An introduction a second before the load.
    bulk = [(2.0 + number / 100, 2, 1448) for number in range(101)]
    account = wire.Account(streams={40000: [(1.0, 2, 40), *bulk]})
    assert read_goodput(account)["throughput_bps"] == pytest.approx(8 * 101 * 1448)


def test_load_that_the_wire_did_not_see_is_an_error() -> None:
    with pytest.raises(LeadlineError, match="saw no connection"):
        read_goodput(wire.Account())
    with pytest.raises(LeadlineError, match="saw no load"):
        read_goodput(wire.Account(streams={40000: [(1.0, 2, 40)]}))


# --- A link -----------------------------------------------------------------------------------------------------------


def metered(per_step_bytes: int) -> list[link_meter.Reading]:
    """Readings of 10 ms: a control connection, a second of nothing, then a load of a second, and a last word."""
    begin = [(0.0, 0, 0), (0.01, 200, 3)]
    load = [(1.0 + number / 100, 200 + number * per_step_bytes, 3 + number * 8) for number in range(1, 102)]
    return [*begin, *load, (5.0, load[-1][1] + 100, load[-1][2] + 1)]


def test_goodput_of_a_link_is_that_of_its_load() -> None:
    # Of 1,000 bytes in each packet 66 are headers.
    found = read_link(934, 66, 6_400_000, metered(8000))
    assert found["throughput_bps"] == pytest.approx(8 * 8 * 934 * 100)
    assert found["limited_by"] == "link"


def test_link_that_the_sender_left_idle_is_not_decided() -> None:
    with pytest.raises(NotDecided, match="the link was full for 64 % of the time"):
        read_link(934, 66, 10_000_000, metered(8000))


def test_link_without_a_load_is_an_error() -> None:
    with pytest.raises(LeadlineError, match="carried no load"):
        read_link(934, 66, 6_400_000, metered(8000)[:5])


def test_process_without_an_account_is_an_error() -> None:
    silent = mock.Mock(communicate=lambda timeout: ("", ""))
    with pytest.raises(LeadlineError, match="the server ended before the load"):
        read_account(silent, "the server")
    slow = mock.Mock(communicate=mock.Mock(side_effect=subprocess.TimeoutExpired("x", 1)))
    with pytest.raises(LeadlineError, match="the server did not end"):
        read_account(slow, "the server")
