"""A scenario's thresholds (k6's syntax) as targets on our metrics. Pure.

k6's times are in ms, ours in µs; its `http_req_duration` is the time from sending to the answer's end: `service`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from leadline.errors import InputError
from leadline.plan.percentiles import percentile_name
from leadline.plan.tags import with_tags
from leadline.scenario.thresholds import Threshold

_HISTOGRAMS = {
    "request_duration": "service",
    "request_first_byte": "first_byte",
    "iteration_duration": "iteration",
    "transaction_duration": "transaction",
    "connect": "connect",
    "tls_full": "tls_full",
}
_PLAIN = {
    ("request_failed", "rate"): "error_ratio",
    ("requests", "count"): "requests",
    ("requests", "rate"): "requests_per_s",
    ("iterations", "count"): "iterations",
    ("iterations", "rate"): "iterations_per_s",
    ("iterations_dropped", "count"): "iterations_dropped",
    ("checks", "rate"): "checks_ratio",
    ("bytes_received", "count"): "bytes_received",
    ("bytes_sent", "count"): "bytes_sent",
    ("users_most", "value"): "users_most",
}
_STATISTICS = {"avg": "mean", "med": "p50", "min": "min", "max": "max"}


def targets_of(thresholds: Sequence[tuple[Threshold, bool, int]]) -> tuple[list[str], dict[str, int]]:
    """The targets, and of those that end the test when they are missed the ms before that may happen.

    Raises:
        InputError: a threshold has no target.
    """
    targets = [target_of(one) for one, _, _ in thresholds]
    return targets, {
        target: delay_ms for target, (_, aborts, delay_ms) in zip(targets, thresholds, strict=True) if aborts
    }


def target_of(one: Threshold) -> str:
    """A threshold as a target. Raises InputError: it has none."""
    if one.op == "!=":
        raise InputError(f"the threshold '{one.text}' has no target", hint="use <, <=, >, >= or ==")
    plain = _PLAIN.get((one.metric, one.statistic))
    if plain is not None:
        return f"{with_tags(plain, one.tags)} {one.op} {one.value:.10g}"
    histogram = _HISTOGRAMS.get(one.metric)
    statistic = _STATISTICS.get(one.statistic)
    percentile = re.fullmatch(r"p\(\s*([\d.]+)\s*\)", one.statistic)
    if percentile is not None:
        try:
            statistic = percentile_name(percentile[1])
        except ValueError as error:
            raise InputError(f"the threshold '{one.text}': {error}") from None
    if histogram is None or statistic is None:
        raise InputError(f"the threshold '{one.text}' has no figure here", hint="docs/scenarios.md lists the figures")
    return f"{with_tags(f'{histogram}_{statistic}_us', one.tags)} {one.op} {one.value * 1000:.10g}"
