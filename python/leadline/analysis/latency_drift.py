"""Whether latencies rise or fall all through a test, so that a longer one would have others. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from leadline import quantities
from leadline.analysis.flows import Flow
from leadline.analysis.intervals import Parts
from leadline.analysis.model import Metric, Reason, Verdict, Window
from leadline.analysis.stability import PRECISION_UNKNOWN
from leadline.analysis.test_data import TestData
from leadline.analysis.window import interval_rates, named_rates
from leadline.plan.percentiles import histogram_of
from leadline.statistics.estimate import Values
from leadline.statistics.means import batch_means
from leadline.statistics.monotone import kendall_tau

MIN_SECONDS = 6
"""Fewer may rise by chance."""
BATCHES = 10
"""Of a closed loop's rate."""
MIN_TREND = 0.8
"""Kendall's tau of the level and time, from which on the level goes one way: of ten that differ by chance, fewer than
one in 1,000 have it."""
_TIMES = frozenset({"latency", "service"})
_MEANS = frozenset({"latency_mean_us", "latency_stdev_us", "service_mean_us"})


def findings(
    data: TestData, figures: Mapping[str, Metric], parts: Parts, flows: Sequence[Flow], window: Window | None
) -> Iterator[tuple[Verdict, Reason]]:
    """What leaves all latencies undetermined: their level moves one way by more than the limit on both sides of its
    mean. Not for a rate in stages, under which latencies change by plan."""
    if not data.spec.steady or data.spec.connects_clients or not data.spec.counts_units:
        return
    named = tuple(name for name, metric in figures.items() if metric.value is not None and _depends_on_level(name))
    levels_us = _levels_us(data, parts, flows, window)
    if not named or levels_us is None:
        return
    change = abs(float(levels_us[-1] - levels_us[0]))
    if abs(kendall_tau(levels_us)) >= MIN_TREND and change > 2 * data.stability_spread * float(levels_us.mean()):
        way = "rises" if levels_us[-1] > levels_us[0] else "falls"
        first, last = (quantities.microseconds(float(one)) for one in (levels_us[0], levels_us[-1]))
        text = (
            f"latency {way} through the test, from about {first} to {last}: what a longer one would have is not known"
        )
        yield Verdict.UNDETERMINED, Reason(PRECISION_UNKNOWN, text, metrics=named)


def _depends_on_level(name: str) -> bool:
    asked = histogram_of(name)
    return name in _MEANS if asked is None else asked.histogram in _TIMES


def _levels_us(data: TestData, parts: Parts, flows: Sequence[Flow], window: Window | None) -> Values | None:
    """The latencies' level in equal parts of the test, in order: medians of its seconds, or in a closed loop of few
    seconds what the rate says of their mean (Little's law)."""
    medians = [part.percentile_us(50.0) or 0.0 for part in parts.named("latency") if part.count]
    if len(medians) >= MIN_SECONDS:
        return np.array(medians, dtype=np.float64)
    rates = named_rates(data.spec, flows)
    if data.spec.paced or not rates or not medians:
        return None
    found = interval_rates(next(iter(rates.values()))[2], window, data.spec.interval_ns)
    if found is None or len(found) < 2 * BATCHES or float(found.min()) <= 0:
        return None
    inverse = 1 / batch_means(found, len(found) // BATCHES)
    return np.asarray(inverse * float(np.mean(medians)) / float(inverse.mean()), dtype=np.float64)
