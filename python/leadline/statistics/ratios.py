"""The ratio of two systems or runs, with its interval, and the four words that a comparison ends in.

Owns what is compared: means over repeats. Single requests or intervals of one run are no repeats: a comparison made
from those calls identical systems different far too often (A. Abedi, T. Brecht, Conducting repeatable experiments in
highly variable cloud computing environments, ICPE 2017).
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leadline.statistics.estimate import CONFIDENCE, Estimate, Values, mean_of, one_dimension, t_quantile, unbounded

LEAST_REPEATS = 3
"""The interval of two repeats has 12.7 standard errors on each side: it says nothing."""
LEAST_FOR_BOOTSTRAP = 8
"""Of fewer repeats a resample is often made of two that are nearly equal. Its standard error is then nearly 0, and its
distance in standard errors is that of no distribution: Student's t is taken instead."""
RESAMPLES = 4000
"""The bounds of a 95 % interval then stand on the outermost 100 resamples on each side."""
SEED = 20000
ASSUMED_CORRELATION = 0.35
"""Of neighbouring repeats, where slow changes of the machine are to be allowed for: at least."""
_MIN_FOR_CORRELATION = 6
_MAX_CORRELATION = 0.95
_MAX_LOAD_CHANGE = 0.9
_FARTHEST = math.log(1000)

Sides = tuple[Values, Values]


