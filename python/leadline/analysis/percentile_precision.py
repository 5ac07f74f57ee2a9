"""Whether percentiles that targets name are known well enough in one test, as `stability` asks of rates.

Half of a percentile's interval within the test may be at most the plan's limit, as a share of it. Without an interval
the seconds of the test have to agree within the limit; where even that cannot be seen, the test is too short. The
reason says how many values would be enough. Repeats give an interval of their own, and then decide instead. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from leadline.analysis.histograms import Histogram
from leadline.analysis.intervals import Parts, independent_values
from leadline.analysis.level_bounds import level_errors
from leadline.analysis.metrics import Histograms
from leadline.analysis.model import Metric, Reason, Verdict
from leadline.analysis.scope import PERCENTILE_UNCERTAIN
from leadline.analysis.test_data import TestData
from leadline.plan.percentiles import histogram_of
from leadline.quantities import rounded_share
from leadline.statistics import quantile_of_buckets
from leadline.statistics.means import LEAST_NEIGHBOURS
from leadline.statistics.quantiles import MIN_PARTS

LEAST_SECONDS = 2
"""Percentiles of fewer seconds have nothing to agree with."""
WORTH_LESS = 0.5
"""Of the values, from where on what they have in common is named beside their number."""
AIMED = 0.8
"""Of the half width that is asked for: a number at which it is expected has it in half of all cases."""
MOST_TIMES = 100.0
"""Beyond this, how many values are needed is not said: those there are do not show values so far beyond."""
_LONGER = "{} s or more show how much its values depend on each other"
_STEP = 1.05
"""By which numbers are tried."""


def findings(
    data: TestData, figures: Mapping[str, Metric], parts: Parts, histograms: Histograms
) -> Iterator[tuple[Verdict, Reason]]:
    """What leaves the percentiles that targets name uncertain. Not for a rate in stages, under which latencies change
    by plan; nor for a lower bound, which decides by itself; nor for VPN clients, of which there is a number."""
    if not data.spec.steady or data.spec.connects_clients:
        return
    for name in dict.fromkeys(data.asked):
        metric = figures.get(name)
        asked = histogram_of(name)
        if asked is None or metric is None or not metric.value or metric.censored:
            continue
        seconds = parts.named(asked.histogram)
        found = _doubt(name, metric, metric.value, seconds, data.stability_spread)
        if found is not None:
            verdict, text = found
            whole = histograms.sample(asked.histogram).completed
            needed = _needed(whole, asked.percentile / 100, seconds, data.stability_spread)
            yield verdict, Reason(PERCENTILE_UNCERTAIN, f"{text}; {needed}", metrics=(name,))


def _doubt(
    name: str, metric: Metric, value: float, seconds: Sequence[Histogram], limit: float
) -> tuple[Verdict, str] | None:
    if metric.low is not None and metric.high is not None and len(seconds) >= MIN_PARTS:
        half = (metric.high - metric.low) / 2 / value
        if half <= limit:
            return None
        text = f"{name} is uncertain by ±{rounded_share(half, 1)}; the limit is {rounded_share(limit, 1)}"
        return Verdict.UNSTABLE, text
    shares = _of_seconds(name, value, seconds)
    text = f"{name} is not known well enough: {metric.unbounded or 'the seconds of the test are too few'}"
    if len(shares) >= LEAST_SECONDS:
        if max(-min(shares), *shares) <= limit:
            return None
        least, most = (rounded_share(share, 1, signed=True) for share in (min(shares), max(shares)))
        text += f"; in single seconds it lies {least} to {most} from that of the test"
    return Verdict.UNDETERMINED, text


def _needed(whole: Histogram, share: float, seconds: Sequence[Histogram], limit: float) -> str:
    """What leaves the percentile uncertain, and how many values, in how many seconds, would be enough for a test that
    goes on as it is."""
    if len(seconds) < MIN_PARTS:
        return _LONGER.format(MIN_PARTS)
    worth = independent_values(whole, share, seconds)
    if worth is None:
        return f"{whole.count:,} values are too few to show how much they depend on each other"
    beyond = round(whole.count * min(share, 1 - share))
    cause = f"{beyond:,} of {whole.count:,} values lie beyond it"
    if worth <= whole.count * WORTH_LESS:
        cause += f", and as its seconds differ, all are worth about {max(1, round(worth)):,} independent ones"
    errors = level_errors(seconds, share) or (0.0, 0.0)
    times = _times_needed(whole, share, worth, sum(errors) / 2, limit)
    if times is None and len(seconds) < LEAST_NEIGHBOURS:
        return f"{cause}; {_LONGER.format(LEAST_NEIGHBOURS)}"  # of few seconds it may seem so by chance
    if times is None:
        return f"{cause}; even {MOST_TIMES:.0f} times as many are too few: find what makes some so much longer"
    length_s = times * len(seconds)
    return f"{cause}; about {_rounded_up(times * whole.count):,} values, or {_rounded_up(length_s):,} s, are enough"


def _times_needed(whole: Histogram, share: float, worth: float, error: float, limit: float) -> float | None:
    """How many times as many values would have an interval within the limit, if they were distributed alike; `error` is
    what the level of their seconds adds."""
    times = 1.0
    while times <= MOST_TIMES:
        counts = np.rint(whole.counts * times).astype(np.int64)
        found = quantile_of_buckets(whole.lows_ns, whole.highs_ns, counts, share, independent=worth * times)
        half = found.half_width_ratio
        if half is not None and math.hypot(half, error / math.sqrt(times)) <= AIMED * limit:
            return times
        times *= _STEP
    return None


def _rounded_up(number: float) -> int:
    """The number, rounded up to two digits."""
    step = 10.0 ** max(0, len(str(math.floor(number))) - 2)
    return round(math.ceil(number / step) * step)


def _of_seconds(name: str, value: float, seconds: Sequence[Histogram]) -> list[float]:
    """The percentile of each second, as its distance from that of the test by it."""
    asked = histogram_of(name)
    assert asked is not None, "only percentiles get here"
    unit_us = 1.0 if asked.unit == "us" else 1000.0
    found = [part.percentile_us(asked.percentile) for part in seconds]
    return [one / unit_us / value - 1 for one in found if one is not None]
