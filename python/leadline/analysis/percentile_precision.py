"""Whether percentiles that targets name are known well enough in one test, as `stability` asks of rates.

Half of a percentile's interval within the test may be at most the plan's limit, as a share of it. Without an interval
the seconds of the test have to agree within the limit; where even that cannot be seen, the test is too short. Repeats
give an interval of their own, and then decide instead. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from leadline.analysis.intervals import Parts
from leadline.analysis.model import Metric, Reason, Verdict
from leadline.analysis.scope import PERCENTILE_UNCERTAIN
from leadline.analysis.test_data import TestData
from leadline.plan.percentiles import histogram_of
from leadline.quantities import rounded_share
from leadline.statistics.quantiles import LEAST_PARTS

LEAST_SECONDS = 2
"""Percentiles of fewer seconds have nothing to agree with."""


def findings(data: TestData, figures: Mapping[str, Metric], parts: Parts) -> Iterator[tuple[Verdict, Reason]]:
    """What leaves the percentiles that targets name uncertain. Not for a rate in stages, under which latencies change
    by plan; nor for a lower bound, which decides by itself; nor for VPN clients, of which there is a number."""
    if not data.spec.steady or data.spec.connects_clients:
        return
    for name in dict.fromkeys(data.asked):
        metric = figures.get(name)
        if histogram_of(name) is None or metric is None or not metric.value or metric.censored:
            continue
        found = _doubt(name, metric, metric.value, parts, data.stability_spread)
        if found is not None:
            yield found


def _doubt(name: str, metric: Metric, value: float, parts: Parts, limit: float) -> tuple[Verdict, Reason] | None:
    asked = histogram_of(name)
    seconds = parts.named(asked.histogram) if asked is not None else ()
    if metric.low is not None and metric.high is not None and len(seconds) >= LEAST_PARTS:
        half = (metric.high - metric.low) / 2 / value
        if half <= limit:
            return None
        text = f"{name} is uncertain by ±{rounded_share(half, 1)}; the limit is {rounded_share(limit, 1)}"
        return Verdict.UNSTABLE, Reason(PERCENTILE_UNCERTAIN, text, metrics=(name,))
    shares = _of_seconds(name, value, parts)
    text = f"{name} is not known well enough: {metric.unbounded or 'the seconds of the test are too few'}"
    if len(shares) >= LEAST_SECONDS:
        if max(-min(shares), *shares) <= limit:
            return None
        low, high = (rounded_share(end, 1, signed=True) for end in (min(shares), max(shares)))
        text += f"; in single seconds it lies {low} to {high} from that of the test"
    return Verdict.UNDETERMINED, Reason(PERCENTILE_UNCERTAIN, text, metrics=(name,))


def _of_seconds(name: str, value: float, parts: Parts) -> list[float]:
    """The percentile of each second, as its distance from that of the test by it."""
    asked = histogram_of(name)
    assert asked is not None, "only percentiles get here"
    unit_us = 1.0 if asked.unit == "us" else 1000.0
    found = [part.percentile_us(asked.percentile) for part in parts.named(asked.histogram)]
    return [one / unit_us / value - 1 for one in found if one is not None]
