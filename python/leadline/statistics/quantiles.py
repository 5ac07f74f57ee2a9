"""Intervals of a quantile by order statistics, from single values or from the buckets of a merged histogram.

How many of n independent values lie below the true quantile follows a binomial distribution, whatever the values'
distribution. The values at two ranks therefore bound the quantile. Values that resemble their neighbours count for
fewer than they are: `independent_count` says for how many.

Source: W. J. Conover, Practical Nonparametric Statistics (3rd edition, 1999), section 3.2. Fractional ranks:
A. D. Hutson, Calculating nonparametric confidence intervals for quantiles using fractional order statistics, Journal of
Applied Statistics 26 (1999).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leadline.statistics.estimate import CONFIDENCE, Estimate, Values, one_dimension, t_quantile
from leadline.statistics.incomplete_beta import binomial_quantile
from leadline.statistics.means import lag_correlation

MIN_PARTS = 5
"""Fewer parts of a test say nothing of how much they differ by more than chance."""
_MANY = 1e9
_MAX_CORRELATION = 0.95
_ROOM = 3.0
"""Divided by the number of parts: by how much their correlation may be more than what they show. It is about one
standard error of ten parts, half of one of thirty, and of no account for hundreds."""


def quantile_of_values(
    values: ArrayLike, share: float, independent: float | None = None, confidence: float = CONFIDENCE
) -> Estimate:
    """The value that `share` (above 0, below 1) of all do not exceed, by nearest rank, with its interval.

    `independent` is how many independent values the sample is worth, at most its size; all of them where None. A side
    is unbounded where too few values lie beyond the quantile: the 99th percentile has an upper bound from 368 values
    on.

    Measured coverage of 95 % intervals, for shares 0.5, 0.9 and 0.99 of 100 to 5,000 independent exponential values: 94
    to 96 % where both sides are bounded, 98 % where one is.

    Raises:
        ValueError: no value, one that is not finite, or a share that is not between 0 and 1.
    """
    array = np.sort(one_dimension(values))
    low, high, reason, worth = _positions(len(array), share, independent, confidence)
    ranks = np.arange(1, len(array) + 1)
    return Estimate(
        float(array[_nearest_rank(len(array), share) - 1]),
        None if low is None else float(np.interp(low, ranks, array)),
        None if high is None else float(np.interp(high, ranks, array)),
        worth,
        reason,
    )


def quantile_of_buckets(
    lows: ArrayLike,
    highs: ArrayLike,
    counts: NDArray[np.int64],
    share: float,
    *,
    independent: float | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """The quantile of a histogram: occupied buckets in ascending order, with the lowest and the highest value of each
    and the number of values in it.

    A quantile is its bucket's highest value, as HdrHistogram has it. The lower bound is the lowest value of its bucket,
    the upper bound the highest one: what a bucket hides only widens the interval.

    Raises:
        ValueError: no bucket, arrays of different lengths, no count, or a share that is not between 0 and 1.
    """
    bottoms, tops = one_dimension(lows), one_dimension(highs)
    reached = np.cumsum(counts)
    if not len(bottoms) == len(tops) == len(reached):
        raise ValueError("every bucket needs a lowest value, a highest value and a count")
    total = int(reached[-1])
    if total < 1:
        raise ValueError("the histogram holds no value")
    low, high, reason, worth = _positions(total, share, independent, confidence)
    value = tops[np.searchsorted(reached, _nearest_rank(total, share))]
    return Estimate(
        float(value),
        None if low is None else float(bottoms[np.searchsorted(reached, math.floor(low))]),
        None if high is None else float(tops[np.searchsorted(reached, math.ceil(high))]),
        worth,
        reason,
    )


def independent_count(
    above: ArrayLike, totals: ArrayLike, confidence: float = CONFIDENCE, *, correlation: float = 0.0
) -> float | None:
    """How many independent values a sample is worth for one quantile, from equal parts of the test in order.

    `above` is how many values of each part exceed the quantile, `totals` how many values each part has. Values of one
    part that resemble each other make the parts differ by more than chance: by the design effect. What chance makes of
    it has no memory; the rest resembles that of the part before by the counts' own autocorrelation, freed of chance,
    or by `correlation`, if that is more: a level that wanders shows its own in the middle of the values better than in
    what few of them exceed (`level_correlation`). The sample is worth its size divided by the effect, and less where
    few parts tell it: those that are independent, and of these as many as hold the values beyond the quantile.

    None where there are fewer than `MIN_PARTS` parts, or no value or every value exceeds the quantile: nothing can be
    said then. At most the number of values.

    Measured coverage of 95 % intervals made with it, for 300 lognormal values in each part whose level wanders with a
    correlation rho from part to part, with that of the median for all of them, an unbounded side counted as one that
    contains the truth: the 99th percentile of 30 or 120 parts 93 to 97 % for rho 0 to 0.8, of 10 parts 95 to 98 % up to
    0.6 and 92 % at 0.8. The median of 15, 30 or 120 parts 94 to 97 % for rho 0 to 0.8; of 10 parts 95 to 97 % up to
    0.3, 93 % at 0.6 and 91 to 92 % at 0.8, because so few cannot show that, and room for it would make all intervals of
    parts that differ at random too wide. The price at rho 0.8: of 30 parts three in four leave the 99th percentile
    without an upper bound, and the median of two in three tests has no interval.

    Source: L. Kish, Survey Sampling (1965), on the ratio of clusters; E. L. Korn, B. I. Graubard, Confidence
    intervals for proportions with small expected number of positive counts, Survey Methodology 24 (1998).

    Raises:
        ValueError: no part, arrays of different lengths, or a value that is not finite.
    """
    parts = _Parts.of(above, totals)
    if parts is None:
        return None
    number = len(parts.deviations)
    excess, own = parts.excess, parts.correlation
    level = max(correlation, _raised(own / excess, number) if excess > 0 else 0.0)
    inflation = 1 - excess + excess * inflate(level)
    independent = number / inflation
    variance = parts.variance / max(1 - 1 / independent, 0.1)
    effect = variance * inflation / parts.chance
    return parts.worth(effect, min(independent, parts.holders * independent / number) - 1, confidence)


def count_beside_bursts(above: ArrayLike, totals: ArrayLike, confidence: float = CONFIDENCE) -> float | None:
    """How many independent values a sample is worth for one quantile whose parts are freed of their own levels, so that
    they do not resemble their neighbours: by the design effect alone, and by how few parts tell it. What is left are
    bursts, as of stalls.

    None as of `independent_count`.

    Raises:
        ValueError: no part, arrays of different lengths, or a value that is not finite.
    """
    parts = _Parts.of(above, totals)
    if parts is None:
        return None
    number = len(parts.deviations)
    effect = parts.variance * number / (number - 1) / parts.chance
    return parts.worth(effect, min(number, parts.holders) - 1, confidence)


def level_correlation(above: ArrayLike, totals: ArrayLike) -> float:
    """How much the level of a part resembles that of the part before, from 0 to 0.95: the autocorrelation of how many
    values exceed a quantile, freed of what chance adds to it. 0 where the parts differ by chance alone.

    Raises:
        ValueError: no part, arrays of different lengths, or a value that is not finite.
    """
    parts = _Parts.of(above, totals)
    return min(parts.correlation / parts.excess, _MAX_CORRELATION) if parts is not None and parts.excess > 0 else 0.0


@dataclass(frozen=True, slots=True)
class _Parts:
    """How the parts of a test differ in how many of their values exceed a quantile."""

    total: float
    deviations: Values
    """Of each part's count from its share of all."""
    variance: float
    chance: float
    """The variance that chance alone would give."""
    holders: float
    """As many parts of equal counts would hold the values on the rarer side of the quantile."""

    @classmethod
    def of(cls, above: ArrayLike, totals: ArrayLike) -> _Parts | None:
        exceeding, sizes = one_dimension(above), one_dimension(totals)
        if len(exceeding) != len(sizes):
            raise ValueError("every part needs both counts")
        total, found = float(sizes.sum()), float(exceeding.sum())
        if len(sizes) < MIN_PARTS or not 0 < found < total:
            return None
        ratio = found / total
        deviations = exceeding - ratio * sizes
        deviations = np.asarray(deviations - deviations.mean())
        held = [(float(side.sum()) ** 2 / float(side @ side)) for side in (exceeding, sizes - exceeding)]
        variance = float(deviations @ deviations) / len(sizes)
        return cls(total, deviations, variance, total * ratio * (1 - ratio) / len(sizes), min(held))

    def worth(self, effect: float, freedom: float, confidence: float) -> float:
        """How many independent values all are worth, by a design effect of `freedom` + 1 independent parts."""
        certainty = (t_quantile(_MANY, confidence) / t_quantile(max(freedom, 1.0), confidence)) ** 2
        # Parts that differ as much as chance makes them differ are worth all their values, however few they are.
        return self.total / max(1.0, 1 + (effect - 1) / certainty)

    @property
    def excess(self) -> float:
        """The share of the variance that chance does not explain."""
        return max(0.0, 1 - self.chance / self.variance) if self.variance > 0 else 0.0

    @property
    def correlation(self) -> float:
        """The lag-1 autocorrelation of the counts, corrected for its bias; 0 where it is negative."""
        if self.variance <= 0:
            return 0.0
        found = lag_correlation(self.deviations, self.variance * len(self.deviations))
        return min(max(found, 0.0), _MAX_CORRELATION)


