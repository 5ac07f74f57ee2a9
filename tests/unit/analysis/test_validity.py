"""The verdict table of the design, case by case, with the thresholds' edges; notes change no verdict."""

from __future__ import annotations

from typing import Any

import pytest
from made_journals import (
    EPOCH_NS,
    MS,
    S,
    counters,
    facts,
    finished,
    flow,
    histogram,
    load,
    observation,
    outcome,
    progress,
    steady_flow_events,
    steady_test,
    test_data,
    thread,
)

from leadline.analysis import TestData, analyse_test
from leadline.analysis.model import ClientBringUp, Validity, Verdict

END_NS = EPOCH_NS + 10 * S


def verdict(data: TestData) -> tuple[str, list[str]]:
    validity: Validity = analyse_test(data).validity
    return validity.verdict.value, [reason.code for reason in validity.reasons]


@pytest.mark.parametrize("kind", ["tcp", "udp", "rr", "http"])
def test_nothing_wrong_is_valid(kind: str) -> None:
    assert verdict(steady_test(kind)) == ("valid", [])


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (thread(0.949), ("valid", [])),
        (thread(0.951), ("generator-limited", ["thread-saturated"])),
        (thread(0.5, 0.47), ("valid", [])),
        (thread(0.5, 0.49), ("generator-limited", ["thread-starved"])),
        (thread(0.5, None), ("valid", [])),
        (thread(0.0, 0.0, wall_s=0.0), ("valid", [])),
    ],
)
def test_a_generating_thread_with_nothing_to_spare(made: dict[str, Any], expected: tuple[str, list[str]]) -> None:
    assert verdict(steady_test("tcp", generator=load(thread(0.1), made))) == expected


@pytest.mark.parametrize("kind", ["tcp", "udp", "rr"])
def test_the_answering_side_with_nothing_to_spare(kind: str) -> None:
    assert verdict(steady_test(kind, receiver=load(thread(0.97), side="peer"))) == (
        "receiver-limited",
        ["thread-saturated"],
    )


def test_drops_at_the_receivers_socket_are_the_receivers() -> None:
    receiver = load(side="peer", socket_drops=3)
    assert verdict(steady_test("udp", receiver=receiver)) == ("receiver-limited", ["receiver-socket-drops"])


def test_where_payload_comes_down_the_far_side_generates() -> None:
    for far, near, expected in ((0.97, 0.5, "generator-limited"), (0.5, 0.97, "receiver-limited")):
        data = test_data(direction="down")
        report, events = steady_flow_events(0, EPOCH_NS, END_NS, 1e6, direction="down")
        for event in events:
            data.add("client1", event | {"side": "local"})
        made = outcome([report], generator=load(thread(near)), receiver=load(thread(far), side="peer"))
        data.add("client1", finished(END_NS, made))
        assert verdict(data) == (expected, ["thread-saturated"])


def paced(late_ns: int, gap_s: float = 0.001, **counts: int) -> TestData:
    data = steady_test("udp", histograms=[histogram("late", [late_ns] * 100)], counts=counts)
    spec = {"name": "t", "kind": "udp", "duration_ms": 10_000, "interval_ms": 100, "rate_pps": 1 / gap_s}
    data.spec = type(data.spec).read(spec)
    return data


def test_sends_may_be_late_by_a_millisecond_or_a_tenth_of_the_gap() -> None:
    assert verdict(paced(900_000)) == ("valid", [])
    assert verdict(paced(1_100_000)) == ("generator-limited", ["sends-late"])
    assert verdict(paced(9_000_000, gap_s=0.1)) == ("valid", [])
    assert verdict(paced(11_000_000, gap_s=0.1)) == ("generator-limited", ["sends-late"])


def test_unsent_operations_are_the_generators_beyond_those_of_the_last_moment() -> None:
    # One flow, a datagram each ms: what fell due in the last ms, and one under way, may be left over.
    assert verdict(paced(1000, unsent=2)) == ("valid", [])
    assert verdict(paced(1000, unsent=3)) == ("generator-limited", ["unsent"])
    assert verdict(steady_test("udp", counts={"unsent": 3})) == ("valid", [])


