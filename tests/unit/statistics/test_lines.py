"""A line of two parts: it recovers what made the figures, and its intervals contain it as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from leadline.statistics import line

SIZES = np.array([64.0, 256.0, 512.0, 1024.0, 1400.0])


def test_a_line_without_noise_is_found() -> None:
    found = line(SIZES, 800 + 0.5 * SIZES)
    assert found is not None
    assert [found.fixed.value, found.slope.value] == pytest.approx([800, 0.5])


def test_neither_part_is_below_0() -> None:
    found = line(SIZES, 2 * SIZES - 60)
    assert found is not None
    assert found.fixed.value == 0 and found.slope.value > 1


@pytest.mark.parametrize("numbers", [[64.0], [64.0, 64.0]])
def test_one_number_makes_no_line(numbers: list[float]) -> None:
    assert line(numbers, [1.0] * len(numbers)) is None


def test_two_numbers_have_no_interval() -> None:
    found = line([64.0, 1400.0], [800.0, 1500.0])
    assert found is not None
    assert (found.fixed.low, found.fixed.reason) == (None, "2 numbers give no interval: give at least three")


def test_intervals_contain_the_truth_as_often_as_they_say() -> None:
    random = np.random.default_rng(7)
    hits = 0
    for _ in range(1000):
        found = line(SIZES, (800 + 0.5 * SIZES) * (1 + 0.03 * random.standard_normal(len(SIZES))))
        assert found is not None and found.slope.low is not None and found.slope.high is not None
        hits += found.slope.low <= 0.5 <= found.slope.high
    assert 930 <= hits <= 970
