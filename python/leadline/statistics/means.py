"""Intervals of a mean: over independent repeats, and within one test over a series of equal time intervals.

Neighbouring intervals of a test resemble each other (a TCP window, a queue, a noisy neighbour), so a series of n values
says less than n independent ones. It is cut into batches, whose means are nearly independent, and what autocorrelation
is left between batches is corrected for as in N-Skart. Repeats are preferable where there are enough: they also contain
what differs from one start to the next.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from leadline.statistics.estimate import CONFIDENCE, Estimate, Values, mean_of, one_dimension, t_quantile, unbounded

MIN_VALUES = 10
"""A series of fewer values has no interval: their deviation alone is too uncertain."""
LEAST_BATCHES = 30
"""A series has this many batches, and less than twice as many; below that a batch is one value. Fewer batches make the
interval wider by more than a tenth; more leave the slow part of the noise inside the batches' correlation, where a
correction of the first order does not see it."""
LEAST_INDEPENDENT = 3.0
"""With fewer independent batches an interval is more than five times as wide as it seems: it is withheld."""
LEAST_NEIGHBOURS = 20
"""Of fewer values the standard error of their autocorrelation is above 0.22: hardly any could be certain."""
MOST_LENGTHENING = 10.0
"""Beyond this, how much longer a series has to be is not said: what it shows of its changes does not go so far."""
MIN_PARTS = 5
"""Of each repeat, whose deviations from its mean are pooled."""
_MAX_CORRELATION = 0.95
_LEAST_TO_EXTEND = 2.0
"""Independent batches below which a series does not show how it would go on."""
_STEP = 1.05
"""By which lengths are tried."""
_AIMED = 0.8
"""Of the half width that is asked for: a length at which it is expected has it in half of all cases."""
_UNSEEN_CORRELATION = 0.025
"""By how much each value below `LEAST_BATCHES` raises the least autocorrelation that is assumed: 0.5 at 10 values,
which cannot show theirs."""


def mean_of_repeats(values: ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of independent repeats with Student's t-interval: n - 1 degrees of freedom.

    The interval is exact for normally distributed values. For skewed ones (lognormal with sigma 0.5) a 95 % interval of
    5 repeats contains the truth in 93 %. A single value has no interval.

    Source: W. S. Gosset ("Student"), The probable error of a mean, Biometrika 6 (1908).

    Raises:
        ValueError: no value, or one that is not finite.
    """
    array = one_dimension(values)
    mean = mean_of(array)
    if len(array) < 2:
        return unbounded(mean, 1, "one repeat has no interval: two or more are needed")
    return _interval(mean, _variance(array, mean) / len(array), len(array), confidence)


