"""Intervals of quantiles contain the truth, from values, from buckets, and from parts that resemble each other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from leadline.statistics import (
    count_beside_bursts,
    independent_count,
    level_correlation,
    quantile_of_buckets,
    quantile_of_values,
)
from synthetic import ar1, assert_share, contains


def test_bounds_are_order_statistics() -> None:
    # Binomial(100, 0.5): 40.4 and 60.6 are where 2.5 % and 97.5 % are reached, between the ranks 40 and 61 of tables.
    found = quantile_of_values(np.arange(1.0, 101.0), 0.5)
    assert found.value == 50.0
    assert found.low == pytest.approx(40.6, abs=0.5)
    assert found.high == pytest.approx(60.4, abs=0.5)
    assert (found.independent, found.reason) == (100.0, None)


def test_quantile_beyond_few_values_is_bounded_from_below_alone() -> None:
    found = quantile_of_values(np.arange(1.0, 101.0), 0.99)
    assert found.low is not None and found.high is None
    assert found.reason == "100 independent values do not bound this quantile from above"
    assert quantile_of_values(np.arange(367.0), 0.99).high is None
    assert quantile_of_values(np.arange(368.0), 0.99).high is not None
    assert (
        quantile_of_values([1.0, 2.0], 0.5).reason
        == "2 independent values do not bound this quantile from below or above"
    )


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, float("nan")])
def test_share_outside_of_0_and_1_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="a quantile lies between 0 and 1"):
        quantile_of_values([1.0], share)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_interval_of_independent_values_contains_the_truth(share: float) -> None:
    rows = np.random.default_rng(1).exponential(size=(1000, 500))
    truth = -math.log(1 - share)
    estimates = [quantile_of_values(row, share) for row in rows]
    assert_share([contains(found.low, found.high, truth) for found in estimates], 0.93, 0.97)


def test_buckets_give_what_their_values_give() -> None:
    values = np.random.default_rng(2).integers(1, 1000, 2000)
    different, counts = np.unique(values, return_counts=True)
    for share in (0.1, 0.5, 0.99):
        single, merged = quantile_of_values(values, share), quantile_of_buckets(different, different, counts, share)
        assert merged.value == single.value
        assert None not in (single.low, single.high, merged.low, merged.high)
        assert merged.low is not None and single.low is not None and merged.low <= single.low <= merged.low + 2
        assert merged.high is not None and single.high is not None and single.high <= merged.high <= single.high + 2


def test_interval_of_wide_buckets_contains_that_of_the_values() -> None:
    values = np.random.default_rng(3).exponential(1000.0, 5000)
    lows = np.floor(np.sort(values) / 128) * 128
    bottoms, counts = np.unique(lows, return_counts=True)
    single, merged = quantile_of_values(values, 0.9), quantile_of_buckets(bottoms, bottoms + 127.999, counts, 0.9)
    assert single.low is not None and single.high is not None and merged.low is not None and merged.high is not None
    assert merged.low <= single.low <= single.high <= merged.high


def test_buckets_without_values_are_refused() -> None:
    with pytest.raises(ValueError, match="holds no value"):
        quantile_of_buckets([1.0], [2.0], np.array([0]), 0.5)
    with pytest.raises(ValueError, match="every bucket needs"):
        quantile_of_buckets([1.0], [2.0, 3.0], np.array([1, 1]), 0.5)


def test_fewer_independent_values_widen_the_interval() -> None:
    values = np.arange(1.0, 1001.0)
    all_of_them, a_tenth = quantile_of_values(values, 0.5), quantile_of_values(values, 0.5, independent=100)
    assert a_tenth.independent == 100
    assert a_tenth.value == all_of_them.value
    assert (a_tenth.high or 0) - (a_tenth.low or 0) > 3 * ((all_of_them.high or 0) - (all_of_them.low or 0))


def test_independent_parts_are_worth_nearly_all_their_values() -> None:
    above = np.random.default_rng(4).binomial(1000, 0.1, (200, 30))
    worth = [independent_count(row, np.full(30, 1000)) or 0.0 for row in above]
    assert 0.7 * 30_000 < np.median(worth) <= 30_000


def test_bursts_in_few_parts_leave_less_of_a_sample_than_in_many() -> None:
    """30 of 3,000 values exceed the quantile: in two parts of ten, or in all of them."""
    totals = np.full(10, 300)
    in_two, in_all = (count_beside_bursts(above, totals) or 0.0 for above in ([15, 15] + [0] * 8, [3] * 10))
    assert in_two < 30 and in_all == 3000
    assert count_beside_bursts([0] * 9, [9] * 9) is None


@pytest.mark.parametrize(
    ("above", "totals"), [([1, 1, 1, 1], [9] * 4), ([0] * 9, [9] * 9), ([9] * 9, [9] * 9), ([0] * 9, [0] * 9)]
)
def test_parts_that_tell_nothing_give_no_count(above: list[float], totals: list[float]) -> None:
    assert independent_count(above, totals) is None


@pytest.mark.parametrize(
    ("correlation", "spread"),
    [
        (0.6, 0.5),
        *(
            pytest.param(correlation, spread, marks=pytest.mark.full_matrix)
            for correlation in (0.3, 0.6, 0.8)
            for spread in (0.3, 0.5)
            if (correlation, spread) != (0.6, 0.5)
        ),
    ],
)
def test_99th_percentile_of_parts_that_wander_contains_the_truth(correlation: float, spread: float) -> None:
    """30 seconds of 300 latencies each: those beyond it come in bursts, of which there are few. The median's own
    correlation shows how long they are; where the test is too short, the upper side is left open."""
    generator = np.random.default_rng(7)
    truth = math.exp(math.hypot(spread, 1) * 2.3263478740408408)
    sizes, found = np.full(30, 300), []
    for levels in ar1(correlation, 1000, 30, generator):
        values = np.exp(spread * levels[:, np.newaxis] + generator.standard_normal((30, 300)))
        ordered = np.sort(values.ravel())
        level = level_correlation((values > ordered[4499]).sum(axis=1), sizes)
        worth = independent_count((values > ordered[8909]).sum(axis=1), sizes, correlation=level)
        assert worth is not None
        estimate = quantile_of_values(ordered, 0.99, worth)
        found.append(contains(estimate.low, estimate.high, truth))
    assert_share(found, 0.93, 0.97)


def test_correlation_of_levels_is_that_of_what_chance_does_not_explain() -> None:
    generator, sizes = np.random.default_rng(9), np.full(200, 300)
    by_chance = [level_correlation(generator.binomial(300, 0.5, 200), sizes) for _ in range(200)]
    assert np.mean(np.array(by_chance) == 0.0) >= 0.45
    levels = 0.5 + 0.05 * ar1(0.8, 200, 200, generator)
    known = [level_correlation(generator.binomial(300, row), sizes) for row in levels]
    assert np.median(known) == pytest.approx(0.8, abs=0.05)
    assert level_correlation([1, 1, 1, 1], [9] * 4) == 0.0


@pytest.mark.parametrize(
    "correlation", [0.6, *(pytest.param(one, marks=pytest.mark.full_matrix) for one in (0.0, 0.3, 0.8))]
)
@pytest.mark.parametrize(
    ("parts", "low", "high"),
    [(10, 0.91, 0.98), pytest.param(15, 0.93, 0.98, marks=pytest.mark.full_matrix), (30, 0.93, 0.97)],
)
def test_median_of_parts_that_wander_contains_the_truth(
    parts: int, low: float, high: float, correlation: float
) -> None:
    """Seconds of 300 latencies each, whose level wanders; their median is 1. Ten of them cannot show how slowly,
    without making the intervals of independent seconds too wide."""
    generator = np.random.default_rng(5)
    found, middle = [], 150 * parts - 1
    for levels in ar1(correlation, 1000, parts, generator):
        values = np.exp(0.5 * levels[:, np.newaxis] + generator.standard_normal((parts, 300)))
        median = np.partition(values.ravel(), middle)[middle]
        worth = independent_count((values > median).sum(axis=1), np.full(parts, 300))
        assert worth is not None
        estimate = quantile_of_values(values.ravel(), 0.5, worth)
        found.append(contains(estimate.low, estimate.high, 1.0))
    assert_share(found, low, high)
