"""The end of a known warm-up is found, and nothing is cut where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from leadline.statistics import Truncation, warm_up_end
from synthetic import SETS, ar1, assert_share


def starts(rows: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> list[int]:
    return [-1 if (found := warm_up_end(row).start) is None else found for row in rows]


@pytest.mark.parametrize("sets", SETS)
@pytest.mark.parametrize("size", [2.0, 5.0])
def test_warm_up_ends_within_one_batch(size: float, sets: int) -> None:
    """50 of 300 values lie 2 or 5 standard deviations too low."""
    rows = np.random.default_rng(1).standard_normal((sets, 300))
    rows[:, :50] -= size
    assert_share([abs(start - 50) <= 5 for start in starts(rows)], 0.95)


def test_warm_up_that_rises_evenly_ends_within_two_batches() -> None:
    """The last batches of a ramp of 10 standard deviations lie within the noise."""
    rows = np.random.default_rng(2).standard_normal((1000, 300))
    rows[:, :50] -= 10 * (1 - np.arange(50) / 50)
    assert_share([abs(start - 50) <= 10 for start in starts(rows)], 0.95)


def test_minimum_alone_cuts_too_much() -> None:
    """MSER-5 as it was published: within one batch in four fifths of the cases."""
    rows = np.random.default_rng(3).standard_normal((500, 300))
    rows[:, :50] -= 5
    minima = [warm_up_end(row).minimum or 0 for row in rows]
    assert_share([abs(minimum - 50) <= 5 for minimum in minima], 0.74, 0.84)
    assert all(start <= minimum for start, minimum in zip(starts(rows), minima, strict=True))


@pytest.mark.parametrize("sets", SETS)
def test_steady_series_loses_at_most_a_batch(sets: int) -> None:
    rows = np.random.default_rng(4).standard_normal((sets, 300))
    assert_share([0 <= start <= 5 for start in starts(rows)], 0.95)


@pytest.mark.parametrize("correlation", [0.3, 0.5])
def test_warm_up_of_an_autocorrelated_series_ends_within_one_batch(correlation: float) -> None:
    rows = ar1(correlation, 2000, 300, np.random.default_rng(5))
    rows[:, :50] -= 5
    assert_share([abs(start - 50) <= 5 for start in starts(rows)], 0.95)


@pytest.mark.parametrize("correlation", [0.3, 0.5, 0.7])
def test_weak_warm_up_beside_slow_changes_is_not_cut_too_late(correlation: float) -> None:
    """One of 2 standard deviations is lost among slow changes as large; what belongs to the series stays in it."""
    rows = ar1(correlation, 2000, 300, np.random.default_rng(6))
    rows[:, :50] -= 2
    assert_share([start <= 55 for start in starts(rows)], 0.95)
    settled = ar1(correlation, 2000, 300, np.random.default_rng(7))
    assert_share([0 <= start <= 5 for start in starts(settled)], 0.95)


def test_series_that_never_settles_has_no_end_of_warm_up() -> None:
    found = warm_up_end(np.arange(300.0))
    assert (found.start, found.reason) == (None, "the series does not become steady in its first half")


def test_equal_values_are_not_cut() -> None:
    assert warm_up_end([7.0] * 60) == Truncation(0, 0)


def test_values_that_fill_no_batch_stand_at_the_beginning() -> None:
    values = np.concatenate((np.zeros(13), np.full(50, 9.0)))
    # 63 values: 3 to spare and 12 batches, of which two are zeros.
    assert warm_up_end(values) == Truncation(13, 13)


def test_short_series_has_no_end_of_warm_up() -> None:
    assert warm_up_end([1.0] * 49) == Truncation(None, None, "49 intervals are too few: 50 are needed")
    with pytest.raises(ValueError, match="a batch of 0 values is none"):
        warm_up_end([1.0] * 60, batch=0)
