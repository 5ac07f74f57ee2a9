"""Synthetic data with known answers, and bands for shares of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

SETS = (pytest.param(4000), pytest.param(10_000, marks=pytest.mark.full_matrix))
"""How many data sets a share is counted in: that of 4,000 is off by 0.7 % at most in 95 %."""


def ar1(correlation: float, sets: int, length: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Rows of a stationary AR(1) process with mean 0 and variance 1."""
    shocks = generator.standard_normal((length, sets))
    rows = np.empty((length, sets))
    rows[0] = shocks[0]
    for index in range(1, length):
        rows[index] = correlation * rows[index - 1] + math.sqrt(1 - correlation**2) * shocks[index]
    return np.ascontiguousarray(rows.T)


def assert_share(found: Sequence[bool], low: float, high: float = 1.0) -> None:
    """The share of true values lies in the band. A fixed seed gives the same share each time, so nothing is allowed for
    chance: where a band is narrow, there are enough data sets to see whether the method itself stays inside of it."""
    share = sum(found) / len(found)
    assert low <= share <= high, f"{share:.2%} of {len(found)}"


def contains(low: float | None, high: float | None, truth: float) -> bool:
    """Whether an interval contains the truth; a side that is not bounded excludes nothing."""
    return (low is None or low <= truth) and (high is None or truth <= high)
