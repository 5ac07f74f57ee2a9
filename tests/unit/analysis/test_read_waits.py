"""Latencies of which the generator's own read is a part: upper bounds from a fifth on, whatever the kind."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from made_journals import MS, histogram, steady_test

from leadline.analysis import analyse_test
from leadline.analysis.model import Bound, TestResult, Verdict


def answered(kind: str, late_ms: float, count: int = 1000, **more: int) -> TestResult:
    """1,000 answers of 8 ms, the slowest 2 % of 20 ms; the slowest 2 % of `count` reads came this late."""
    slow, times = count // 50, [8 * MS] * 980 + [20 * MS] * 20
    waits = [more.get("usual_ns", 10_000)] * (count - slow) + [round(late_ms * MS)] * slow
    made = [histogram("latency", times), histogram("service", times), histogram("kernel_wait", waits)]
    return analyse_test(steady_test(kind, histograms=made))


def bounds(found: TestResult) -> Mapping[str, Bound | None]:
    names = ("latency_p50_us", "latency_p99_us", "service_p99_us")
    return {name: found.metrics[name].bound for name in names if name in found.metrics}


@pytest.mark.parametrize("kind", ["http", "scenario"])
@pytest.mark.parametrize(("late_ms", "bound"), [(9.0, Bound.MOST), (4.2, Bound.MOST), (3.8, None), (0.0, None)])
def test_percentile_of_which_reading_is_a_fifth_is_an_upper_bound(
    kind: str, late_ms: float, bound: Bound | None
) -> None:
    found = answered(kind, late_ms)
    wanted = {"latency_p50_us": None, "latency_p99_us": bound, "service_p99_us": bound}
    assert bounds(found) == {name: one for name, one in wanted.items() if name in found.metrics}
    assert (found.validity.verdict is Verdict.GENERATOR_LIMITED) is (bound is not None)
    rate = found.metrics["requests_per_s"]
    assert rate.verdict is Verdict.VALID, "how many answers came does not depend on when they were read"


def test_reason_has_the_wait_and_its_share() -> None:
    (reason,) = answered("http", 9.0).validity.reasons
    assert reason.code == "read-late"
    assert "waited for the generator to read them, 9.00 ms at p99, 45 % of latency_p99_us" in reason.text


def test_wait_that_is_shorter_than_waking_up_bounds_nothing() -> None:
    found = answered("http", 0.0, usual_ns=90_000)
    assert found.validity.verdict is Verdict.VALID


def test_few_samples_of_the_wait_do_not_show_a_high_percentile() -> None:
    assert bounds(answered("http", 9.0, count=90))["latency_p99_us"] is None
