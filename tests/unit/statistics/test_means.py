"""Intervals of a mean contain the truth as often as they say, over repeats and within an autocorrelated series."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from leadline.statistics import (
    Estimate,
    lengthening,
    mean_of_repeats,
    mean_of_series,
    neighbours_correlation,
    no_narrower_than_parts,
    t_quantile,
)
from leadline.statistics.means import MIN_VALUES, batch_means
from synthetic import SETS, ar1, assert_share, contains


def covered(rows: NDArray[np.float64], truth: float = 0.0) -> list[bool]:
    estimates = [mean_of_series(row) for row in rows]
    return [contains(found.low, found.high, truth) for found in estimates]


def test_interval_of_repeats_is_students_t() -> None:
    # 2, 4, 4, 4, 6: mean 4, s = sqrt(2), t(0.975, 4) = 2.776445.
    found = mean_of_repeats([2.0, 4.0, 4.0, 4.0, 6.0])
    half = 2.776445105 * (2 / 5) ** 0.5
    assert (found.value, found.independent, found.reason) == (4.0, 5, None)
    assert found.low == pytest.approx(4 - half, rel=1e-8)
    assert found.high == pytest.approx(4 + half, rel=1e-8)
    assert found.half_width_ratio == pytest.approx(half / 4, rel=1e-8)


def test_wider_confidence_widens_the_interval() -> None:
    assert t_quantile(4, 0.99) == pytest.approx(4.604094871)
    assert t_quantile(1e9) == pytest.approx(1.959963985)
    narrow, wide = mean_of_repeats([1.0, 2.0, 3.0], 0.9), mean_of_repeats([1.0, 2.0, 3.0], 0.99)
    assert narrow.high is not None and wide.high is not None and wide.high > narrow.high


def test_one_repeat_has_no_interval_and_says_why() -> None:
    found = mean_of_repeats([3.0])
    assert (found.value, found.low, found.high, found.half_width_ratio) == (3.0, None, None, None)
    assert found.reason == "one repeat has no interval: two or more are needed"


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert mean_of_repeats([0.1, 0.1, 0.1]) == Estimate(0.1, 0.1, 0.1, 3)
    found = mean_of_series([0.1] * 100)
    assert (found.value, found.low, found.high) == (0.1, 0.1, 0.1)
    assert mean_of_repeats([0.0, 0.0]).half_width_ratio == 0.0


@pytest.mark.parametrize("values", [[], [[1.0, 2.0]], [1.0, float("nan")], [1.0, float("inf")]])
def test_values_that_have_no_mean_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="value"):
        mean_of_repeats(values)
    with pytest.raises(ValueError, match="value"):
        mean_of_series(values)


@pytest.mark.parametrize("sets", SETS)
@pytest.mark.parametrize("repeats", [2, 3, 10])
def test_interval_of_repeats_contains_the_truth(repeats: int, sets: int) -> None:
    rows = 100 + 3 * np.random.default_rng(repeats).standard_normal((sets, repeats))
    estimates = [mean_of_repeats(row) for row in rows]
    assert_share([contains(found.low, found.high, 100) for found in estimates], 0.93, 0.97)


def test_interval_of_repeats_is_no_narrower_than_their_parts_allow() -> None:
    """Three repeats of the same mean, whose five parts have a deviation of 1: 12 degrees of freedom."""
    parts = [[-1.0, 1.0, -1.0, 1.0, 0.0]] * 3
    found = no_narrower_than_parts(mean_of_repeats([5.0, 5.0, 5.0]), np.array(parts) + 5)
    half = t_quantile(12) * (12 / 12 / 15) ** 0.5
    assert found.value == 5.0
    assert (found.low, found.high) == pytest.approx((5 - half, 5 + half))


def test_wide_interval_of_repeats_and_missing_parts_leave_it_as_it_is() -> None:
    wide = mean_of_repeats([1.0, 5.0, 9.0])
    assert no_narrower_than_parts(wide, [[5.0, 5.1] * 5] * 3) == wide
    assert no_narrower_than_parts(wide, [[0.0, 90.0]] * 3) == wide, "two parts say too little"
    one = mean_of_repeats([5.0])
    assert no_narrower_than_parts(one, [[0.0, 90.0] * 5]) == one, "one repeat has no interval"


def test_parts_that_go_up_and_down_evenly_are_taken_in_pairs() -> None:
    same = mean_of_repeats([5.0, 5.0, 5.0])
    assert no_narrower_than_parts(same, [[0.0, 10.0] * 5] * 3) == same


def test_part_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="every part has to be finite"):
        no_narrower_than_parts(mean_of_repeats([5.0, 5.0]), [[float("nan")] * 5] * 2)


def test_more_repeats_never_make_the_precision_worse_on_average() -> None:
    rows = 100 + 3 * np.random.default_rng(1).standard_normal((300, 30))
    widths = [
        np.mean([mean_of_repeats(row[:repeats]).half_width_ratio or 0.0 for row in rows]) for repeats in (3, 10, 30)
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.0125  # 3 % noise of 30 repeats: far from any limit for stability


@pytest.mark.parametrize("sets", SETS)
@pytest.mark.parametrize("length", [100, 300])
@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6, 0.8, 0.9])
def test_interval_of_an_autocorrelated_series_contains_the_truth(correlation: float, length: int, sets: int) -> None:
    rows = ar1(correlation, sets, length, np.random.default_rng(length))
    assert_share(covered(rows), 0.93, 0.97)


@pytest.mark.parametrize("sets", SETS)
@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6])
def test_interval_of_three_seconds_contains_the_truth(correlation: float, sets: int) -> None:
    """30 intervals of 100 ms."""
    rows = ar1(correlation, sets, 30, np.random.default_rng(30))
    assert_share(covered(rows), 0.93, 0.97)


def test_intervals_of_independent_counts_contain_the_truth() -> None:
    rows = np.random.default_rng(4).poisson(3.0, (1000, 300)).astype(np.float64)
    assert_share(covered(rows, 3.0), 0.93, 0.97)


def test_intervals_of_a_skewed_series_contain_the_truth() -> None:
    rows = np.exp(0.5 * ar1(0.6, 1000, 300, np.random.default_rng(5)))
    assert_share(covered(rows, np.exp(0.125)), 0.93, 0.97)


def test_alternating_series_has_a_wide_interval_that_contains_the_truth() -> None:
    """Readings at jittery instants: what one interval lacks, the next has."""
    assert_share(covered(ar1(-0.4, 500, 300, np.random.default_rng(6))), 0.95)


def test_short_series_of_slow_noise_is_mostly_unbounded() -> None:
    """What 30 values of rho 0.9 are worth, less than two independent ones, allows no interval: 91 % is the limit."""
    estimates = [mean_of_series(row) for row in ar1(0.9, 1000, 30, np.random.default_rng(7))]
    assert_share([found.low is None for found in estimates], 0.6)
    assert_share([contains(found.low, found.high, 0) for found in estimates], 0.88, 0.97)
    reasons = {found.reason for found in estimates if found.low is None}
    assert all(reason and reason.startswith("the series is too short for its slow changes") for reason in reasons)


def test_slow_noise_under_fast_noise_is_seen_by_long_series_alone() -> None:
    """A limit that is known: a short series shows only the fast noise, which hides the slow one."""
    generator = np.random.default_rng(8)
    shares = [
        np.mean(covered(ar1(0.9, 500, length, generator) + generator.standard_normal((500, length))))
        for length in (30, 600)
    ]
    assert shares[0] < 0.8
    assert shares[1] > 0.92


@pytest.mark.parametrize(
    "correlation", [*(pytest.param(one, marks=pytest.mark.full_matrix) for one in (0.0, 0.3)), 0.6]
)
def test_length_that_is_said_to_be_enough_mostly_is(correlation: float) -> None:
    """50 values with noise of 30 % are too few for 10 %."""
    generator, enough = np.random.default_rng(12), [0, 0]
    short = [row for row in 1 + 0.3 * ar1(correlation, 300, 50, generator) if not _is_within(row, 0.1)]
    said = [(row, times) for row in short if (times := lengthening(row, 0.1)) is not None]
    assert len(said) >= 0.7 * len(short)
    for _, times in said:
        for number, share in enumerate((1, 2)):
            [row] = 1 + 0.3 * ar1(correlation, 1, round(50 * times * share), generator)
            enough[number] += _is_within(row, 0.1)
    assert enough[0] >= 0.5 * len(said)
    assert enough[1] >= 0.85 * len(said)


def _is_within(row: NDArray[np.float64], limit: float) -> bool:
    half = mean_of_series(row).half_width_ratio
    return half is not None and half <= limit


def test_no_length_is_said_of_what_does_not_show_it() -> None:
    assert lengthening([1.0, 2.0] * 9, 0.1) is None, "too few values"
    assert lengthening(np.linspace(1, 5, 60), 0.1) is None, "it changes as slowly as it is long"
    assert lengthening([1.0] * 30 + [900.0] * 30, 0.01) is None
    assert lengthening([1.0, 1.0] * 30, 0.1) == 1.0


def test_too_few_intervals_have_no_interval() -> None:
    found = mean_of_series([1.0, 2.0, 1.0] * 3)
    assert found.value == pytest.approx(4 / 3)
    assert (found.low, found.high) == (None, None)
    assert found.reason == "9 intervals are too few: 10 are needed"
    assert mean_of_series([1.0, 2.0] * (MIN_VALUES // 2)).low is not None


@pytest.mark.parametrize("length", [10, 15, 20])
@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6])
def test_interval_of_one_or_two_seconds_contains_the_truth(correlation: float, length: int) -> None:
    """Of so few values their autocorrelation is assumed: the interval is too wide rather than too narrow."""
    assert_share(covered(ar1(correlation, 1000, length, np.random.default_rng(length))), 0.93)


def test_batches_leave_out_the_first_values() -> None:
    assert batch_means(np.arange(7.0), 2).tolist() == [1.5, 3.5, 5.5]


def test_resemblance_of_neighbours_is_certain_only_where_there_is_one() -> None:
    generator = np.random.default_rng(9)
    assert_share([neighbours_correlation(row) is None for row in ar1(0.0, 1000, 60, generator)], 0.96)
    assert_share([neighbours_correlation(row) is not None for row in ar1(0.5, 1000, 60, generator)], 0.9)
    assert neighbours_correlation(np.arange(19.0)) is None
    assert neighbours_correlation(np.ones(60)) is None