def no_narrower_than_parts(mean: Estimate, parts: ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """A mean over repeats whose interval is at least as wide as the equal parts of the repeats make it: `parts` has one
    row for each repeat, in order.

    The variance of the mean that the parts show is that of their deviations from their repeat's mean, pooled over all
    repeats: R rows of P parts have R (P - 1) degrees of freedom, where repeats have R - 1. It holds nothing of what
    differs between repeats, so it is only a lower limit. Where a rate goes up and down evenly, parts of one length
    differ more than the mean moves: of the rows as they are, and of their neighbours taken together in pairs, the
    narrower one counts.

    Measured of five repeats with ten parts each, how often 95 % intervals miss the truth with and without it: normal
    noise 5 and 5 %, a stall of a tenth of the time in every second repeat 4 and 7 %, parts that are Pareto (exponent of
    2.2) 4 and 7 %.

    Source: B. Schmeiser, Batch size effects in the analysis of simulation output, Operations Research 30 (1982), on
    how few batches are enough.

    Raises:
        ValueError: rows of different lengths, or a value that is not finite.
    """
    rows = np.asarray(parts, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise ValueError("every part has to be finite")
    if mean.low is None or mean.high is None or rows.ndim != 2 or rows.shape[1] < MIN_PARTS:
        return mean
    half = _half_width_of_parts(rows, confidence)
    if rows.shape[1] >= 2 * MIN_PARTS:
        half = min(half, _half_width_of_parts(np.stack([batch_means(row, 2) for row in rows]), confidence))
    return replace(mean, low=min(mean.low, mean.value - half), high=max(mean.high, mean.value + half))


def _half_width_of_parts(rows: Values, confidence: float) -> float:
    repeats, parts = rows.shape
    freedom = repeats * (parts - 1)
    squares = float(((rows - rows.mean(axis=1, keepdims=True)) ** 2).sum())
    return t_quantile(freedom, confidence) * math.sqrt(squares / freedom / rows.size)


def mean_of_series(values: ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of a stationary series of values from intervals of equal length, with an interval that allows for
    autocorrelation.

    Non-overlapping batch means: 30 to 59 batches of equal size (the first values that fill no batch count in the mean
    only), a lag-1 autocorrelation phi of the batch means, the variance of the mean multiplied by (1 + phi) / (1 - phi),
    and Student's t with as many degrees of freedom as there are independent batches left, less one. phi is corrected
    for its bias in short series, and never taken as negative: for values that alternate the interval is too wide. Fewer
    values than `LEAST_BATCHES` cannot show it: the fewer there are, the more of it is assumed, up to 0.5 at 10 values.

    Without an interval are series of fewer than `MIN_VALUES` values and those that are worth fewer than
    `LEAST_INDEPENDENT` independent batches.

    Measured coverage of 95 % intervals, an unbounded one counted as containing the truth: AR(1) with rho 0 to 0.9, 100
    to 600 values: 95 to 97 %; 30 values: 97 % at rho 0, 94 % at 0.6, 91 % at 0.9, where four in five are unbounded;
    10 to 20 values: 99 % at rho 0, 93 to 99 % at 0.6, and twice as wide as they need to be without autocorrelation.
    What no method can see in a short series is noise much slower than the batches, below faster noise: an AR(1) of
    rho 0.9 under white noise of the same size is covered in 95 % with 300 values, 90 % with 100, 69 % with 30.

    Source: A. Tafazzoli, N. M. Steiger, J. R. Wilson, N-Skart: a nonsequential skewness- and autoregression-adjusted
    batch-means procedure for simulation analysis, IEEE Transactions on Automatic Control 56 (2011), without the
    adjustment for skewness. The bias of phi: F. H. C. Marriott, J. A. Pope, Biometrika 41 (1954).

    Raises:
        ValueError: no value, or one that is not finite.
    """
    array = one_dimension(values)
    mean = mean_of(array)
    if len(array) < MIN_VALUES:
        return unbounded(mean, 1, f"{len(array)} intervals are too few: {MIN_VALUES} are needed")
    batches = batch_means(array, max(1, len(array) // LEAST_BATCHES))
    variance, independent = variance_of_mean(batches, _UNSEEN_CORRELATION * max(0, LEAST_BATCHES - len(batches)))
    if independent < LEAST_INDEPENDENT:
        reason = f"the series is too short for its slow changes: it is worth {independent:.2g} independent values"
        return unbounded(mean, independent, reason)
    return _interval(mean, variance, independent, confidence)


def lengthening(values: ArrayLike, half_width_ratio: float, confidence: float = CONFIDENCE) -> float | None:
    """How many times as long a series has to be, as uneven as it is, for half of its mean's interval to be
    `half_width_ratio` of the mean: 1 or more.

    The variance of the mean falls with the length, and the independent batches grow with it; the autocorrelation that
    is assumed of short series goes. None where that takes more than `MOST_LENGTHENING`, of fewer values than
    `LEAST_NEIGHBOURS`, and of a series that is worth fewer than two independent batches: it changes as slowly as it is
    long, and does not show how that goes on.

    Measured of AR(1) with rho 0 to 0.6, noise of 30 % of the mean and 50 or 100 values that were too few for 10 %: 61
    to 100 % of the series of the length that was said are precise enough, and 91 to 100 % of those twice as long. Of
    slow noise 20 values say too little, as for its interval: at rho 0.6 it is 24 and 57 %.

    Raises:
        ValueError: no value, or one that is not finite.
    """
    array = one_dimension(values)
    mean = mean_of(array)
    if mean <= 0 or len(array) < LEAST_NEIGHBOURS:
        return None
    batches = batch_means(array, max(1, len(array) // LEAST_BATCHES))
    times = 1.0
    while times <= MOST_LENGTHENING:
        unseen = _UNSEEN_CORRELATION * max(0.0, LEAST_BATCHES - times * len(batches))
        variance, independent = variance_of_mean(batches, unseen)
        if independent < _LEAST_TO_EXTEND:
            return None
        if independent * times >= LEAST_INDEPENDENT:
            half = t_quantile(independent * times - 1, confidence) * math.sqrt(variance / times)
            if half <= _AIMED * half_width_ratio * mean:
                return times
        times *= _STEP
    return None


def batch_means(values: Values, size: int) -> Values:
    """Means of neighbouring batches of `size` values; the values that are left over stand before the first batch."""
    count = len(values) // size
    return np.asarray(values[len(values) - count * size :].reshape(count, size).mean(axis=1))


def variance_of_mean(values: Values, least_correlation: float = 0.0) -> tuple[float, float]:
    """The variance of the mean of autocorrelated values, and how many independent values they are worth.

    Both from the lag-1 autocorrelation, corrected for bias: the estimate from n values of a correlation phi is low by
    (1 + 3 phi) / n, and their sample variance is low because they have less than n - 1 degrees of freedom.
    """
    count = len(values)
    deviations = values - values.mean()
    squares = float(deviations @ deviations)
    if squares == 0 or np.ptp(values) == 0:
        return 0.0, float(count)
    correlation = min(max(lag_correlation(deviations, squares), least_correlation), _MAX_CORRELATION)
    inflation = (1 + correlation) / (1 - correlation)
    independent = count / inflation
    variance = squares / count / max(1 - 1 / independent, 0.1)
    return variance * inflation / count, independent


def lag_correlation(deviations: Values, squares: float) -> float:
    """The lag-1 autocorrelation of values that differ from their mean by `deviations`, the sum of whose squares is
    `squares`; corrected for its bias."""
    count, raw = len(deviations), float(deviations[1:] @ deviations[:-1]) / squares
    return (count * raw + 1) / (count - 4)


def neighbours_correlation(values: Values) -> float | None:
    """The lag-1 autocorrelation of values where it is certain that neighbours resemble each other: above two standard
    errors, which independent values exceed in 2 to 3 %. None otherwise, and of fewer than `LEAST_NEIGHBOURS` values.
    """
    if len(values) < LEAST_NEIGHBOURS or np.ptp(values) == 0:
        return None
    deviations = values - values.mean()
    found = float(deviations[1:] @ deviations[:-1] / (deviations @ deviations))
    return found if found > 2 / math.sqrt(len(values)) else None


def _interval(mean: float, variance: float, independent: float, confidence: float) -> Estimate:
    half = t_quantile(independent - 1, confidence) * math.sqrt(variance)
    return Estimate(mean, mean - half, mean + half, independent)


def _variance(values: Values, mean: float) -> float:
    """The sample variance; 0 where all values are equal."""
    return math.fsum((values - mean) ** 2) / (len(values) - 1)
