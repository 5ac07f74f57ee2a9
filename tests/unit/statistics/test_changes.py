"""A planted regression is found near its place, and a steady history raises no alarm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from leadline.statistics import change_points, changes
from leadline.statistics.estimate import Values
from synthetic import assert_share

HISTORIES = (pytest.param(200), pytest.param(2000, marks=pytest.mark.full_matrix))


def histories(number: int, seed: int, length: int = 60) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Nightly runs with 2 % noise around 100."""
    return 100 * (1 + 0.02 * np.random.default_rng(seed).standard_normal((number, length)))


@pytest.mark.parametrize("number", HISTORIES)
def test_regression_of_5_percent_is_found_within_two_runs_and_nothing_else(number: int) -> None:
    rows = histories(number, 1)
    rows[:, 30:] *= 0.95
    places = [[change.index for change in change_points(row)] for row in rows]
    assert_share([any(abs(place - 30) <= 2 for place in one) for one in places], 0.95)
    assert_share([all(abs(place - 30) <= 2 for place in one) for one in places], 0.95)


@pytest.mark.parametrize("number", HISTORIES)
def test_steady_history_has_no_change_point(number: int) -> None:
    assert_share([change_points(row) == () for row in histories(number, 2)], 0.98)


def test_noise_with_outliers_raises_no_alarm() -> None:
    rows = 100 + np.random.default_rng(3).standard_t(3, (200, 60))
    assert_share([change_points(row) == () for row in rows], 0.98)


def test_new_regression_is_known_after_five_runs() -> None:
    """Fewer runs cannot be certain: two after the shift, three histories in ten tell it."""
    rows = histories(200, 4, 35)
    rows[:, 30:] *= 0.95
    assert_share([bool(change_points(row)) for row in rows], 0.8)
    early = [bool(change_points(row[:32])) for row in rows]
    assert_share(early, 0.15, 0.45)


def test_levels_and_ratio_of_a_change() -> None:
    values = [100.0] * 10 + [50.0] * 10 + [75.0] * 10
    first, second = change_points(np.array(values) + np.tile([0.1, -0.1], 15))
    assert (first.index, second.index) == (10, 20)
    assert [first.before, first.after, second.after] == pytest.approx([100, 50, 75])
    assert second.ratio == pytest.approx(1.5)
    assert first.probability <= 0.01


def test_same_seed_gives_the_same_change_points() -> None:
    row = histories(1, 5)[0]
    row[40:] *= 1.1
    assert change_points(row) == change_points(row)


@pytest.mark.parametrize("values", [[5.0], [5.0] * 3, [5.0] * 60])
def test_short_and_constant_histories_have_no_change_point(values: list[float]) -> None:
    assert change_points(values) == ()


def test_parameters_without_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="a significance below 1"):
        change_points([1.0, 2.0], significance=1.0)
    with pytest.raises(ValueError, match="finite"):
        change_points([1.0, float("nan")])


def test_no_more_orders_are_drawn_than_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them where there is a shift, because they tell its probability; few where there is none."""
    drawn = [0]
    searched = changes._best_splits

    def counted(rows: Values, least: int) -> Any:
        drawn[0] += len(rows)
        return searched(rows, least)

    monkeypatch.setattr(changes, "_best_splits", counted)
    alternating = np.array([1.0, 2.0] * 20)
    assert change_points(alternating) == ()
    assert drawn[0] < changes.RESAMPLES / 5
    (found,) = change_points(np.array([*alternating[:20], *(alternating[20:] + 5)]))
    assert found.probability == 1 / (1 + changes.RESAMPLES)
    assert drawn[0] > changes.RESAMPLES
