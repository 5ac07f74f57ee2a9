"""Intervals of a test's figures: they contain the truth, and each figure without one says why."""

from __future__ import annotations

import math
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
    histogram,
    outcome,
    progress,
    steady_test,
    test_data,
)

from leadline.analysis import TestData, analyse_test
from leadline.analysis.flows import Curve
from leadline.analysis.intervals import rate_estimate
from leadline.analysis.model import Metric, Window

KINDS = ("tcp", "udp", "rr", "http")


def window(length_s: float) -> Window:
    end_ns = EPOCH_NS + round(length_s * S)
    return Window(EPOCH_NS, EPOCH_NS, end_ns, end_ns)


def curve(per_interval: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Curve:
    """A counter that was read every 100 ms."""
    instants = np.asarray(EPOCH_NS + np.arange(len(per_interval) + 1) * 100.0 * MS, dtype=np.float64)
    return Curve(instants, np.concatenate(([0.0], np.cumsum(per_interval)), dtype=np.float64))


def answered(seconds: int, generator: np.random.Generator) -> TestData:
    """An rr test of 1,000 transactions a second whose latencies are exponential with a mean of 1 ms."""
    data, everything = test_data("rr", duration_ms=seconds * 1000), []
    for second in range(1, seconds + 1):
        times_ns = generator.exponential(1e6, 1000).astype(int) + 1
        everything += times_ns.tolist()
        t_ns, units = EPOCH_NS + second * S, 1000 * second
        row = counters(0, sent_units=units, received_units=units)
        data.add("client1", progress(t_ns, [row], side="local", histograms=[histogram("latency", times_ns.tolist())]))
    end_ns, units = EPOCH_NS + seconds * S, 1000 * seconds
    report = flow(0, EPOCH_NS, end_ns, sent_units=units, received_units=units)
    data.add("client1", finished(end_ns, outcome([report], histograms=[histogram("latency", everything)])))
    return data


def test_interval_of_a_noisy_rate_contains_the_truth() -> None:
    """10 s of a counter that grows by 100 in 100 ms, with noise that resembles its neighbours."""
    generator = np.random.default_rng(1)
    contained = []
    for _ in range(300):
        noise = np.empty(100)
        noise[0] = generator.standard_normal()
        for index in range(1, 100):
            noise[index] = 0.5 * noise[index - 1] + math.sqrt(0.75) * generator.standard_normal()
        found = rate_estimate([curve(100 + 10 * noise)], window(10), 100 * MS)
        assert found is not None and found.low is not None and found.high is not None
        contained.append(found.low <= 1000 <= found.high)
    assert 0.92 <= sum(contained) / len(contained) <= 0.98


def test_counters_of_many_flows_are_added_up_before_the_interval_is_made() -> None:
    """Flows that take from each other: each is noisy, their sum is not."""
    share = np.random.default_rng(2).uniform(0, 100, 100)
    found = rate_estimate([curve(share), curve(100 - share)], window(10), 100 * MS)
    assert found is not None and found.half_width_ratio == pytest.approx(0, abs=1e-9)


def test_even_rate_has_a_narrow_interval_around_itself() -> None:
    rate = analyse_test(steady_test("tcp", 1e6)).metrics["throughput_bps"]
    assert rate.unbounded is None
    assert rate.low is not None and rate.high is not None and rate.value is not None
    assert rate.low <= rate.value <= rate.high
    assert rate.high - rate.low < 1e-3 * rate.value


def test_rate_that_is_known_from_totals_has_no_interval() -> None:
    data = test_data("tcp")
    end_ns = EPOCH_NS + 10 * S
    report = flow(0, EPOCH_NS, end_ns, sent_bytes=1000, received_bytes=1000)
    data.add("client1", finished(end_ns, outcome([report])))
    rate = analyse_test(data).metrics["throughput_bps"]
    assert (rate.low, rate.high) == (None, None)
    assert rate.unbounded == "only totals are known, no intervals of time"


def test_rate_in_stages_has_no_interval() -> None:
    data = steady_test("http")
    data.spec = replace(data.spec, steady=False)
    assert analyse_test(data).metrics["requests_per_s"].unbounded == "the rate changes by plan"


def test_short_test_has_no_interval() -> None:
    found = rate_estimate([curve(np.full(9, 7.0))], window(0.9), 100 * MS)
    assert found is not None and found.low is None
    assert found.reason == "9 intervals are too few: 10 are needed"


def test_percentiles_have_intervals_that_contain_the_truth() -> None:
    generator = np.random.default_rng(3)
    contained: dict[str, list[bool]] = {"latency_p50_us": [], "latency_p99_us": []}
    for _ in range(40):
        metrics = analyse_test(answered(12, generator)).metrics
        for name, share in (("latency_p50_us", 0.5), ("latency_p99_us", 0.99)):
            found = metrics[name]
            low, high = found.low or 0.0, math.inf if found.high is None else found.high
            assert found.value is not None and low <= found.value <= high
            contained[name].append(low <= -1000 * math.log(1 - share) <= high)
    assert all(sum(found) >= 36 for found in contained.values()), contained


def test_percentiles_of_few_seconds_have_no_interval() -> None:
    found = analyse_test(answered(4, np.random.default_rng(4))).metrics["latency_p99_us"]
    assert (found.low, found.high) == (None, None)
    assert found.unbounded is not None and found.unbounded.startswith("the seconds of the test are too few")


def test_percentiles_with_operations_that_had_not_ended_have_no_interval() -> None:
    data = steady_test("rr", histograms=[histogram("latency", [1000] * 99), histogram("latency_censored", [10**9])])
    found = analyse_test(data).metrics["latency_p50_us"]
    assert found.value is not None
    assert found.unbounded == "some operations had not ended: longer times are unknown"


@pytest.mark.parametrize("kind", KINDS)
def test_each_known_figure_has_both_bounds_or_says_why_not(kind: str) -> None:
    for name, metric in analyse_test(steady_test(kind)).metrics.items():
        is_bounded = metric.low is not None and metric.high is not None
        assert (metric.value is None and metric.unbounded is None) or is_bounded == (metric.unbounded is None), name


def test_unknown_figure_has_neither_interval_nor_reason() -> None:
    found = analyse_test(steady_test("rr")).metrics["latency_p99_us"]
    assert found == Metric(None, "us")
