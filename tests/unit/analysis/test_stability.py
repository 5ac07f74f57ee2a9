"""Rates that are known well enough, that are not, and that are too short to tell: good tests are not doubted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from made_journals import (
    EPOCH_NS,
    MS,
    S,
    counters,
    finished,
    flow,
    load,
    outcome,
    progress,
    steady_test,
    test_data,
)

from leadline.analysis import TestData, TestSpec, analyse_test
from leadline.analysis.model import Metric, Verdict
from leadline.analysis.repeats import summarise
from synthetic import ar1

END_NS = EPOCH_NS + 10 * S
LOOKED_AT = "; too small to move it: a thread of client1 waited for a CPU 0 % of the time"


def verdict(data: TestData) -> tuple[str, list[str]]:
    validity = analyse_test(data).validity
    return validity.verdict.value, [reason.code for reason in (*validity.reasons, *validity.notes)]


def steps(rates: list[float], kind: str = "tcp", limit: float = 0.1, length_s: float = 10) -> TestData:
    """A test whose rate, per second, is one of `rates` in each part of its length; its counters are read every
    100 ms."""
    data = test_data(kind, duration_ms=round(length_s * 1000))
    data.stability_spread = limit
    intervals, moved = round(10 * length_s), 0.0
    for step in range(intervals):
        moved += rates[step * len(rates) // intervals] / 10
        row = counters(0, int(moved), int(moved), sent_units=int(moved), received_units=int(moved))
        data.add("client1", progress(EPOCH_NS + (step + 1) * 100 * MS, [row], side="peer"))
        data.add("client1", progress(EPOCH_NS + (step + 1) * 100 * MS, [row], side="local"))
    total, end_ns = int(moved), EPOCH_NS + round(length_s * S)
    report = flow(0, EPOCH_NS, end_ns, sent_bytes=total, received_bytes=total, sent_units=total, received_units=total)
    data.add("client1", finished(end_ns, outcome([report])))
    return data


def texts(data: TestData) -> list[str]:
    """The words of the reasons against a test, without what each says of possible causes."""
    found = [reason.text for reason in analyse_test(data).validity.reasons]
    assert all(text.endswith(LOOKED_AT) for text in found), found
    return [text.removesuffix(LOOKED_AT) for text in found]


def test_parts_that_differ_leave_the_rate_uncertain() -> None:
    """A rate that goes up and down each second."""
    assert verdict(steps([1e6, 1.1e6] * 5)) == ("valid", [])
    assert verdict(steps([1e6, 2.5e6] * 5)) == ("unstable", ["intervals-disagree"])
    assert verdict(steps([1e6, 2.5e6] * 5, limit=0.8)) == ("valid", [])


def test_longer_test_of_the_same_rate_is_more_precise() -> None:
    """Precision counts, not dispersion: 10 s of this rate are too short, 60 s are not."""
    assert verdict(steps([1e6, 1.6e6] * 5))[0] == "unstable"
    assert verdict(steps([1e6, 1.6e6] * 30, length_s=60)) == ("valid", [])


@pytest.mark.parametrize("length_s", [1.0, 2.0, 3.0, 10.0])
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_good_short_test_is_not_doubted(length_s: float, noise: float) -> None:
    generator = np.random.default_rng(round(length_s))
    rates = 1e6 * (1 + noise * generator.standard_normal(round(10 * length_s)))
    assert verdict(steps(rates.tolist(), length_s=length_s)) == ("valid", [])


def test_test_that_is_too_short_to_tell_is_undetermined() -> None:
    """900 ms whose rate falls a hundredfold midway."""
    found = steps([1e6] * 5 + [1e4] * 4, length_s=0.9)
    assert verdict(found) == ("undetermined", ["precision-unknown"])
    assert texts(found) == [
        "the rate is not known well enough: 9 intervals are too few: 10 are needed; "
        "parts of the window lie -98.2 % to +78.6 % from its mean; a window of 2 s shows how uneven it is"
    ]
    assert verdict(steps([1e6, 1.05e6] * 4, length_s=0.8)) == ("valid", [])


def test_doubt_says_how_long_a_test_has_to_be() -> None:
    """3 s of noise of 40 % leave ±15.7 %; what wanders through its whole window gives no length."""
    noise = np.random.default_rng(2).standard_normal(30)
    [text] = texts(steps((1e6 * (1 + 0.4 * noise)).tolist(), length_s=3))
    assert text.endswith("the limit is 10.0 %; as uneven as it is, that takes a window of about 12 s"), text
    [text] = texts(steps([1e6 * (1 + (step - 15) ** 2 / 50) for step in range(30)], length_s=3))
    assert text.endswith("it is so uneven, or changes so slowly, that what moves it has to be found first"), text


def test_rate_that_moves_to_another_level_inside_the_window() -> None:
    assert verdict(steps([0.94e6] * 5 + [1.06e6] * 5)) == ("unstable", ["change-point"])
    assert verdict(steps([0.97e6] * 5 + [1.03e6] * 5)) == ("valid", [])
    assert texts(steps([1e6] * 4 + [0.4e6] * 6)) == ["the rate falls by 60.0 % near 4 s; the limit is 10.0 %"]
    assert texts(steps([1e6] * 5 + [0.0] * 5)) == ["the rate falls by 100.0 % near 5 s; the limit is 10.0 %"]


def test_outage_in_the_middle_is_two_changes() -> None:
    """Cut in two, the window shows hardly any difference: its halves do."""
    assert texts(steps([1e6] * 4 + [0.0] * 2 + [1e6] * 4)) == [
        "the rate falls by 100.0 % near 4 s, and changes once more; the limit is 10.0 %"
    ]


def test_short_stall_is_noise_and_no_other_level() -> None:
    rates = [1e6] * 100
    rates[50:52] = [0.0] * 2
    assert verdict(steps(rates)) == ("valid", [])


def stalling(begins: Iterable[float], length_s: float = 0.2) -> list[float]:
    """100 intervals of 100 ms at 800 requests a second, which wait in each stall."""
    edges = np.linspace(0, 10, 101)
    at_s = np.linspace(0, 10, 10_001)
    is_stalled = np.any([(at_s > begin) & (at_s <= begin + length_s) for begin in begins], axis=0)
    done = np.interp(edges, at_s, np.cumsum(~is_stalled) * 0.8)
    noise = 1 + 0.02 * np.random.default_rng(5).standard_normal(100)
    return [float(rate) for rate in np.diff(done) * 10 * noise]


def test_regular_stalls_are_a_pattern_of_the_server_and_no_instability() -> None:
    """200 ms every 1.3 s: whole cycles resemble each other, so their mean is known."""
    found = analyse_test(steps(stalling(np.arange(0.3, 9.5, 1.3).tolist()), kind="rr"))
    assert verdict(steps(stalling(np.arange(0.3, 9.5, 1.3).tolist()), kind="rr")) == ("valid", ["periodic-stalls"])
    [note] = [note.text for note in found.validity.notes if note.code == "periodic-stalls"]
    assert note.startswith("the rate stalls for about 0.19 s every 1.3 s, 8 times: ")
    rate = found.metrics["transactions_per_s"]
    assert rate.low is not None and rate.high is not None
    assert rate.low <= 800 * 1.1 / 1.3 <= rate.high < 1.1 * rate.low


def test_irregular_stalls_leave_a_rate_uncertain() -> None:
    begins = [0.5, 1.1, 2.9, 3.4, 5.8, 8.1, 8.6]
    found = analyse_test(steps(stalling(begins, 0.4), kind="rr"))
    assert found.validity.verdict is Verdict.UNSTABLE
    assert not [note for note in found.validity.notes if note.code == "periodic-stalls"]


def test_noise_of_long_tests_raises_no_alarm() -> None:
    """300 tests of 10 s with autocorrelated noise of 10 %: half of their intervals is 2 to 4 % of the mean."""
    doubted = 0
    for rates in 1e6 * (1 + 0.1 * ar1(0.5, 100, 100, np.random.default_rng(11))):
        doubted += verdict(steps(rates.tolist()))[0] != "valid"
    assert doubted <= 4


def test_few_operations_scatter_by_chance_alone() -> None:
    scatter = [20, 25, 17, 22, 15, 24, 18, 21, 16, 23]
    few = steps([float(count) for count in scatter], kind="rr")
    assert verdict(few) == ("undetermined", ["precision-unknown"])
    assert "operations are too few" in texts(few)[0]
    assert verdict(steps([float(count) for count in scatter * 10], kind="rr", length_s=100))[0] == "valid"


def test_other_rate_is_checked_if_a_target_names_it() -> None:
    """Datagrams that get larger, and fewer: the bits are even."""
    data, packets = test_data("udp"), 0
    for step in range(100):
        packets += 200 if step < 50 else 100
        row = counters(0, 0, 100_000 * (step + 1), received_units=packets)
        data.add("client1", progress(EPOCH_NS + (step + 1) * 100 * MS, [row]))
    report = flow(0, EPOCH_NS, END_NS, received_bytes=10_000_000, received_units=packets, sent_units=packets, lost=0)
    data.add("client1", finished(END_NS, outcome([report])))
    assert verdict(data) == ("valid", [])
    data.asked = ("packets_per_s",)
    found = analyse_test(data)
    assert found.metrics["packets_per_s"].verdict.value == "unstable"
    assert found.metrics["throughput_bps"].verdict.value == "valid"
    assert [reason.metrics for reason in found.validity.reasons] == [("packets_per_s",)]


def test_late_sends_name_the_host_that_sent() -> None:
    paced = {"name": "t", "kind": "udp", "duration_ms": 10_000, "interval_ms": 100, "rate_pps": 1000}
    found = []
    for direction in ("up", "down"):
        data = steady_test("udp", generator=load(late_p99_us=5000.0), receiver=load(side="peer", late_p99_us=5000.0))
        data.spec = TestSpec.read({**paced, "direction": direction})
        found += [note for note in analyse_test(data).validity.reasons if note.code == "sends-late"]
    assert [reason.text.partition(" were ")[0] for reason in found] == ["sends of client1", "sends of the server"]


@pytest.mark.parametrize("repeats", [3, 10, 30])
def test_spread_of_3_percent_is_never_unstable_however_many_repeats(repeats: int) -> None:
    """200 cases, through the summary: more repeats never make it worse."""
    generator, unstable = np.random.default_rng(repeats), 0
    template = analyse_test(steady_test("tcp", 1e6))
    for _ in range(200):
        values = 8e6 * (1 + 0.03 * generator.standard_normal(repeats))
        results = [replace(template, metrics={"throughput_bps": Metric(value, "bit/s")}) for value in values.tolist()]
        found = summarise(results, planned=repeats, limit=0.1, case="c01", test="t", kind="tcp", parameters={})
        unstable += found.validity.verdict is Verdict.UNSTABLE
    # Three repeats tell little: their interval is wider than 10 % in a sixth of cases. That of ten or more never is.
    assert unstable <= (50 if repeats == 3 else 0)
