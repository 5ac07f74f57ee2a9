"""Shares of counts: the interval contains the truth, whether losses come alone or in bursts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from leadline.statistics import Estimate, share_of_counts, share_of_total, total_of_none
from synthetic import ar1, assert_share, contains

PER_PART = 100


def independent(share: float, sets: int, parts: int, generator: np.random.Generator) -> NDArray[np.int64]:
    return generator.binomial(PER_PART, share, (sets, parts))


def wandering(share: float, sets: int, parts: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Losses whose level has a deviation of a factor of 1.8, and resembles that of the part before."""
    levels = np.exp(0.6 * ar1(0.7, sets, parts, generator) - 0.18)
    return generator.binomial(PER_PART, np.minimum(share * levels, 1.0))


def intervals(losses: NDArray[np.int64]) -> list[Estimate]:
    return [share_of_counts(row, np.full(len(row), PER_PART)) for row in losses]


@pytest.mark.parametrize("parts", [100, 300])
@pytest.mark.parametrize("share", [0.01, 0.05])
def test_interval_of_independent_losses_contains_the_truth(share: float, parts: int) -> None:
    found = intervals(independent(share, 1000, parts, np.random.default_rng(parts)))
    assert_share([contains(one.low, one.high, share) for one in found], 0.94, 0.98)


@pytest.mark.parametrize(("parts", "least"), [(100, 0.925), (300, 0.93)])
def test_interval_of_losses_that_come_together_contains_the_truth(parts: int, least: float) -> None:
    found = intervals(wandering(0.01, 1000, parts, np.random.default_rng(parts)))
    assert_share([contains(one.low, one.high, 0.01) for one in found], least, 0.97)
    alone = intervals(independent(0.01, 1000, parts, np.random.default_rng(1)))
    widths = [np.median([(one.high or 0) - (one.low or 0) for one in side]) for side in (found, alone)]
    assert widths[0] > 1.3 * widths[1]


def test_interval_stays_between_0_and_1() -> None:
    for losses in ([1] + [0] * 29, [PER_PART] * 29 + [PER_PART - 1]):
        found = share_of_counts(losses, [PER_PART] * 30)
        assert found.low is not None and found.high is not None
        assert 0 <= found.low <= found.value <= found.high <= 1


def test_counts_that_show_no_dependence_have_no_interval() -> None:
    assert share_of_counts([0] * 30, [PER_PART] * 30).reason == (
        "all counts are alike: they do not show how much they depend on each other"
    )
    assert share_of_counts([1] * 9, [PER_PART] * 9).reason == "9 intervals are too few: 10 are needed"


@pytest.mark.parametrize(("found", "totals"), [([1, 2], [3]), ([], []), ([0, 0], [0, 0])])
def test_counts_without_sense_are_refused(found: list[int], totals: list[int]) -> None:
    with pytest.raises(ValueError, match=r"needed|needs|counted"):
        share_of_counts(found, totals)


def test_none_of_some_is_bounded_by_their_number() -> None:
    none, every = share_of_total(0, 500), share_of_total(500, 500)
    assert [none.value, none.low, none.high] == pytest.approx([0, 0, 1 - 0.025 ** (1 / 500)])
    assert [every.value, every.low, every.high] == pytest.approx([1, 0.025 ** (1 / 500), 1])
    assert total_of_none(none.high or 0) == pytest.approx(500)
    # Clopper and Pearson's own example, 95 %: 3 of 10.
    some = share_of_total(3, 10)
    assert [some.low, some.high] == pytest.approx([0.0667, 0.6525], abs=1e-4)


@pytest.mark.parametrize("total", [20, 500])
@pytest.mark.parametrize("share", [0.001, 0.01, 0.3])
def test_exact_interval_contains_the_truth_at_least_as_often_as_it_says(share: float, total: int) -> None:
    """By the chance of each count that there may be."""
    found = [share_of_total(count, total) for count in range(total + 1)]
    chances = [math.comb(total, count) * share**count * (1 - share) ** (total - count) for count in range(total + 1)]
    assert sum(chances[count] for count, one in enumerate(found) if contains(one.low, one.high, share)) >= 0.95


@pytest.mark.parametrize(("found", "total"), [(0, 0), (2, 1), (-1, 5)])
def test_share_of_a_total_without_sense_is_refused(found: int, total: int) -> None:
    with pytest.raises(ValueError, match="is no share"):
        share_of_total(found, total)
