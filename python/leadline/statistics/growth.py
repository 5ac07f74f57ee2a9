"""How a figure grows with a number: the exponent with its interval, and whether that is linear.

`figure = a * number ** exponent` is a straight line in logarithms. Repeats of one number share its systematic error
(where a table is rehashed, how clients fell on cores), so they are no points of their own: the line is fitted to one
mean for each number. A line that bends has no exponent to be called linear, however narrow its interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

from leadline.statistics.estimate import CONFIDENCE, Estimate, Values, mean_of, one_dimension, t_quantile, unbounded

LINEAR_WITHIN = 0.1
"""An exponent whose whole interval lies within this of 1 is as good as linear."""
CONSTANT_WITHIN = 0.1
"""One whose whole interval lies within this of 0 is as good as constant."""
BEND = 0.3
"""How far the exponent of the upper numbers may be from that of the lower ones before a straight line misleads."""


class Growth(StrEnum):
    """The growth that an exponent indicates."""

    CONSTANT = "constant"
    LESS = "less than linear"
    LINEAR = "linear"
    MORE = "more than linear"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """A fit of `figure = a * number ** exponent`.

    `numbers` are the different numbers in ascending order and `means` the mean figure at each, in the figures' unit.
    `lower_exponent` is that between the first and the middle number, `upper_exponent` that between the middle and the
    last one, None with fewer than three numbers. A line that `bends` has no growth.
    """

    numbers: tuple[float, ...]
    means: tuple[float, ...]
    exponent: Estimate
    lower_exponent: float | None
    upper_exponent: float | None
    growth: Growth

    @property
    def bends(self) -> bool:
        """Whether the exponents of the two halves differ by more than `BEND`."""
        if self.lower_exponent is None or self.upper_exponent is None:
            return False
        return abs(self.upper_exponent - self.lower_exponent) > BEND

    def figure(self, number: float) -> float:
        """What the fit says at a number, in the figures' unit."""
        # Least squares go through the middle of the logarithms.
        middle, mean = (math.fsum(map(math.log, some)) / len(some) for some in (self.numbers, self.means))
        return math.exp(mean + self.exponent.value * (math.log(number) - middle))


def means_by_number(numbers: ArrayLike, figures: ArrayLike) -> tuple[Values, Values]:
    """The different numbers in ascending order, and the mean of the figures at each.

    Raises:
        ValueError: no point, a value that is not finite, or arrays of different lengths.
    """
    at, of = one_dimension(numbers), one_dimension(figures)
    if len(at) != len(of):
        raise ValueError(f"{len(at)} numbers and {len(of)} figures are no points")
    different = np.unique(at)
    return different, np.array([mean_of(of[at == number]) for number in different])


def power_law(numbers: ArrayLike, figures: ArrayLike, confidence: float = CONFIDENCE) -> PowerLaw:
    """The exponent of a figure's growth with a number, by least squares of the logarithms of per-number means.

    The interval is Student's t for a slope, with two degrees of freedom fewer than there are different numbers; it
    assumes that the means scatter evenly around such a line. Unbounded with fewer than three numbers. Subtract what a
    system costs at rest first: a fixed cost bends the line at small numbers.

    Source: N. R. Draper, H. Smith, Applied Regression Analysis (3rd edition, 1998), chapter 1.

    Raises:
        ValueError: fewer than two different numbers, or a number or a figure that is not above 0.
    """
    at, means = means_by_number(numbers, figures)
    if len(at) < 2:
        raise ValueError("one number says nothing of growth: two or more are needed")
    if at[0] <= 0 or min(one_dimension(figures)) <= 0:
        raise ValueError("numbers and figures have to be above 0: growth is fitted to their logarithms")
    xs, ys = np.log(at), np.log(means)
    exponent = _slope(xs, ys, confidence)
    middle = len(at) // 2
    lower = _between(xs, ys, 0, middle) if len(at) > 2 else None
    upper = _between(xs, ys, middle, -1) if len(at) > 2 else None
    bends = lower is not None and upper is not None and abs(upper - lower) > BEND
    growth = Growth.UNKNOWN if bends else growth_of(exponent)
    return PowerLaw(tuple(at.tolist()), tuple(means.tolist()), exponent, lower, upper, growth)


def growth_of(exponent: Estimate) -> Growth:
    """The word for an exponent. Only an interval that lies on one side says anything."""
    low, high = exponent.low, exponent.high
    if low is None or high is None:
        return Growth.UNKNOWN
    if low >= 1 - LINEAR_WITHIN and high <= 1 + LINEAR_WITHIN:
        return Growth.LINEAR
    if low >= -CONSTANT_WITHIN and high <= CONSTANT_WITHIN:
        return Growth.CONSTANT
    if low > 1:
        return Growth.MORE
    return Growth.LESS if high < 1 else Growth.UNKNOWN


def _slope(xs: Values, ys: Values, confidence: float) -> Estimate:
    from_x, from_y = xs - xs.mean(), ys - ys.mean()
    spread = float(from_x @ from_x)
    slope = float(from_x @ from_y) / spread
    freedom = len(xs) - 2
    if freedom < 1:
        return unbounded(slope, len(xs), f"{len(xs)} numbers give no interval: give at least three, better five")
    residuals = from_y - slope * from_x
    half = t_quantile(freedom, confidence) * math.sqrt(float(residuals @ residuals) / freedom / spread)
    return Estimate(slope, slope - half, slope + half, len(xs))


def _between(xs: Values, ys: Values, first: int, last: int) -> float:
    return float((ys[last] - ys[first]) / (xs[last] - xs[first]))
