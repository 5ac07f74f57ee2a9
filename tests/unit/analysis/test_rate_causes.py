"""A rate that is not known well enough: its reason names what the hosts' figures show beside it."""

from __future__ import annotations

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
    test_data,
    thread,
)

from leadline.analysis import TestData, analyse_test

WAKE_UP = {"samples": 200, "timer_p50_us": 50.0, "timer_p99_us": 80.0, "thread_p50_us": 43.0, "thread_p99_us": 70.0}


def uneven(waited: float = 0.0, busy: float = 0.5, wake_up: bool = False) -> TestData:
    """Request-response whose rate goes up and down each second. `waited` is the share of time that its thread waited
    for a CPU, `busy` that of the two CPUs which all hosts share."""
    data = test_data("rr", duration_ms=10_000)
    answered = 0
    for step in range(100):
        answered += (1000, 2500)[step // 10 % 2]
        row = counters(0, answered, answered, sent_units=answered, received_units=answered)
        data.add("client1", progress(EPOCH_NS + (step + 1) * 100 * MS, [row], side="local"))
    end_ns = EPOCH_NS + 10 * S
    units = {"sent_units": answered, "received_units": answered}
    report = flow(0, EPOCH_NS, end_ns, sent_bytes=answered, received_bytes=answered, **units)
    times = [histogram("latency", [100_000] * 1000)]
    made = outcome([report], histograms=times, generator=load(thread(0.3, waited)), receiver=load(side="peer"))
    data.add("client1", finished(end_ns, made))
    data.facts = {name: facts(wake_up=WAKE_UP if wake_up else None) for name in ("client1", "gateway", "server")}
    for second in range(12):
        used = {"user": 2 * busy * second, "idle": 2 * (1 - busy) * second}
        data.add("gateway", observation(EPOCH_NS + second * S, used))
    return data


def reason(data: TestData) -> str:
    (found,) = [one for one in analyse_test(data).validity.reasons if one.code == "intervals-disagree"]
    return found.text


def test_what_was_looked_at_is_named_where_it_is_too_small() -> None:
    """Each with its figure; none of them is called a cause."""
    text = reason(uneven(waited=0.02))
    looked_at = "a thread of client1 waited for a CPU 2 % of the time, 3 hosts share 2 CPUs, which were 50 % busy"
    assert text.endswith(f"; too small to move it: {looked_at}")
    assert "what may move it" not in text


def test_missing_evidence_is_said_to_be_missing() -> None:
    data = uneven()
    data.samples.clear()
    outcome = data.outcomes[0].outcome
    for row in (outcome["generator"], outcome["receiver"]):
        assert row is not None
        for one in row["threads"]:
            one["runnable_wait_s"] = None
    assert reason(data).endswith("; nothing was observed that shows what moves it")


def test_cpus_that_poll_do_not_wake_up() -> None:
    data = uneven(wake_up=True)
    data.facts = {name: {**known, "idle_poll": {"held": True, "reason": None}} for name, known in data.facts.items()}
    assert "what may move it" not in reason(data)


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (uneven(waited=0.24), "a thread of client1 waited for a CPU 24 % of the time"),
        (uneven(busy=0.9), "3 hosts share 2 CPUs, which were 90 % busy"),
        (uneven(wake_up=True), "idle CPUs take 86.0 µs per operation to wake up, 86 % of the p50 of 100 µs"),
    ],
)
def test_cause_is_named_with_its_figure(data: TestData, cause: str) -> None:
    assert reason(data).endswith(f"; what may move it: {cause}")


def test_several_causes_stand_in_one_clause() -> None:
    text = reason(uneven(waited=0.06, busy=0.85, wake_up=True))
    assert text.count("what may move it") == 1
    assert all(part in text for part in ("waited for a CPU 6 %", "85 % busy", "to wake up"))