class Comparison(StrEnum):
    """How a candidate compares with its baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    CANNOT_TELL = "cannot tell"


def ratio_of_means(
    baseline: ArrayLike,
    candidate: ArrayLike,
    *,
    paired: bool = False,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Estimate:
    """The mean of the candidate's repeats divided by the mean of the baseline's, with its interval.

    Repeats that were measured in turn are `paired`: what both have in common (the hour, the neighbours) then cancels.
    The values are means of repeats in any unit; the ratio has none. The same seed gives the same interval.

    Of fewer than `LEAST_FOR_BOOTSTRAP` repeats: Student's t of the logarithm, whose standard error is that of the
    delta method, with n - 1 degrees of freedom for pairs and Welch's for others. From there on the studentised
    bootstrap of the logarithm, which assumes no distribution: repeats are drawn again with replacement, and the
    distance of each resample from the estimate is taken in its own standard errors.

    Measured coverage of 95 % intervals of 3 to 30 repeats, paired or not, normal with a deviation of 2 % or lognormal
    with 40 %: 94 to 97 %. Percentiles of resampled ratios (BCa, too) are narrow for few repeats: 78 % of 3, 92 % of
    10. The studentised bootstrap of 3 pairs covers 82 %; where the noise is 2 %, one interval of 3 pairs in ten is
    wider than ±13 % and one of 4 than ±33 %; by Student's t ±11 and ±7 %.

    Unbounded with fewer than `LEAST_REPEATS` repeats on a side, with a value that is not above 0, or where a bound
    would be off by more than a factor of 1000.

    Source: B. Efron, R. J. Tibshirani, An Introduction to the Bootstrap (1993), section 12.5; P. Hall, The Bootstrap
    and Edgeworth Expansion (1992), chapter 3. B. L. Welch, The generalization of Student's problem when several
    different population variances are involved, Biometrika 34 (1947).

    Raises:
        ValueError: no value, one that is not finite, a baseline whose mean is 0, or pairs of different numbers.
    """
    first, second = one_dimension(baseline), one_dimension(candidate)
    if paired and len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} repeats are no pairs")
    base = mean_of(first)
    if base == 0:
        raise ValueError("the baseline's mean is 0: there is no ratio to it")
    ratio, least = mean_of(second) / base, min(len(first), len(second))
    if least < LEAST_REPEATS:
        return unbounded(ratio, least, too_few(least))
    if first.min() <= 0 or second.min() <= 0:
        return unbounded(ratio, least, "a repeat is not above 0: a ratio to it says nothing")
    if least < LEAST_FOR_BOOTSTRAP:
        low, high = _student_bounds((first, second), paired, confidence)
    else:
        weights = _draws(len(first), resamples, seed), _draws(len(second), resamples, seed if paired else seed + 1)
        low, high = _bounds(weights, (first, second), paired, confidence)
    if max(-low, high) > _FARTHEST:
        return unbounded(ratio, least, f"{least} repeats are too few for how much they differ")
    return Estimate(ratio, ratio * math.exp(low), ratio * math.exp(high), least)


def with_slow_changes(ratio: Estimate, baseline: ArrayLike, candidate: ArrayLike, load_change: float = 0.0) -> Estimate:
    """The ratio of repeats of which one side was measured after the other, in the order of time, with an interval that
    allows for slow changes of the machine.

    Neighbouring repeats resemble each other where something changes slowly, and what changed between the sides is no
    difference of theirs. The variance is multiplied by (1 + phi) / (1 - phi), phi being the lag-1 autocorrelation of
    both sides' repeats, corrected for its bias, and at least 0.35: fewer than six repeats do not show it. `load_change`
    is by which share of the machine's CPUs other work differed between the sides, 0 to 1: as much of a rate may be
    its.

    Measured of two sides that are the same, called different with the interval before and with this one, at 3, 5 and
    10 repeats each: independent repeats 4, 5, 4 and 1, 1, 1 %; with half of their variance from an AR(1) of rho 0.8 6,
    14, 25 and 2, 4, 7 %. A step of the machine between the sides shows in neither, unless its load tells it.

    Raises:
        ValueError: no value, or one that is not finite.
    """
    if ratio.low is None or ratio.high is None or ratio.value <= 0:
        return ratio
    first, second = one_dimension(baseline), one_dimension(candidate)
    correlation = max(ASSUMED_CORRELATION, _pooled_correlation((first, second)))
    factor = math.sqrt((1 + correlation) / (1 - correlation))
    room = -math.log(1 - min(max(load_change, 0.0), _MAX_LOAD_CHANGE))
    below, above = (abs(math.log(end / ratio.value)) * factor + room for end in (ratio.low, ratio.high))
    return replace(ratio, low=ratio.value * math.exp(-below), high=ratio.value * math.exp(above))


def ratio_of_estimates(baseline: Estimate, candidate: Estimate) -> Estimate:
    """The candidate divided by the baseline, from the intervals of two independent estimates, as of ratios that each
    have one of their own.

    The variances are recovered from the intervals (MOVER), on the logarithm: each bound lies as far from the ratio as
    the root of the sum of squares of both estimates' distances to the bounds that face it.

    Measured coverage of 95 % intervals over ratios of means of 3 to 7 pairs with a deviation of 2 to 5 %: 97 to 99 %.

    Source: G. Y. Zou, A. Donner, Construction of confidence limits about effect measures: a general approach,
    Statistics in Medicine 27 (2008).

    Raises:
        ValueError: the baseline is not above 0.
    """
    if baseline.value <= 0:
        raise ValueError("the baseline is not above 0: there is no ratio to it")
    ratio, least = candidate.value / baseline.value, min(baseline.independent, candidate.independent)
    if baseline.low is None or baseline.high is None or candidate.low is None or candidate.high is None:
        return unbounded(ratio, least, baseline.reason or candidate.reason or "one of both has no interval")
    if min(baseline.low, candidate.low) <= 0:
        return unbounded(ratio, least, "an interval reaches to 0: a ratio to it says nothing")
    below = math.hypot(math.log(candidate.value / candidate.low), math.log(baseline.high / baseline.value))
    above = math.hypot(math.log(candidate.high / candidate.value), math.log(baseline.value / baseline.low))
    return Estimate(ratio, ratio * math.exp(-below), ratio * math.exp(above), least)


def too_few(repeats: int) -> str:
    """The reason why so few repeats bound no ratio."""
    return f"{repeats} {'repeat is' if repeats == 1 else 'repeats are'} too few: {LEAST_REPEATS} of each are needed"


def compare(ratio: Estimate, *, margin: float, higher_is_better: bool) -> Comparison:
    """The word for a ratio of candidate to baseline.

    Equivalent: the whole interval lies within the margin, from 1 / (1 + margin) to 1 + margin. Otherwise faster or
    slower: the whole interval lies on one side of 1. Otherwise the data cannot tell. A difference that is certain and
    within the margin is therefore equivalent. At 95 % each word is wrong in at most 5 % of cases.

    Source: D. J. Schuirmann, A comparison of the two one-sided tests procedure and the power approach, Journal of
    Pharmacokinetics and Biopharmaceutics 15 (1987); here with the 95 % interval, which is stricter than his 90 %.

    Raises:
        ValueError: the margin is negative.
    """
    if margin < 0:
        raise ValueError(f"a margin of {margin} is negative")
    if ratio.low is None or ratio.high is None:
        return Comparison.CANNOT_TELL
    if ratio.low >= 1 / (1 + margin) and ratio.high <= 1 + margin:
        return Comparison.EQUIVALENT
    if ratio.low > 1:
        return Comparison.FASTER if higher_is_better else Comparison.SLOWER
    if ratio.high < 1:
        return Comparison.SLOWER if higher_is_better else Comparison.FASTER
    return Comparison.CANNOT_TELL


def _pooled_correlation(sides: Sides) -> float:
    """The lag-1 autocorrelation of the values of both sides around their means; 0 where they are too few."""
    count = min(len(side) for side in sides)
    deviations = [side - side.mean() for side in sides]
    squares = sum(float(one @ one) for one in deviations)
    if count < _MIN_FOR_CORRELATION or squares == 0:
        return 0.0
    raw = sum(float(one[1:] @ one[:-1]) for one in deviations) / squares
    return min((count * raw + 1) / (count - 4), _MAX_CORRELATION)


def _student_bounds(sides: Sides, paired: bool, confidence: float) -> tuple[float, float]:
    """The interval of the logarithm of the ratio, around the estimate, by Student's t."""
    _, error = _log_ratio(sides, paired)
    if error == 0:
        return 0.0, 0.0
    parts = [float(np.var(side, ddof=1)) / len(side) / mean_of(side) ** 2 for side in sides]
    if paired:
        freedom = float(len(sides[0]) - 1)
    else:
        freedom = sum(parts) ** 2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True))
    half = t_quantile(freedom, confidence) * error
    return -half, half