def test_where_the_far_side_paced_its_lateness_counts() -> None:
    data = steady_test("udp", receiver=load(side="peer", late_p99_us=1500.0))
    data.spec = type(data.spec).read({"name": "t", "kind": "udp", "direction": "up", "rate_pps": 1000.0})
    assert verdict(data) == ("generator-limited", ["sends-late"])


def test_pushback_counts_from_one_send_in_a_hundred() -> None:
    assert verdict(steady_test("udp", generator=load(pushback=100))) == ("valid", [])
    assert verdict(steady_test("udp", generator=load(pushback=110))) == ("generator-limited", ["pushback"])
    assert verdict(steady_test("tcp", generator=load(pushback=10**6))) == ("valid", [])


@pytest.mark.parametrize(("service_ns", "expected"), [(95_000_000, "valid"), (5_000_000, "generator-limited")])
def test_an_open_loop_out_of_connections_is_not_the_generators_fault(service_ns: int, expected: str) -> None:
    # 10,000 requests in 10 s over 100 connections: at 95 ms each they are in use 95 % of the time.
    made = [histogram("late", [50_000_000] * 100), histogram("service", [service_ns] * 10_000)]
    data = steady_test("http", histograms=made, counts={"unsent": 4}, receiver=None)
    spec = {"name": "t", "kind": "http", "duration_ms": 10_000, "rate_per_s": 1000.0, "connections": 100}
    data.spec = type(data.spec).read(spec)
    found, codes = verdict(data)
    assert found == expected
    assert codes == (["connections-busy"] if expected == "valid" else ["sends-late", "unsent"])


def steps(rates: list[float], kind: str = "tcp", limit: float = 0.1) -> TestData:
    """A test whose rate is one of `rates` in each part of its 10 s."""
    data = test_data(kind)
    data.stability_spread = limit
    moved, part_ns = 0.0, 10 * S // len(rates)
    for index, rate in enumerate(rates):
        moved += rate
        row = counters(0, int(moved), int(moved), sent_units=int(moved), received_units=int(moved))
        data.add("client1", progress(EPOCH_NS + (index + 1) * part_ns, [row], side="peer"))
        data.add("client1", progress(EPOCH_NS + (index + 1) * part_ns, [row], side="local"))
    total = int(moved)
    report = flow(0, EPOCH_NS, END_NS, sent_bytes=total, received_bytes=total, sent_units=total, received_units=total)
    data.add("client1", finished(END_NS, outcome([report])))
    return data


def test_intervals_that_disagree() -> None:
    assert verdict(steps([1e6, 1.1e6] * 5)) == ("valid", [])
    assert verdict(steps([1e6, 1.5e6] * 5)) == ("unstable", ["intervals-disagree"])
    assert verdict(steps([1e6, 1.5e6] * 5, limit=0.5)) == ("valid", [])


def test_a_change_point_inside_the_window() -> None:
    assert verdict(steps([0.94e6] * 5 + [1.06e6] * 5)) == ("unstable", ["change-point"])
    assert verdict(steps([0.97e6] * 5 + [1.03e6] * 5)) == ("valid", [])
    both = verdict(steps([1e6] * 5 + [2e6] * 5))
    assert both == ("unstable", ["intervals-disagree", "change-point"])


def test_few_operations_scatter_by_chance_alone() -> None:
    scatter = [20, 25, 17, 22, 15, 24, 18, 21, 16, 23]
    assert verdict(steps([float(count) for count in scatter], kind="rr"))[0] == "valid"
    assert verdict(steps([100.0 * count for count in scatter], kind="rr"))[0] == "unstable"


def test_totals_without_intervals_prove_no_steadiness_and_no_change() -> None:
    data = test_data()
    data.add("client1", finished(END_NS, outcome([flow(0, EPOCH_NS, END_NS, received_bytes=1000)])))
    assert verdict(data) == ("valid", ["counters-missing"])


