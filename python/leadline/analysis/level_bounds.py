"""Bounds of percentiles by the level of a test: how long its times are in each second, which wanders.

Each second has a level, the median of its times. A test of few seconds sees few levels, so that ranks of its values
alone say too much. Times freed of their second's level are bounded by ranks; how far the level of the test may be from
that of a longer one, and how much more levels may differ than those that were seen, widens these bounds. Where too few
values lie beyond, the shortest and the longest time stand for the ranks. Pure.

Source: S. Asmussen, P. W. Glynn, Stochastic Simulation (2007), IV.5, on sectioning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from leadline.analysis.durations import BEYOND_NS, Sample
from leadline.analysis.histograms import Histogram, rank_of
from leadline.statistics import Estimate, count_beside_bursts, quantile_of_buckets
from leadline.statistics.estimate import Values, t_quantile
from leadline.statistics.incomplete_beta import normal_quantile
from leadline.statistics.means import MIN_VALUES, lag_correlation
from leadline.statistics.quantiles import MIN_PARTS, inflate

NS_PER_S = 1e9
UNSEEN_DEPENDENCE = 2.0
"""How many times fewer independent ones values are worth where nothing shows how much they depend on each other."""
_TAIL = 0.025
"""Of the truths, beyond each bound."""
MIN_SECONDS = 2
"""Fewer do not differ."""
UNSEEN_CORRELATION = 5 / 6
"""Of the levels of neighbouring seconds, as is assumed of `FEW_SECONDS` and fewer; of `MANY_SECONDS` none is."""
FEW_SECONDS, MANY_SECONDS = 15, 60
MAX_CORRELATION = 0.95
_MORE_IN_TAILS = 0.8
"""Of the error of a level, by which levels may differ more than those that were seen."""
_LESS_INSIDE = 0.3
"""Of a level's error, for each standard deviation by which a percentile lies outside: its bound inside is closer."""
_FEW_AGREE, _FEW_DIFFER = 0.45, 5.0
"""The error of a level, in logarithms, where there are fewer than `MIN_PARTS` seconds: at most the first if they agree,
and this multiple of their standard deviation if they differ. Levels that wander by 10 % go no further."""


def bounds_by_level(
    sample: Sample, share: float, seconds: Sequence[Histogram], *, in_flight: int | None = None, has_range: bool = True
) -> Estimate | None:
    """A percentile's bounds in ns; None where not even the level is known. A side that ranks leave open ends at the
    shortest or the longest time, if it `has_range`. `in_flight` is how many operations of a closed loop are."""
    extremes, whole = sample.extremes, sample.completed
    found = [part for part in seconds if part.count]
    errors = level_errors(found, share)
    if extremes is None or errors is None:
        return None
    if len(found) < MIN_PARTS:
        # One stall lengthens all that are in flight: without a closed loop, as many as begin during the longest time.
        longest_s = float(whole.highs_ns[-1]) / NS_PER_S
        together = in_flight or whole.count / len(found) * longest_s
        worth: float | None = whole.count / max(UNSEEN_DEPENDENCE, together)
    else:
        worth = count_beside_bursts(_exceed_beside_levels(found, share), [part.count for part in found])
    low, high = (None, None) if worth is None else _by_ranks(extremes, share, worth)
    widest = range_of_all(sample, share) if has_range else None
    if widest is not None:
        low, high = (widest.low if low is None else low), (widest.high if high is None else high)
    value = of_rank(whole, share)[1]
    # Of times of 0, such as how late a load began, there is no logarithm.
    least = max(1.0, value)
    below = above = None
    if low is not None:
        below = min(value, least * math.exp(-math.hypot(math.log(least / max(1.0, min(low, least))), errors[0])))
    if high is not None:
        above = least * math.exp(math.hypot(math.log(max(high, least) / least), errors[1]))
    return Estimate(value, below, above, worth or 1.0)


def range_of_all(sample: Sample, share: float) -> Estimate | None:
    """The range from the shortest time to the longest one: bounds that hold although how much values depend on each
    other is not known, where there are several times as many as independent ones would take. Operations in flight count
    as one rank each, unless one of them had waited for longer than any other took."""
    extremes, whole = sample.extremes, sample.completed
    least = UNSEEN_DEPENDENCE * math.log(_TAIL) / math.log(max(share, 1 - share))
    if extremes is None or whole.count < least:
        return None
    below, above = _by_ranks(extremes, share, whole.count / UNSEEN_DEPENDENCE)
    shortest, longest = float(whole.lows_ns[0]), float(whole.highs_ns[-1])
    if above is None and sample.is_open:
        return None
    low = float(extremes[0].lows_ns[0]) if below is None else min(below, shortest)
    return Estimate(of_rank(whole, share)[1], low, max(above or longest, longest), 1)