def _bounds(weights: Sides, sides: Sides, paired: bool, confidence: float) -> tuple[float, float]:
    """The interval of the logarithm of the ratio, around the estimate."""
    drawn = weights[0] @ sides[0], weights[1] @ sides[1]
    logs = np.log(drawn[1] / drawn[0])
    center, error = _log_ratio(sides, paired)
    if error == 0:
        return 0.0, 0.0
    errors = _errors(weights, sides, paired)
    # A resample of one repeat alone has no error of its own, and no distance.
    distances = np.divide(logs - center, errors, out=np.zeros_like(logs), where=errors > error * 1e-9)
    tail = (1 - confidence) / 2
    upper, lower = np.quantile(distances, [1 - tail, tail])
    return -float(upper) * error, -float(lower) * error


def _log_ratio(sides: Sides, paired: bool) -> tuple[float, float]:
    """The logarithm of the ratio, and its standard error."""
    if all(np.ptp(side) == 0 for side in sides):
        return 0.0, 0.0
    first, second = (np.full((1, len(side)), 1 / len(side)) for side in sides)
    center = math.log(mean_of(sides[1]) / mean_of(sides[0]))
    return center, float(_errors((first, second), sides, paired)[0])


def _errors(weights: Sides, sides: Sides, paired: bool) -> Values:
    """Standard errors of the logarithms of weighted ratios, by the delta method."""
    means = [weight @ side for weight, side in zip(weights, sides, strict=True)]
    parts = zip(weights, sides, means, strict=True)
    squares = sum(_spread(weight @ side**2, mean) / (len(side) - 1) for weight, side, mean in parts)
    if paired:
        products = weights[0] @ (sides[0] * sides[1])
        squares -= 2 * (products / (means[0] * means[1]) - 1) / (len(sides[0]) - 1)
    return np.asarray(np.sqrt(np.maximum(squares, 0)))


def _spread(mean_squares: Values, means: Values) -> Values:
    """The variance as a share of the squared mean."""
    return np.asarray(np.maximum(mean_squares / means**2 - 1, 0))


@lru_cache(maxsize=16)
def _draws(count: int, resamples: int, seed: int) -> NDArray[np.float64]:
    """The weights of the values in each resample: a row each, which adds up to 1."""
    generator = np.random.default_rng(seed)
    return generator.multinomial(count, np.full(count, 1 / count), size=resamples) / count
