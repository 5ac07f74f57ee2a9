"""An estimate with its interval, and Student's t.

Owns the record that every other module of the package gives. A bound that the data does not allow is None, and the
estimate says why: an interval is never replaced by a guess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leadline.statistics.incomplete_beta import student_quantile

Values = NDArray[np.float64]

CONFIDENCE = 0.95
"""The share of all intervals that are to contain the truth."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate with a confidence interval, in the unit of the values that it was made from.

    `low` and `high` are None where the data does not bound the truth on that side: `reason` then says why, in words
    for a person. `independent` is the number of independent observations that the interval rests on: repeats, or
    batches of a series after the correction for autocorrelation. It need not be a whole number.
    """

    value: float
    low: float | None
    high: float | None
    independent: float
    reason: str | None = None

    @property
    def half_width_ratio(self) -> float | None:
        """Precision: half of the interval's length divided by the estimate's size; None without an interval, or where
        the estimate is 0 and the interval is not."""
        if self.low is None or self.high is None:
            return None
        half = (self.high - self.low) / 2
        if half == 0:
            return 0.0
        return half / abs(self.value) if self.value else None


def unbounded(value: float, independent: float, reason: str) -> Estimate:
    """An estimate that the data bounds on neither side."""
    return Estimate(value, None, None, independent, reason)


@cache
def t_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """The bound that |t| stays below with a probability of `confidence`: Student's t with `freedom` degrees of freedom,
    which need not be a whole number.

    Raises:
        ValueError: `freedom` is not above 0, or `confidence` does not lie between 0 and 1.
    """
    return student_quantile(freedom, confidence)


def one_dimension(values: ArrayLike, least: int = 1) -> Values:
    """The values as an array.

    Raises:
        ValueError: there are fewer than `least`, they have more than one dimension, or one of them is not finite.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < least:
        raise ValueError(f"{least} or more values in one dimension are needed, not an array of shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("every value has to be finite")
    return array


def mean_of(values: Values) -> float:
    """The mean; of equal values exactly their own."""
    return float(values[0]) + math.fsum(values - values[0]) / len(values)
