"""Whether a series still grows at its end."""

from __future__ import annotations

import numpy as np
import pytest

from leadline.statistics.monotone import kendall_tau, slope_at_end


@pytest.mark.parametrize("number", [5, 6, 10, 60])
def test_straight_line_has_its_slope(number: int) -> None:
    assert slope_at_end(3.0 + 0.5 * np.arange(number)) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "values",
    [[1.0, 2.0, 3.0, 4.0], [1.0] * 10, [*range(10, 0, -1)], [1, 2, 3, 4, 5, 5, 5, 5, 5, 5], [1.0] * 9 + [50.0]],
)
def test_what_does_not_grow_at_its_end_has_none(values: list[float]) -> None:
    assert slope_at_end(values) is None


def test_random_order_counts_as_growing_in_one_of_a_hundred() -> None:
    chance = np.random.default_rng(1)
    for number in (5, 10, 30):
        grew = sum(slope_at_end(chance.normal(size=number)) is not None for _ in range(500))
        assert grew <= 10


def test_growth_is_seen_through_noise_of_its_own_size() -> None:
    chance = np.random.default_rng(2)
    series = np.arange(10) + chance.normal(size=(100, 10))
    assert sum(slope_at_end(one) is not None for one in series) >= 90


@pytest.mark.parametrize(
    ("values", "tau"),
    [([1.0, 2.0, 3.0], 1.0), ([3.0, 2.0, 1.0], -1.0), ([1.0, 3.0, 2.0], 1 / 3), ([5.0, 5.0], 0.0), ([7.0], 0.0)],
)
def test_tau_is_the_share_of_pairs_in_order_less_the_others(values: list[float], tau: float) -> None:
    assert kendall_tau(values) == pytest.approx(tau)
