"""Exponents of growth: their intervals, words, bends, and what repeats do not add."""

from __future__ import annotations

import numpy as np
import pytest

from leadline.statistics import Growth, power_law
from synthetic import SETS, assert_share, contains

NUMBERS = np.repeat([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], 3)


@pytest.mark.parametrize("sets", SETS)
def test_linear_data_is_called_linear(sets: int) -> None:
    noise = 1 + 0.05 * np.random.default_rng(1).standard_normal((sets, len(NUMBERS)))
    assert_share([power_law(NUMBERS, 7 * NUMBERS * row).growth is Growth.LINEAR for row in noise], 0.95)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.3])
def test_interval_of_the_exponent_contains_the_truth(exponent: float) -> None:
    noise = np.exp(0.05 * np.random.default_rng(2).standard_normal((1000, len(NUMBERS))))
    found = [power_law(NUMBERS, 7 * NUMBERS**exponent * row).exponent for row in noise]
    assert_share([contains(one.low, one.high, exponent) for one in found], 0.93, 0.97)


@pytest.mark.parametrize(
    ("exponent", "growth"),
    [(0.0, Growth.CONSTANT), (0.5, Growth.LESS), (1.0, Growth.LINEAR), (1.05, Growth.LINEAR), (2.0, Growth.MORE)],
)
def test_word_for_exact_growth(exponent: float, growth: Growth) -> None:
    found = power_law(NUMBERS, 3 * NUMBERS**exponent)
    assert found.exponent.value == pytest.approx(exponent, abs=1e-12)
    assert found.growth is growth
    assert found.numbers == (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


@pytest.mark.parametrize("repeats", [1, 10, 100])
def test_repeats_add_no_points_and_a_bend_is_no_growth(repeats: int) -> None:
    """1, 6.3, 100 at 1, 10, 100: exponent 1, by a line that bends."""
    found = power_law(np.repeat([1.0, 10.0, 100.0], repeats), np.repeat([1.0, 6.3, 100.0], repeats))
    assert found.exponent.independent == 3
    assert found.exponent.low is not None and found.exponent.low < 0
    assert found.bends
    assert found.growth is Growth.UNKNOWN
    assert found.lower_exponent == pytest.approx(0.799, abs=1e-3)
    assert found.upper_exponent == pytest.approx(1.201, abs=1e-3)


def test_two_numbers_have_an_exponent_without_interval() -> None:
    found = power_law([1.0, 1.0, 10.0], [2.0, 4.0, 30.0])
    assert found.exponent.value == pytest.approx(1.0)
    assert found.means == (3.0, 30.0)
    assert (found.exponent.low, found.lower_exponent, found.bends, found.growth) == (None, None, False, Growth.UNKNOWN)
    assert found.exponent.reason == "2 numbers give no interval: give at least three, better five"


@pytest.mark.parametrize(
    ("numbers", "figures", "words"),
    [
        ([5.0, 5.0], [1.0, 2.0], "one number"),
        ([1.0, 2.0], [0.0, 2.0], "above 0"),
        ([0.0, 2.0], [1.0, 2.0], "above 0"),
        ([1.0, 2.0], [1.0], "no points"),
    ],
)
def test_points_that_show_no_growth_are_refused(numbers: list[float], figures: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        power_law(numbers, figures)
