"""How far a series goes one way, by Kendall's count of the pairs in order, and whether a short one still grows at its
end: a rank test for a trend, and the slope of its second half.

A queue that grows makes each value larger than those before it, by the same amount; noise, a stall and a level that has
been reached do not. Ranks decide, so that one odd value does not.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from leadline.statistics.estimate import Values, one_dimension

MIN_VALUES = 5
"""Of four values even the clearest order has a probability of 4 %."""
SIGNIFICANCE = 0.01
"""The probability that values in random order count as growing."""
_MIN_SHARE = 0.5
"""Of the slope of the whole series, that its second half has at least: what grew and has settled has less."""


def kendall_tau(values: ArrayLike) -> float:
    """Return Kendall's tau of the values and their order, from -1 (each is below all before it) to 1; 0 of fewer than
    two.

    Raises:
        ValueError: no value, or one that is not finite.
    """
    array = one_dimension(values)
    pairs = len(array) * (len(array) - 1) // 2
    return _score(array) / pairs if pairs else 0.0


def slope_at_end(values: ArrayLike, significance: float = SIGNIFICANCE) -> float | None:
    """Return by how much a series grows from one value to the next in its second half; None where it does not grow, or
    no longer does.

    Mann and Kendall's test of the whole series, one-sided, with its exact distribution; the slopes are Theil and
    Sen's, the medians of all pairs' slopes. The second half has at least three values.

    Source: M. G. Kendall, Rank Correlation Methods (4th edition, 1975); P. K. Sen, Estimates of the regression
    coefficient based on Kendall's tau, Journal of the American Statistical Association 63 (1968).

    Raises:
        ValueError: no value, or one that is not finite.
    """
    array = one_dimension(values)
    if len(array) < MIN_VALUES:
        return None
    if _chance_of(_score(array), len(array)) > significance:
        return None
    whole, end = _slope(array), _slope(array[len(array) // 2 - (len(array) < 2 * 3) :])
    return end if end >= _MIN_SHARE * whole > 0 else None


def _score(values: Values) -> int:
    """The number of pairs in order, less the others."""
    rows, columns = np.triu_indices(len(values), 1)
    return int(np.sign(values[columns] - values[rows]).sum())


def _slope(values: Values) -> float:
    rows, columns = np.triu_indices(len(values), 1)
    return float(np.median((values[columns] - values[rows]) / (columns - rows)))


def _chance_of(score: int, number: int) -> float:
    """The probability that a random order of different values has at least this score."""
    pairs = number * (number - 1) // 2
    inversions = (pairs - score) // 2
    return 0.0 if inversions < 0 else float(_inversions(number)[: inversions + 1].sum())


@cache
def _inversions(number: int) -> Values:
    """How likely each number of inversions is in a random order, from 0 on (the Mahonian numbers)."""
    found = np.ones(1)
    for length in range(2, number + 1):
        found = np.convolve(found, np.full(length, 1.0 / length))
    return np.asarray(found, dtype=np.float64)
