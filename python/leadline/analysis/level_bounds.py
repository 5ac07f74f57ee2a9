"""Bounds of percentiles where the seconds of a test do not show how much its times depend on each other: because they
are fewer than five, or because they differ so much, or so little beside each other, that ranks leave a side open.

In a closed loop the rate is the number of connections divided by the mean time (Little's law), and it is read ten times
a second: by how much less certain it is than independent times would make it, these are worth fewer. Elsewhere the
medians of the seconds tell how certain the level is. Where ranks still leave a side open, the shortest and the longest
time bound it, by as much further away as one more second may differ. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from leadline.analysis.durations import BEYOND_NS, Sample
from leadline.analysis.histograms import Histogram, rank_of
from leadline.statistics import Estimate, quantile_of_buckets
from leadline.statistics.estimate import t_quantile
from leadline.statistics.means import MIN_VALUES, variance_of_mean

UNSEEN_DEPENDENCE = 2.0
"""How many times fewer independent ones values are worth where nothing shows how much they depend on each other."""
_TAIL = 0.025
"""Of the truths, beyond each bound."""
MIN_SECONDS = 2
"""Fewer do not differ."""
MAX_EXPONENT = 50.0
"""Of a factor: nothing is known of times that differ by more."""
_MANY = 1e9


def bounds_by_level(
    sample: Sample, share: float, seconds: Sequence[Histogram], rate: Estimate | None
) -> Estimate | None:
    """A percentile's bounds in ns; None where not even the level is known. `rate` is that of a closed loop."""
    extremes, whole = sample.extremes, sample.completed
    found = [part for part in seconds if part.count]
    half = None if rate is None else rate.half_width_ratio
    factor = _factor_of_medians(found, half)
    if extremes is None or factor is None:
        return None
    worth, around = whole.count / UNSEEN_DEPENDENCE, factor
    if half is not None:
        worth, around = min(worth, _worth_by_rate(whole, half)), 1.0
    below, above = _by_ranks(extremes, share, worth)
    widest = range_of_all(sample, share)
    of_seconds = [_of_second(part, share) for part in (*found, whole)]
    low = None if below is None else min(below, *(bottom for bottom, _ in of_seconds)) / around
    high = None if above is None else max(above, *(top for _, top in of_seconds)) * around
    if widest is not None and widest.low is not None and widest.high is not None:
        low = widest.low / factor if low is None else low
        high = widest.high * factor if high is None else high
    return Estimate(_of_second(whole, share)[1], low, high, worth)


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
    return Estimate(_of_second(whole, share)[1], low, max(above or longest, longest), 1)


def _by_ranks(
    extremes: tuple[Histogram, Histogram], share: float, independent: float
) -> tuple[float | None, float | None]:
    """The lower bound with the shortest times that operations in flight may have, the upper one with the longest."""
    below, above = (
        quantile_of_buckets(one.lows_ns, one.highs_ns, one.counts, share, independent=independent) for one in extremes
    )
    return below.low, None if above.high is None or above.high >= BEYOND_NS else above.high


def _factor_of_medians(seconds: Sequence[Histogram], half: float | None) -> float | None:
    """How many times as long, or as short, the median of one more second may be as those of the test: by the whole
    interval of a closed loop's rate, half of which is `half`, elsewhere by Student's t. A tail is made of the seconds
    that lie furthest out, so how certain their mean is says too little."""
    medians = np.log([max(1.0, _of_second(part, 0.5)[1]) for part in seconds])
    if half is not None:
        return math.exp(max(2 * half, float(np.ptp(medians)) if len(medians) else 0.0))
    if len(medians) < MIN_SECONDS:
        return None
    independent, deviation = (len(medians) + 1) / 2, float(medians.std(ddof=1))
    if len(medians) >= MIN_VALUES:
        variance, independent = variance_of_mean(medians)
        deviation = math.sqrt(variance * independent)
    return math.exp(min(t_quantile(max(independent - 1, 1.0)) * deviation, MAX_EXPONENT))


def _worth_by_rate(whole: Histogram, half: float) -> float:
    """The number of independent times whose mean is as uncertain as the rate, whose interval is ±`half` of it."""
    if not half or not whole.mean_us or whole.stdev_us is None:
        return float(whole.count)
    return (t_quantile(_MANY) * whole.stdev_us / whole.mean_us / half) ** 2


def _of_second(part: Histogram, share: float) -> tuple[float, float]:
    at = int(np.searchsorted(part.reached, rank_of(share * 100, part.count)))
    return float(part.lows_ns[at]), float(part.highs_ns[at])