def test_clients_that_are_missing_or_partly_configured() -> None:
    data = steady_test()
    data.bring_up = ClientBringUp(3, 2, 0, 0.1, 0.2)
    assert verdict(data) == ("incomplete", ["clients-missing"])
    data.bring_up = ClientBringUp(5, 0, 0, 0.1, 0.2)
    assert verdict(data) == ("valid", [])


def test_hosts_without_figures() -> None:
    data = steady_test()
    data.hosts = ("client1", "client2")
    assert verdict(data) == ("incomplete", ["hosts-without-figures"])


def test_flows_that_never_moved_a_byte() -> None:
    data = test_data(flows=2)
    report, events = steady_flow_events(0, EPOCH_NS, END_NS, 1e6)
    for event in events:
        data.add("client1", event)
    data.add("client1", finished(END_NS, outcome([report, flow(1, None, None)])))
    assert verdict(data) == ("incomplete", ["flows-not-started"])
    assert analyse_test(data).metrics["received_bytes"].value == 10e6


@pytest.mark.parametrize(
    ("end_s", "number", "expected"), [(4, None, "incomplete"), (6, None, "valid"), (4, 10, "valid")]
)
def test_windows_under_half_of_what_was_planned(end_s: int, number: int | None, expected: str) -> None:
    data = test_data(number=number)
    end_ns = EPOCH_NS + end_s * S
    report, events = steady_flow_events(0, EPOCH_NS, end_ns, 1e6)
    for event in events:
        data.add("client1", event)
    data.add("client1", finished(end_ns, outcome([report])))
    found, codes = verdict(data)
    assert found == expected
    assert codes == (["window-too-short"] if expected == "incomplete" else [])


def test_interrupted_tests_are_incomplete_and_say_why() -> None:
    data = test_data()
    _, events = steady_flow_events(0, EPOCH_NS, END_NS, 1e6)
    for event in events[:40]:
        data.add("client1", event)
    data.status, data.error = "interrupted", "Ctrl-C"
    result = analyse_test(data)
    assert result.metrics["throughput_bps"].value == pytest.approx(8e6)
    assert result.validity.verdict is Verdict.INCOMPLETE
    assert "Ctrl-C" in result.validity.reasons[0].text


def test_missing_evidence_is_undetermined() -> None:
    assert verdict(steady_test("tcp", generator=load() | {"threads": []})) == (
        "undetermined",
        ["no-generator-figures"],
    )
    assert verdict(steady_test("rr", receiver=None)) == ("undetermined", ["no-receiver-figures"])
    assert verdict(steady_test("http", receiver=None)) == ("valid", [])


def test_the_worst_verdict_wins_and_every_reason_is_kept() -> None:
    data = steady_test("udp", generator=load(thread(0.99)), receiver=load(thread(0.99), side="peer"))
    data.bring_up = ClientBringUp(1, 0, 1, None, None)
    found, codes = verdict(data)
    assert found == "incomplete"
    assert codes == ["clients-missing", "thread-saturated", "thread-saturated"]


def test_hosts_of_one_machine_are_noted_with_its_use() -> None:
    data = steady_test()
    data.facts = {"client1": facts(), "gateway": facts(), "server": facts()}
    for step in range(12):
        cpu_s = {"user": 0.5 * step, "system": 1.0 * step, "idle": 0.5 * step}
        data.add("gateway", observation(EPOCH_NS + step * S, cpu_s))
    result = analyse_test(data)
    assert result.validity.verdict is Verdict.VALID
    assert [reason.code for reason in result.validity.reasons] == ["shared-cpus"]
    assert "3 hosts" in result.validity.reasons[0].text
    assert "2 CPUs, which were 75 % busy" in result.validity.reasons[0].text


def test_clocks_of_several_machines_that_are_loosely_known() -> None:
    data = steady_test()
    data.facts = {"client1": facts("a"), "server": facts("b")}
    data.clock_bounds_ns = {"client1": 1000, "server": 2 * MS}
    assert verdict(data) == ("valid", ["unsynchronised-clock"])
    data.facts = {"client1": facts("a"), "server": facts("a")}
    assert verdict(data) == ("valid", ["shared-cpus"])
