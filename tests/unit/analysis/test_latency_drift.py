"""Latencies that rise through a test are undetermined, as the rate of their closed loop is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_journals import EPOCH_NS, S, counters, finished, flow, histogram, outcome, progress, test_data

from leadline.analysis import TestData, analyse_test
from leadline.analysis.model import TestResult, Verdict
from leadline.analysis.targets import judge, parse_targets


def loop(first_us: float, last_us: float, seconds: int = 10, noise: float = 0.02) -> TestData:
    """One connection whose transactions take from `first_us` to `last_us`, one after the other."""
    generator = np.random.default_rng(1)
    data, everything, done, t_us = test_data("rr", duration_ms=seconds * 1000), list[float](), 0, 0.0
    times, tenth = list[float](), 1
    while tenth <= 10 * seconds:
        level_us = first_us + (last_us - first_us) * t_us / (1e6 * seconds)
        one_us = level_us * float(np.exp(noise * generator.standard_normal()))
        while t_us + one_us > 1e5 * tenth and tenth <= 10 * seconds:
            made = [histogram("latency", [int(1000 * time_us) for time_us in times])] if tenth % 10 == 0 else []
            row = counters(0, sent_units=done, received_units=done)
            data.add("client1", progress(EPOCH_NS + tenth * S // 10, [row], side="local", histograms=made))
            tenth += 1
            times = [] if made else times
        t_us, done = t_us + one_us, done + 1
        times.append(one_us)
        everything.append(one_us)
    end_ns = EPOCH_NS + seconds * S
    made = [histogram("latency", [int(1000 * time_us) for time_us in everything])]
    report = flow(0, EPOCH_NS, end_ns, sent_units=done, received_units=done)
    data.add("client1", finished(end_ns, outcome([report], histograms=made)))
    return data


def drifts(result: TestResult) -> list[str]:
    return [reason.text for reason in result.validity.reasons if reason.text.startswith("latency ")]


@pytest.mark.parametrize("seconds", [3, 10])
@pytest.mark.parametrize(("first_us", "last_us", "way"), [(1000, 5000, "rises"), (5000, 1000, "falls")])
def test_latency_that_goes_one_way_is_undetermined(seconds: int, first_us: float, last_us: float, way: str) -> None:
    found = analyse_test(loop(first_us, last_us, seconds))
    [text] = drifts(found)
    assert text.startswith(f"latency {way} through the test, from about ")
    for name in ("latency_p50_us", "latency_p99_us", "latency_mean_us"):
        assert found.metrics[name].verdict is Verdict.UNDETERMINED, name
    assert found.metrics["latency_max_us"].verdict is Verdict.VALID
    [target] = parse_targets(["latency_p50_us < 2ms"], {"t": "rr"})
    assert judge(target, "c01", [found]).outcome == "undecided"


@pytest.mark.parametrize("seconds", [3, 10])
@pytest.mark.parametrize(("last_us", "noise"), [(3000, 0.02), (3000, 0.5), (3300, 0.1)])
def test_level_that_stays_or_moves_by_less_than_the_limit_allows_is_no_drift(
    seconds: int, last_us: float, noise: float
) -> None:
    assert drifts(analyse_test(loop(3000, last_us, seconds, noise))) == []


def test_latency_under_a_rate_in_stages_changes_by_plan() -> None:
    data = loop(1000, 5000)
    data.spec = replace(data.spec, steady=False)
    assert drifts(analyse_test(data)) == []