def level_errors(seconds: Sequence[Histogram], share: float) -> tuple[float, float] | None:
    """Bounds of how far the truth of a percentile may be below and above that of these seconds, in logarithms, because
    of their levels. None of fewer seconds than `MIN_SECONDS`.

    Levels are a first-order series of normal logarithms. That of the test has Student's t for its error. Of a tail,
    those outside of what was seen count too: the deviation of levels may be as many times larger as their error
    says, and what times differ by inside of each second hides it.
    """
    found = [part for part in seconds if part.count]
    if len(found) < MIN_SECONDS:
        return None
    centres = np.array([part.log_centre for part in found])
    weights = np.array([part.count for part in found], dtype=np.float64)
    deviation, correlation = _levels(centres[:, 0], centres[:, 1], weights / weights.sum())
    factor = t_quantile(len(found) - 1) * math.sqrt(inflate(correlation) / len(found))
    inside, outside = float(np.median(centres[:, 2])), abs(normal_quantile(share))
    whole = math.hypot(inside, deviation)
    wider = outside * (math.hypot(inside, (1 + _MORE_IN_TAILS * factor) * deviation) - whole)
    closer = _LESS_INSIDE * outside * deviation / whole if whole else 0.0
    most = max(_FEW_AGREE, _FEW_DIFFER * deviation) if len(found) < MIN_PARTS else math.inf
    outer = min(factor * deviation + wider, most)
    inner = min(factor * deviation, most) * max(0.0, 1 - closer)
    return (inner, outer) if share >= 0.5 else (outer, inner)


def _levels(levels: Values, chances: Values, weights: Values) -> tuple[float, float]:
    """The standard deviation of the seconds' levels, each with the weight of its values, and how much neighbours
    resemble each other. From `MIN_PARTS` on it is freed of what chance makes of them."""
    count = len(levels)
    deviations = levels - float(weights @ levels)
    variance = float(weights @ deviations**2) * count / (count - 1)
    if variance <= 0:
        return 0.0, 0.0
    wandering = max(0.0, variance - float(weights @ chances)) if count >= MIN_PARTS else variance
    unseen = UNSEEN_CORRELATION * min(1.0, max(0.0, (MANY_SECONDS - count) / (MANY_SECONDS - FEW_SECONDS)))
    if count < MIN_VALUES or not wandering:
        return math.sqrt(wandering), unseen
    weighted = deviations * np.sqrt(weights)
    seen = lag_correlation(weighted, float(weighted @ weighted)) * variance / wandering
    seen = min(max(0.0, seen), MAX_CORRELATION)
    # With room for its standard error, by less where hardly any was seen.
    room = min(1.0, (3 * seen) ** 2) * math.sqrt((1 - seen**2) / count)
    return math.sqrt(wandering), min(max(unseen, seen + room), MAX_CORRELATION)


def _exceed_beside_levels(seconds: Sequence[Histogram], share: float) -> list[int]:
    """How many times of each second exceed a quantile of all, each divided by its second's level."""
    joined, counts = (
        np.concatenate([part.steps_from_median for part in seconds]),
        np.concatenate([part.counts for part in seconds]),
    )
    lowest = int(joined.min())
    reached = np.cumsum(np.bincount(joined - lowest, counts))
    edge = lowest + int(np.searchsorted(reached, rank_of(share * 100, int(reached[-1]))))
    places = [int(np.searchsorted(part.steps_from_median, edge, "right")) for part in seconds]
    return [part.count - int(part.reached[at - 1] if at else 0) for part, at in zip(seconds, places, strict=True)]


def _by_ranks(
    extremes: tuple[Histogram, Histogram], share: float, independent: float
) -> tuple[float | None, float | None]:
    """The lower bound with the shortest times that operations in flight may have, the upper one with the longest."""
    below, above = (
        quantile_of_buckets(one.lows_ns, one.highs_ns, one.counts, share, independent=independent) for one in extremes
    )
    return below.low, None if above.high is None or above.high >= BEYOND_NS else above.high


def of_rank(part: Histogram, share: float) -> tuple[float, float]:
    """The lowest and the highest value of the bucket with a quantile, ns."""
    at = int(np.searchsorted(part.reached, rank_of(share * 100, part.count)))
    return float(part.lows_ns[at]), float(part.highs_ns[at])
