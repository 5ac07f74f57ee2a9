"""Intervals of a test's figures, from the test alone: of rates by batch means, of percentiles by order statistics, of
the share of lost datagrams by how much the parts of the test differ in it.

Owns which figure has an interval, and the reason where one has none. How intervals are made is the work of
`leadline.statistics`. An interval within one test does not contain what differs from one start to the next: repeats do.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from leadline.analysis.durations import BEYOND_NS, Sample
from leadline.analysis.flows import Curve, Flow
from leadline.analysis.histograms import NS_PER_US, DamagedHistogram, Histogram, decode, merge
from leadline.analysis.level_bounds import bounds_by_level, range_of_all
from leadline.analysis.metrics import Histograms
from leadline.analysis.model import Metric, Window
from leadline.analysis.periodic_stalls import mean_of_rates
from leadline.analysis.test_data import IntervalHistogram, Point, TestData
from leadline.analysis.test_spec import TestSpec
from leadline.analysis.tunnels import LATER, STEPS
from leadline.analysis.window import interval_rates, named_rates
from leadline.plan.percentiles import histogram_of
from leadline.statistics import (
    Estimate,
    independent_count,
    level_correlation,
    mean_of_series,
    quantile_of_buckets,
    share_of_counts,
    share_of_total,
)
from leadline.statistics.estimate import Values

# Decoding a histogram takes 0.3 ms: with more than this of a test, intervals have no latencies (four seconds of work).
# A scenario has up to nine in a second, on each host.
_MOST_HISTOGRAMS = 12_000
MOST_OF_A_NAME = 4000
"""Histograms of a name of requests that are read."""
# Agents hand over their histograms once a second.
PART_NS = 1_000_000_000

_NO_SERIES = "a figure of the whole test: only repeats give an interval"
_ONLY_TOTALS = "only totals are known, no intervals of time"
_BY_PLAN = "the rate changes by plan"
_MEANS = ("_mean_us", "_mean_ms")
MOST_PARTS = 600
"""Parts of a running test: with more, neighbours are joined, so that a long test costs no more than a short one."""
_LOST_RATIO = "lost_ratio"
_ERROR_RATIO = "error_ratio"
_UNKNOWN_TOTAL = "of how many operations it is the share is not known"
_LOST_AT_THE_END = "the datagrams that were lost in its intervals are not those of the whole test"
_NO_SECONDS = "its values are known of the whole test only, not of its seconds: repeats give an interval"
_NOT_ENDED = "some operations had not ended: longer times are unknown"
_FEW_PARTS = (
    "the seconds of the test are too few, or too few values lie beyond, to show how much values depend on each other"
)


_LATENCY = "latency"
_NS_PER_S = 1e9
_UNEXPLAINED = 0.05
"""Of a mean, by which that by Little's law may differ, for its rate to show how certain it is."""
_LITTLE = 0.1
"""Of the connections, by which they may differ from the rate multiplied by the mean time: a generator takes some."""
# Of each of which a connection of a closed loop has one in flight.
_OF_LOOP = frozenset({_LATENCY, "service"})
# One value for each client, instead of many in each second.
_OF_CLIENTS = frozenset({*STEPS, *LATER})


DecodedParts = Sequence[tuple[IntervalHistogram, Histogram]]
"""The histograms of a test's intervals, decoded."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The histograms of each second of a test, in order, by name."""

    by_name: Mapping[str, tuple[Histogram, ...]]

    def named(self, name: str) -> tuple[Histogram, ...]:
        """The histograms of each second that has one."""
        return self.by_name.get(name, ())


def decoded_parts(data: TestData) -> DecodedParts:
    """The histograms of the test's intervals; none if decoding them would take long."""
    if len(data.interval_histograms) > _MOST_HISTOGRAMS:
        return ()
    found = ((part, _decoded(part)) for part in data.interval_histograms)
    return tuple((part, histogram) for part, histogram in found if histogram is not None)