def _raised(correlation: float, number: int) -> float:
    """An estimated correlation with room for its error where few parts tell it: by less where hardly any was seen, so
    that the intervals of independent parts do not become wider."""
    found = min(correlation, _MAX_CORRELATION)
    room = _ROOM / number * min(1.0, (3 * found) ** 2) * math.sqrt(1 - found**2)
    return min(found + room, _MAX_CORRELATION)


def inflate(correlation: float) -> float:
    """How much more than independent values' the variance of the mean of a first-order series is."""
    return (1 + correlation) / (1 - correlation)


def _positions(
    total: int, share: float, independent: float | None, confidence: float
) -> tuple[float | None, float | None, str | None, float]:
    """Ranks (from 1, fractional) of the bounds among `total` values, why one is missing, and what the sample is
    worth."""
    if not 0 < share < 1:
        raise ValueError(f"a quantile lies between 0 and 1, not at {share}")
    worth = float(total) if independent is None else max(1.0, min(independent, float(total)))
    tail = (1 - confidence) / 2
    # The r-th of n values lies above the quantile with the probability that fewer than r values lie below it.
    scale = (total + 1) / (worth + 1)
    low = None if (1 - share) ** worth > tail else (1 + binomial_quantile(tail, worth, share)) * scale
    high = None if share**worth > tail else (1 + binomial_quantile(1 - tail, worth, share)) * scale
    low = None if low is None or low < 1 else low
    high = None if high is None or high > total else high
    if low is not None and high is not None:
        return low, high, None, worth
    side = "from below or above" if low is None and high is None else "from below" if low is None else "from above"
    return low, high, f"{worth:.4g} independent values do not bound this quantile {side}", worth


def _nearest_rank(total: int, share: float) -> int:
    # The product can come out a hair above a whole number.
    return max(1, math.ceil(share * total * (1 - 1e-12)))
