"""The figures of http tests: requests by outcome, times by phase, connections, and the threads' rates.

Results, targets and tables share these names and units. An unknown value is None: a histogram without values, or a
counter that the engine does not report. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np

from leadline.analysis.durations import distribution
from leadline.analysis.flows import Flow
from leadline.analysis.metrics import (
    Histograms,
    counter,
    error_counts,
    received_bytes,
    received_units,
    sum_of_flows,
    times,
    window_rates,
)
from leadline.analysis.model import Distribution, Metric, Window
from leadline.analysis.test_data import TestData
from leadline.analysis.validity import REFUSED, leftover
from leadline.contract import records
from leadline.plan.percentiles import histogram_of

# All statistics for the times that a user waits for; for a phase, the few that show whether it matters.
_SPREAD = ("min", "mean", "stdev", "p50", "p75", "p90", "p95", "p99", "p999", "p9999", "p99999", "max")
_PHASE = ("mean", "p50", "p99", "max")
_LATE = ("p50", "p99", "max")
PHASES = ("dns", "connect", "tls_full", "tls_resumed", "first_byte", "transfer")
"""Histograms of the phases of a connection, then of a request, in order."""

_HISTOGRAMS = ("latency", "service", "late", *PHASES, "kernel_wait")
_STATUS_CLASSES: tuple[records.CountName, ...] = ("status_1xx", "status_2xx", "status_3xx", "status_4xx", "status_5xx")
_COUNTS: tuple[records.CountName, ...] = (
    "requests_due",
    "requests_sent",
    "unanswered",
    "unsent",
    "connections_opened",
)


def http_figures(
    data: TestData, flows: Sequence[Flow], window: Window | None, histograms: Histograms
) -> dict[str, Metric]:
    """All metrics of an http test."""
    rates = window_rates(data.spec, flows, window)
    latency = histograms.sample("latency")
    return {
        "requests": Metric(sum_of_flows(flows, received_units), "count"),
        "requests_per_s": Metric(rates["requests_per_s"], "1/s"),
        **{name: Metric(counter(data, name), "count") for name in _COUNTS},
        "cut_off": Metric(_rare(data, "cut_off"), "count"),
        "redirects": Metric(_rare(data, "redirects"), "count"),
        "handshakes_full": Metric(_handshakes(data, "tls_full"), "count"),
        "handshakes_resumed": Metric(_handshakes(data, "tls_resumed"), "count"),
        **{name: Metric(_rare(data, name), "count") for name in _STATUS_CLASSES},
        "error_ratio": Metric(_error_ratio(data), "ratio"),
        "bytes_sent": Metric(sum_of_flows(flows, lambda flow: flow.sent_bytes), "bytes"),
        "bytes_received": Metric(sum_of_flows(flows, received_bytes), "bytes"),
        "body_bytes": Metric(counter(data, "body_bytes"), "bytes"),
        "transfer_bps": Metric(rates["throughput_bps"], "bit/s"),
        "latency_samples": Metric(latency.counts[0], "count"),
        "latency_censored": Metric(latency.counts[1], "count"),
        **times("latency", latency, _SPREAD),
        "latency_within_stdev_ratio": Metric(latency.within_stdev, "ratio"),
        **times("service", histograms.sample("service"), _SPREAD),
        **times("late", histograms.sample("late"), _LATE),
        **{name: one for phase in PHASES for name, one in times(phase, histograms.sample(phase), _PHASE).items()},
        **times("kernel_wait", histograms.sample("kernel_wait"), ("p99",)),
    }


def distributions(data: TestData, window: Window | None, histograms: Histograms) -> tuple[Distribution, ...]:
    """The distributions of every histogram with values, and of the threads' rates."""
    samples = {name: histograms.sample(name) for name in _HISTOGRAMS}
    asked = [one for name in (*data.spec.asked, *data.asked) if (one := histogram_of(name)) is not None]
    fed = [
        distribution(name, sample, (one.percentile for one in asked if one.histogram == name))
        for name, sample in samples.items()
        if sample.count or sample.censored
    ]
    rates = _thread_rates(data, window)
    return (*fed, *([rates] if rates is not None else []))


def _rare(data: TestData, name: records.CountName) -> int | None:
    """A count that an engine omits if it is 0. It is known if the engine counted answers."""
    count = counter(data, name)
    return 0 if count is None and counter(data, "responses") is not None else count


def _handshakes(data: TestData, name: Literal["tls_full", "tls_resumed"]) -> int | None:
    """The number of handshakes; unknown without TLS."""
    return _rare(data, name) if data.spec.tls else counter(data, name)


def _error_ratio(data: TestData) -> float | None:
    """The share of failed operations among all that were due; None if none was due.

    Failed are: errors, answers with status 4xx or 5xx, requests that had no answer for over a second at the end, and
    requests that were not sent, beyond the few that every end leaves. Requests that are in flight or just due at the
    end are not failed. A script's done() that fails is no request."""
    errors = error_counts(data).items()
    failed = sum(count for name, count in errors if not name.startswith("status_") and name != "script_error")
    refused = sum(counter(data, name) or 0 for name in REFUSED)
    answered = counter(data, "responses")
    unsent = counter(data, "unsent") or 0
    whole = (answered or 0) + failed + (counter(data, "unanswered") or 0) + unsent
    if answered is None or not whole:
        return None
    never = max(0, unsent - leftover(data.connections or max(1, len(data.hosts))))
    return (failed + refused + (counter(data, "unanswered_over_1s") or 0) + never) / whole


def _thread_rates(data: TestData, window: Window | None) -> Distribution | None:
    """Answers per second of each thread in each interval inside the window."""
    if window is None:
        return None
    rates = [
        (after.received_units - before.received_units) * 1e9 / (after.t_ns - before.t_ns)
        for (key, side), points in data.progress.items()
        if side == "local" and (not data.hosts or key.host in data.hosts)
        for before, after in pairwise(points)
        if before.received_units is not None
        and after.received_units is not None
        and window.start_ns <= before.t_ns < after.t_ns
        # An interval ends when its counters are read, shortly after the tick.
        and after.t_ns <= window.end_ns + data.spec.interval_ns / 2
    ]
    if not rates:
        return None
    found = np.array(rates)
    mean, stdev = float(found.mean()), float(found.std())
    return Distribution(
        metric="thread_rate",
        count=len(rates),
        min=float(found.min()),
        mean=mean,
        stdev=stdev,
        within_stdev=float(np.count_nonzero(np.abs(found - mean) <= stdev) / len(rates)),
        max=float(found.max()),
        percentiles={},
    )
