"""The time in which idle CPUs wake up, beside the latencies that it dominates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_journals import EPOCH_NS, MadeRun, S, facts, finished, flow, histogram, load, outcome, steady_test

from leadline.analysis import TestData, analyse, analyse_test
from leadline.analysis.wake_ups import CODE

FOUND = {
    "samples": 200,
    "timer_p50_us": 50.0,
    "timer_p99_us": 80.0,
    "thread_p50_us": 43.0,
    "thread_p99_us": 70.0,
    "cpus": [0, 1],
}


def with_latency(p50_us: float, *hosts: str, kind: str = "rr", **changes: Any) -> TestData:
    """A test whose latencies are all the same, with wake-ups of 43 us measured on `hosts`."""
    data = steady_test(kind, histograms=[histogram("latency", [round(p50_us * 1000)] * 1000)], **changes)
    data.facts = {host: facts(wake_up=FOUND) for host in hosts}
    return data


def texts_of(data: TestData) -> list[str]:
    return [note.text for note in analyse_test(data).validity.notes if note.code == CODE]


def test_wake_ups_that_dominate_a_latency_are_noted_with_figures() -> None:
    (text,) = texts_of(with_latency(129, "client1", "server"))
    assert "43.0 µs on server, 43.0 µs on client1" in text
    assert "86.0 µs per operation" in text
    assert "67 % of the p50 of 129 µs" in text


def test_latency_below_the_wake_ups_shows_that_cpus_were_awake() -> None:
    (text,) = texts_of(with_latency(38, "client1", "server"))
    assert "the p50 of 38.0 µs is less" in text


@pytest.mark.parametrize(
    ("cpus", "words"),
    [(2, "43.0 µs on client1, where both ends are, to wake up"), (4, "43.0 µs on client1 to wake up")],
)
def test_server_on_the_clients_machine_wakes_up_there_too(cpus: int, words: str) -> None:
    """A responder without an agent. Ends on one machine read as many CPUs, equally busy."""
    moved = {"sent_bytes": 0, "received_bytes": 0, "sent_units": 10_000, "received_units": 10_000}
    here, there = ({"cpus": number, "wall_s": 10.0, "busy_s": 8.0, **moved} for number in (2, cpus))
    data = with_latency(129, "client1", generator=load(machine=here), receiver=load(side="peer", machine=there))
    (text,) = texts_of(data)
    assert words in text


@pytest.mark.parametrize(("p50_us", "hosts"), [(500, ("client1", "server")), (250, ("client1",)), (129, ())])
def test_wake_ups_that_matter_little_or_are_unknown_have_no_note(p50_us: float, hosts: tuple[str, ...]) -> None:
    assert texts_of(with_latency(p50_us, *hosts)) == []


def test_note_changes_no_verdict_and_the_figures_are_in_the_result() -> None:
    result = analyse_test(with_latency(129, "client1", "server"))
    assert result.validity.verdict.value == "valid"
    assert result.wake_ups["server"].thread_p50_us == 43.0
    assert set(result.wake_ups) == {"client1", "server"}


@pytest.mark.parametrize(("direction", "receiver"), [("up", "server"), ("down", "client1")])
def test_one_way_latency_contains_one_wake_up_of_the_receiver(direction: str, receiver: str) -> None:
    data = steady_test("udp")
    report = flow(0, EPOCH_NS, EPOCH_NS + 10 * S, latency_mean_us=100.0, direction=direction, lost=0, sent_units=10_000)
    data.outcomes.clear()
    data.add("client1", finished(EPOCH_NS + 10 * S, outcome([{**report, "received_units": 10_000}])))
    data.spec = replace(data.spec, direction=direction)
    data.facts = {host: facts(wake_up=FOUND) for host in ("client1", "server")}
    (text,) = texts_of(data)
    assert f"43.0 µs on {receiver} to wake up" in text
    assert "43 % of the mean one-way latency of 100 µs" in text


def test_measurement_in_a_journal_is_a_fact_of_its_hosts() -> None:
    made = MadeRun()
    made.begin()
    made.begin_trial("c01/1")
    made.record("wake-up", hosts=["client1", "server"], found=FOUND)
    made.record("wake-up", hosts=["gateway"], found=None)
    made.test("c01/1", 1e6)
    made.end_trial("c01/1")
    made.end()
    found = analyse({}, made.entries)
    assert found.hosts["server"]["wake_up"] == FOUND
    assert found.hosts["gateway"]["wake_up"] is None
    assert set(found.trials[0].tests[0].wake_ups) == {"client1", "server"}


@pytest.mark.parametrize(("held", "codes"), [(False, ["idle-poll-refused"]), (True, [])])
def test_run_whose_cpus_sleep_against_its_plan_says_so(held: bool, codes: list[str]) -> None:
    made = MadeRun()
    made.begin()
    made.begin_trial("c01/1")
    hosts = {"client1": [0, 2], "gateway": [1], "server": [0, 2]}
    polling = {"held": held, "reason": None if held else "/dev/cpu_dma_latency: Permission denied"}
    made.record("lab-cpus", trial="c01/1", hosts=list(hosts), cpus=hosts, idle_poll=polling)
    made.test("c01/1", 1e6)
    made.end_trial("c01/1")
    made.end()
    found = analyse({}, made.entries)
    assert [note.code for note in found.notes if note.code == "idle-poll-refused"] == codes
    assert any("share its 3 CPUs" in note.text for note in found.notes), "each host may use some of them alone"