def parts_of(decoded: DecodedParts) -> Parts:
    """The histograms of each second, all hosts merged."""
    seconds: dict[tuple[str, int], list[Histogram]] = {}
    for part, found in decoded:
        seconds.setdefault((part.report["metric"], part.end_ns // PART_NS), []).append(found)
    by_name: dict[str, list[Histogram]] = {}
    for name, second in sorted(seconds):
        by_name.setdefault(name, []).append(merge(seconds[name, second]))
    return Parts({name: tuple(found) for name, found in by_name.items()})


def joined(parts: Sequence[Histogram]) -> tuple[Histogram, ...]:
    """The parts of a running test, by pairs where they are more than `MOST_PARTS`."""
    if len(parts) <= MOST_PARTS:
        return tuple(parts)
    return tuple(merge(parts[at : at + 2]) for at in range(0, len(parts), 2))


def with_intervals(
    metrics: Mapping[str, Metric],
    data: TestData,
    flows: Sequence[Flow],
    window: Window | None,
    *,
    histograms: Histograms,
    parts: Parts,
) -> dict[str, Metric]:
    """The metrics with `low` and `high`, or with the reason why one of them is unknown."""
    rates = {name: (factor, curves) for name, (_, factor, curves) in named_rates(data.spec, flows).items()}
    of_loop = _estimate_closed_loop_rate(data, flows, window, histograms.sample(_LATENCY))
    found = {}
    for name, metric in metrics.items():
        if metric.value is None or metric.low is not None:
            found[name] = metric
        elif name in rates:
            found[name] = _bounded_rate(metric, *rates[name], data.spec, window)
        elif (asked := histogram_of(name)) is not None:
            unit_ns = NS_PER_US if asked.unit == "us" else NS_PER_US * 1000
            of_clients = data.spec.connects_clients and asked.histogram in _OF_CLIENTS
            share, running = asked.percentile / 100, data.is_running
            sample, seconds = histograms.sample(asked.histogram), parts.named(asked.histogram)
            in_flight = _count_connections(data, flows) if of_loop and asked.histogram in _OF_LOOP else None
            if of_clients and sample.extremes is not None and sample.count:
                bounds: Estimate | str = _between(sample.extremes, share, None)  # each client connects by itself
            else:
                bounds = _of_sample(sample, share, seconds, running, in_flight)
            found[name] = _bounded(metric, bounds, unit_ns)
        elif name == _LOST_RATIO:
            sent = metrics.get("sent")
            is_some = 0 < metric.value < 1
            found[name] = _bounded_loss(metric, sent, data, window) if is_some else _of_total(metric, sent)
        elif name == _ERROR_RATIO:
            found[name] = _of_total(metric, metrics.get("requests_due"))
        elif metric.unbounded is not None:
            found[name] = metric
        elif name.endswith(_MEANS):
            histogram = name.removesuffix(name[-len(_MEANS[0]) :])
            bounds = _mean(histogram, histograms, parts, of_loop if histogram == _LATENCY else None)
            found[name] = _bounded(metric, bounds, NS_PER_US if metric.unit == "us" else NS_PER_US * 1000)
        else:
            found[name] = replace(metric, unbounded=_NO_SERIES)
    return found


def with_interval(
    metric: Metric, sample: Sample, share: float, seconds: Sequence[Histogram], is_running: bool = False
) -> Metric:
    """A percentile in us with its interval, by a sample and the part of it that each second has. While the load
    `is_running`, the range of all its times is none: it would hold any target that lies within."""
    if metric.value is None:
        return metric
    return _bounded(metric, _of_sample(sample, share, seconds, is_running), NS_PER_US)


def with_range(metric: Metric, sample: Sample, share: float) -> Metric:
    """A percentile in us with the shortest and the longest time as its interval, where there are enough values: bounds
    that hold although how much the values depend on each other is not known."""
    if metric.value is None:
        return metric
    found = range_of_all(sample, share)
    return _bounded(metric, found or (_NOT_ENDED if sample.extremes is None else _FEW_PARTS), NS_PER_US)


def rate_estimate(curves: Sequence[Curve], window: Window | None, interval_ns: int) -> Estimate | None:
    """The mean growth per second of some counters inside a window, from its intervals; None if the counters were not
    read at intervals."""
    rates = interval_rates(curves, window, interval_ns)
    return None if rates is None else mean_of_rates(rates)


def _estimate_closed_loop_rate(
    data: TestData, flows: Sequence[Flow], window: Window | None, latency: Sample
) -> Estimate | None:
    """The answers per second of connections that always wait for one; None of other loads, and where it is not the
    number of connections divided by their mean time (Little's law), as of a script that pauses."""
    spec, rates, mean_us = data.spec, named_rates(data.spec, flows), latency.completed.mean_us
    if not rates or not spec.counts_units or spec.paced or not spec.steady or window is None or not mean_us:
        return None
    found = rate_estimate(next(iter(rates.values()))[2], window, spec.interval_ns)
    connections = _count_connections(data, flows)
    # The window's ends cut at most one request of each connection.
    cut = (latency.max.value_us or 0.0) * NS_PER_US / max(1, window.end_ns - window.start_ns)
    if found is None or abs(found.value * mean_us / 1e6 - connections) > (_LITTLE + cut) * connections:
        return None
    return found


def _count_connections(data: TestData, flows: Sequence[Flow]) -> int:
    return data.connections or len(flows)


def _bounded_rate(
    metric: Metric, factor: float, curves: Sequence[Curve], spec: TestSpec, window: Window | None
) -> Metric:
    """A rate with the interval of its series, around the rate of the whole window."""
    if not spec.steady:
        return replace(metric, unbounded=_BY_PLAN)
    estimate = rate_estimate(curves, window, spec.interval_ns)
    if estimate is None or metric.value is None:
        return replace(metric, unbounded=_ONLY_TOTALS)
    if estimate.low is None or estimate.high is None:
        return replace(metric, unbounded=estimate.reason)
    half = factor * (estimate.high - estimate.low) / 2
    return replace(metric, low=max(0.0, metric.value - half), high=metric.value + half)


def _bounded_loss(metric: Metric, sent: Metric | None, data: TestData, window: Window | None) -> Metric:
    """The share of lost datagrams with its interval, from the receiving side's counts over the whole test."""
    if metric.value is None:
        return metric
    series = [points for points in data.progress.values() if len(points) > 1 and points[-1].missing_units is not None]
    if window is None or window.last_end_ns <= window.first_start_ns or not series:
        return replace(metric, unbounded=_ONLY_TOTALS)
    parts = max(1, round((window.last_end_ns - window.first_start_ns) / max(1, data.spec.interval_ns)))
    edges = np.linspace(window.first_start_ns, window.last_end_ns, parts + 1)
    missing, received = (
        np.diff(np.sum([_read_at(edges, points, place) for points in series], axis=0))
        for place in ("missing_units", "received_units")
    )
    if sent is not None and sent.value is not None:
        # The receiving side knows of a lost datagram by a later one: those that none followed were sent after the last.
        unseen = metric.value * sent.value - missing.sum()
        missing = missing + max(0.0, unseen) * _without_arrivals(edges, series)
    # A datagram that was only late had been missing before: it makes a count negative.
    if missing.sum() <= 0:
        return replace(metric, unbounded=_LOST_AT_THE_END)
    estimate = share_of_counts(missing, missing + received)
    if estimate.low is None or estimate.high is None:
        return replace(metric, unbounded=estimate.reason)
    # The whole test's share also has what was lost after the last reading.
    factor = metric.value / estimate.value
    return replace(metric, low=estimate.low * factor, high=min(1.0, estimate.high * factor))


def _without_arrivals(edges: Values, series: Sequence[Sequence[Point]]) -> Values:
    """The shares of each interval in the time after each flow's last arrival."""
    after = np.zeros(len(edges) - 1)
    for points in series:
        last_ns = next(point.t_ns for point in points if point.received_units == points[-1].received_units)
        after += np.diff(np.maximum(edges, min(float(last_ns), edges[-1])))
    after[-1] += 1  # Of a nanosecond: where something arrived to the very end, it is the last interval.
    return np.asarray(after / after.sum(), dtype=np.float64)


def share_metric(found: float, total: float) -> Metric:
    """The share of what was `found` in the operations of a test, with its interval; unknown without any operation."""
    if not total:
        return Metric(None, "ratio")
    estimate = share_of_total(min(found, total), total)
    return Metric(estimate.value, "ratio", estimate.low, estimate.high)


def _of_total(share: Metric, total: Metric | None) -> Metric:
    """A share of a test's operations with its interval, as if they were independent of each other."""
    if share.value is None or total is None or not total.value:
        return replace(share, unbounded=_UNKNOWN_TOTAL)
    estimate = share_of_total(min(1.0, share.value) * total.value, total.value)
    return replace(share, low=estimate.low, high=estimate.high)


def _read_at(edges: Values, points: Sequence[Point], counter: str) -> Values:
    """A counter of one flow at these instants; 0 before its first reading's interval."""
    known = [(point.t_ns, value) for point in points if (value := getattr(point, counter)) is not None]
    t_ns, values = zip((edges[0], 0), *(one for one in known if one[0] > edges[0]), strict=True)
    return np.asarray(np.interp(edges, t_ns, values), dtype=np.float64)


def _of_sample(
    sample: Sample, share: float, seconds: Sequence[Histogram], is_running: bool, in_flight: int | None = None
) -> Estimate | str:
    """Bounds by ranks and by the level of the seconds, the further one on each side where there are both. `in_flight`
    is how many operations of a closed loop are."""
    extremes = sample.extremes
    if extremes is None:
        return _NOT_ENDED
    whole = sample.completed
    if not whole.count:
        return _FEW_PARTS
    independent = independent_values(whole, share, seconds)
    found = None if independent is None else _between(extremes, share, independent)
    if is_running and found is None:
        return _FEW_PARTS
    level = bounds_by_level(sample, share, seconds, in_flight=in_flight, has_range=not is_running)
    if level is None and found is None and not is_running:
        level = range_of_all(sample, share)
    return _join(found, level) or _FEW_PARTS


def _join(found: Estimate | None, level: Estimate | None) -> Estimate | None:
    """The further bound on each side; an open side of one is that of the other."""
    if found is None or level is None:
        one = found or level
        is_open = one is not None and None in (one.low, one.high)
        return replace(one, reason=one.reason or _FEW_PARTS) if one is not None and is_open else one
    low = min((bound for bound in (found.low, level.low) if bound is not None), default=None)
    high = max((bound for bound in (found.high, level.high) if bound is not None), default=None)
    return replace(found, low=low, high=high, reason=found.reason if None in (low, high) else None)


def independent_values(whole: Histogram, share: float, seconds: Sequence[Histogram]) -> float | None:
    """How many independent values the whole test is worth for this percentile, by how much its seconds differ; None
    where its seconds do not show it."""
    above, middle = _exceeding(whole, share, seconds), _exceeding(whole, 0.5, seconds)
    if above is None or middle is None or not seconds:
        return None
    totals = [part.count for part in seconds]
    independent = independent_count(above, totals, correlation=level_correlation(middle, totals))
    # The last part of a second is in no interval's histogram.
    return None if independent is None else independent * max(1.0, whole.count / sum(totals))


def _exceeding(whole: Histogram, share: float, seconds: Sequence[Histogram]) -> list[int] | None:
    """How many values of each second exceed a quantile of the whole test."""
    at = whole.bucket_at(share * 100)
    if at is None:
        return None
    edge_ns = whole.highs_ns[at]
    return [int(part.counts[part.lows_ns > edge_ns].sum()) for part in seconds]


def _between(extremes: tuple[Histogram, Histogram], share: float, independent: float | None) -> Estimate:
    """The lower bound by the shortest times that outstanding operations may have, the upper one by the longest."""
    low, high = (
        quantile_of_buckets(one.lows_ns, one.highs_ns, one.counts, share, independent=independent) for one in extremes
    )
    if high.high is not None and high.high >= BEYOND_NS:
        return replace(high, low=low.low, high=None, reason=_NOT_ENDED)
    return replace(high, low=low.low)


def _mean(name: str, histograms: Histograms, parts: Parts, rate: Estimate | None) -> Estimate | str:
    """The interval in ns of the mean of a histogram's times. In a closed loop it is as wide as that of the `rate`
    (Little's law). Elsewhere it is from the test's seconds: a ratio of sums, so each second counts by how far its sum
    is from what its number of values would give."""
    sample = histograms.sample(name)
    if sample.is_open:
        return _NOT_ENDED
    mean_ns = (sample.mean.value_us or 0.0) * NS_PER_US
    if mean_ns and rate is not None and rate.low and rate.high is not None:
        # What the law does not explain of the mean, as the generator's own time, is uncertain too.
        by_law_ns = max(1, round(rate.value * mean_ns / _NS_PER_S)) * _NS_PER_S / rate.value
        if abs(by_law_ns / mean_ns - 1) <= _UNEXPLAINED:
            low, high = (
                min(mean_ns, by_law_ns) * rate.value / rate.high,
                max(mean_ns, by_law_ns) * rate.value / rate.low,
            )
            return Estimate(mean_ns, low, high, rate.independent)
    seconds = [part for part in parts.named(name) if part.count]
    if not seconds:
        return _NO_SECONDS
    counts = np.array([part.count for part in seconds], dtype=np.float64)
    means_ns = np.array([part.mean_us or 0.0 for part in seconds]) * NS_PER_US
    mean_ns = float(means_ns @ counts) / float(counts.sum())
    estimate = mean_of_series(mean_ns + (means_ns - mean_ns) * counts / counts.mean())
    return replace(estimate, reason=estimate.reason and estimate.reason.replace("intervals", "seconds"))


def _bounded(metric: Metric, estimate: Estimate | str, unit_ns: float) -> Metric:
    if isinstance(estimate, str):
        return replace(metric, unbounded=estimate)
    low, high = (None if bound is None else bound / unit_ns for bound in (estimate.low, estimate.high))
    return replace(metric, low=low, high=high, unbounded=estimate.reason)


def _decoded(part: IntervalHistogram) -> Histogram | None:
    try:
        return decode(part.report)
    except DamagedHistogram:
        return None  # counted where the whole test's histograms are read
