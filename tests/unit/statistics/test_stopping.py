"""Intervals of repeats that end by their own interval contain the truth as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import stdtrit

from leadline.statistics import stopping_confidence
from synthetic import assert_share

SETS = 4000
UNTIL = 0.03


def covered(noise: float, confidence: float, least: int, most: int, until: float = UNTIL) -> NDArray[np.bool_]:
    """Whether the interval of each set contains the truth, which is 1, at the repeat that ends the set."""
    rows = 1 + noise * np.random.default_rng(round(1000 * noise)).standard_normal((SETS, most))
    counts = np.arange(1, most + 1)
    means = np.cumsum(rows, axis=1) / counts
    squares = np.maximum(np.cumsum(rows**2, axis=1) - counts * means**2, 0)
    halves = np.full((SETS, most), np.inf)
    looks = slice(least - 1, None)
    quantiles = stdtrit(counts[looks] - 1, 0.5 + confidence / 2)
    halves[:, looks] = quantiles * np.sqrt(squares[:, looks] / (counts[looks] - 1) / counts[looks])
    ends = halves <= until * means
    ends[:, -1] = True
    at = np.arange(SETS), ends.argmax(axis=1)
    return np.asarray(np.abs(means[at] - 1) <= halves[at])


@pytest.mark.parametrize("noise", [0.01, 0.02, 0.03, 0.05, 0.08])
@pytest.mark.parametrize(("least", "most"), [(3, 15), (5, 15), (3, 40), (10, 30)])
def test_interval_at_the_end_contains_the_truth_whatever_the_noise(noise: float, least: int, most: int) -> None:
    found = covered(noise, stopping_confidence(0.95, least, most), least, most)
    assert_share(found.tolist(), 0.95, 0.985)


@pytest.mark.parametrize("confidence", [0.9, 0.99])
def test_other_confidences_are_kept(confidence: float) -> None:
    shares = [covered(noise, stopping_confidence(confidence, 3, 15), 3, 15).mean() for noise in (0.02, 0.04, 0.06)]
    assert min(shares) >= confidence - 0.01


def test_interval_of_one_look_would_contain_it_too_rarely() -> None:
    """The reason for all this: 5 % noise, from 3 to 15 repeats until 3 %."""
    assert covered(0.05, 0.95, 3, 15).mean() < 0.92


def test_fixed_number_of_repeats_is_one_look() -> None:
    assert stopping_confidence(0.95, 10, 10) == 0.95


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.999])
def test_more_repeats_before_the_first_look_cost_less(confidence: float) -> None:
    asked = [stopping_confidence(confidence, least, 100) for least in (3, 5, 10, 30, 99)]
    assert asked == sorted(asked, reverse=True)
    assert confidence < asked[-1] < asked[0] < 1


@pytest.mark.parametrize(("confidence", "least", "most"), [(1.0, 3, 15), (0.0, 3, 15), (0.95, 0, 15), (0.95, 5, 4)])
def test_what_is_no_rule_is_refused(confidence: float, least: int, most: int) -> None:
    with pytest.raises(ValueError, match="no rule"):
        stopping_confidence(confidence, least, most)
