"""Targets on the percentiles of closed loops whose truth is known: 2 s, four connections, a server of about 5 ms.

Targets at half and at twice the truth are decided, and none is decided wrongly. The loads run in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from made_loops import MEAN, NAMES, find_figures
from numpy.typing import NDArray

from leadline.analysis.model import Metric
from synthetic import assert_share, contains

full = pytest.mark.full_matrix
Times = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Times]
CONNECTIONS, LENGTH_S = 4, 2


def jitter(generator: np.random.Generator, shape: tuple[int, ...]) -> Times:
    """5 ms, lognormal with a deviation of 20 %."""
    return np.asarray(5e-3 * np.exp(0.2 * generator.standard_normal(shape)))


def tail(generator: np.random.Generator, shape: tuple[int, ...]) -> Times:
    """5 ms, and an exponential wait of 2 ms on the average: the longest of 2 s is about 20 ms."""
    return np.asarray(5e-3 + generator.exponential(2e-3, shape))


def slow_share(generator: np.random.Generator, shape: tuple[int, ...]) -> Times:
    """3 % take 20 ms, as of a cache that misses."""
    return np.where(generator.random(shape) < 0.03, 20e-3, 5e-3) * jitter(generator, shape) / 5e-3


def levels(generator: np.random.Generator, shape: tuple[int, ...]) -> Times:
    """The level of each second differs by 1 %, ten times as much as its times do among each other."""
    level = np.exp(0.01 * generator.standard_normal((*shape[:-2], 1, -(-shape[-1] // 200))))
    of_requests = np.repeat(level, 200, axis=-1)[..., : shape[-1]]
    return np.asarray(5e-3 * of_requests * np.exp(0.001 * generator.standard_normal(shape)))


LOADS: dict[str, Draw] = {draw.__name__: draw for draw in (jitter, tail, slow_share, levels)}


@cache
def truths(load: str) -> dict[str, float]:
    """The percentiles of a million times, µs."""
    times = LOADS[load](np.random.default_rng(0), (1000, 1000)).ravel()
    shares = (50, 90, 99)
    return dict(zip(NAMES, (1e6 * np.percentile(times, shares)).tolist(), strict=True))


def figures(times: Times, length_s: int = LENGTH_S) -> dict[str, Metric]:
    """Percentiles with their intervals: a row of `times` for each connection, one request after the other."""
    ends = np.cumsum(times, axis=1)
    assert (ends[:, -1] >= length_s).all(), "every connection has a request in flight at the end"
    return find_figures(ends - times, ends, length_s, len(times))


def outcomes(found: dict[str, Metric], name: str, truth: float, times: float) -> tuple[bool, bool]:
    """Whether a target at this multiple of the truth is decided, and whether wrongly."""
    low, high, limit = found[name].low, found[name].high, truth * times
    is_met, is_missed = high is not None and high < limit, low is not None and low >= limit
    return is_met or is_missed, is_met if times < 1 else is_missed


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("sets", [20, pytest.param(500, marks=full)])
def test_targets_at_half_and_at_twice_the_truth_are_decided_and_none_wrongly(load: str, sets: int) -> None:
    generator = np.random.default_rng(27)
    far, wrong = list[bool](), list[bool]()
    for _ in range(sets):
        found = figures(LOADS[load](generator, (CONNECTIONS, 900)))
        for name, truth in truths(load).items():
            for times in (0.5, 0.8, 1.25, 2.0):
                is_decided, is_wrong = outcomes(found, name, truth, times)
                wrong.append(is_wrong)
                if times in (0.5, 2.0):
                    far.append(is_decided)
    assert sum(far) >= 0.95 * len(far), f"{sum(far)} of {len(far)}"
    assert sum(wrong) <= 0.002 * len(wrong), f"{sum(wrong)} of {len(wrong)}"


@pytest.mark.parametrize("connections", [4, 100])
def test_longest_time_below_a_target_decides_every_percentile(connections: int) -> None:
    """200 ms, where no answer takes 40 ms: the requests in flight had waited for less than that."""
    generator = np.random.default_rng(28)
    for _ in range(10):
        found = figures(tail(generator, (connections, 900)))
        assert [outcomes(found, name, 200e3, 1.0) for name in NAMES] == [(True, False)] * 3


def test_requests_in_flight_that_had_waited_longer_than_any_answer_are_ranks_at_the_top() -> None:
    """Four of 1,600: the last of them had waited for 0.5 s, as the server stalled at the end."""
    times = jitter(np.random.default_rng(29), (CONNECTIONS, 900))
    times[:, 300:] = 10.0
    found = figures(times)
    for name in NAMES:
        metric = found[name]
        value = metric.value or 0.0
        assert metric.low is not None and 0.6 * value < metric.low <= value, name
        assert (metric.high is None) == (name == "latency_p99_us") or (metric.high or 0.0) < 2.5 * value, name


@pytest.mark.parametrize(("length_s", "widest"), [(2, 1.7), (6, 1.2), (12, 1.2)])
def test_percentiles_of_seconds_whose_levels_differ_by_one_percent_have_intervals(length_s: int, widest: float) -> None:
    """Ranks alone leave them open: all values of some seconds lie above the median of the test. Two seconds do not show
    that others differ by no more."""
    metrics = figures(levels(np.random.default_rng(30), (CONNECTIONS, 450 * length_s)), length_s)
    for name, metric in metrics.items():
        assert metric.value is not None and metric.low is not None and metric.high is not None, name
        assert metric.low <= metric.value <= metric.high < widest * metric.low, name


def test_median_of_6000_requests_has_an_interval() -> None:
    median = figures(jitter(np.random.default_rng(31), (16, 600)))["latency_p50_us"]
    assert median.low is not None and median.high is not None
    assert median.low <= 5000 <= median.high < 1.1 * median.low


@pytest.mark.parametrize("length_s", [2, 10])
def test_mean_of_a_closed_loop_is_as_certain_as_its_rate(length_s: int) -> None:
    """Seconds whose level differs by 1 %: the rate, which is read ten times a second, shows it (Little's law)."""
    mean = figures(levels(np.random.default_rng(33), (CONNECTIONS, 450 * length_s)), length_s)[MEAN]
    assert mean.low is not None and mean.high is not None
    assert mean.low <= 5000 <= mean.high < 1.05 * mean.low


@full
@pytest.mark.parametrize("load", ["jitter", "tail", "slow_share"])
def test_intervals_of_short_closed_loops_contain_the_truth(load: str) -> None:
    generator, contained = np.random.default_rng(32), dict[str, list[bool]]()
    for _ in range(500):
        found = figures(LOADS[load](generator, (CONNECTIONS, 900)))
        for name, truth in truths(load).items():
            contained.setdefault(name, []).append(contains(found[name].low, found[name].high, truth))
    for of_name in contained.values():
        assert_share(of_name, 0.95)
