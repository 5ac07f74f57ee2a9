"""Thresholds by k6's syntax: `http_req_duration: p(95)<500`, `http_req_failed{name:login}: rate<0.01`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

METRICS = {
    "http_req_duration": ("trend", "request_duration"),
    "http_req_failed": ("rate", "request_failed"),
    "http_reqs": ("counter", "requests"),
    "http_req_waiting": ("trend", "request_first_byte"),
    "iteration_duration": ("trend", "iteration_duration"),
    "iterations": ("counter", "iterations"),
    "dropped_iterations": ("counter", "iterations_dropped"),
    "checks": ("rate", "checks"),
    "group_duration": ("trend", "transaction_duration"),
    "data_received": ("counter", "bytes_received"),
    "data_sent": ("counter", "bytes_sent"),
    "vus": ("gauge", "users"),
    "vus_max": ("gauge", "users_most"),
}
"""k6's metrics: what they are, and our name."""
_STATISTICS = {
    "trend": ("avg", "min", "max", "med"),
    "rate": ("rate",),
    "counter": ("count", "rate"),
    "gauge": ("value",),
}


@dataclass(frozen=True, slots=True)
class Threshold:
    """One limit."""

    text: str
    """As written, with its metric."""
    metric: str
    """Our name of the metric."""
    tags: dict[str, str]
    """Only what has these tags, such as name or group."""
    statistic: str
    """avg, min, max, med, p95, count, rate or value."""
    op: str
    value: float
    """In k6's unit: ms for times."""


def read_threshold(metric: str, text: str) -> Threshold:
    """The threshold that a metric's name and an expression mean.

    Raises:
        ValueError: it is none; the message says what would be right.
    """
    named = _METRIC.fullmatch(metric.strip())
    if named is None or named[1] not in METRICS:
        raise ValueError(f"{metric!r} is not a metric; use {', '.join(METRICS)}")
    kind, own = METRICS[named[1]]
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a threshold; write it as in 'p(95)<500'")
    statistic, op, value = found[1], found[3], float(found[4])
    is_percentile = found[2] is not None
    if is_percentile and not 0 <= float(found[2]) <= 100:
        raise ValueError(f"{text!r}: a percentile is from 0 to 100")
    if statistic not in _STATISTICS[kind] and not (is_percentile and kind == "trend"):
        allowed = ", ".join(_STATISTICS[kind]) + (", p(N)" if kind == "trend" else "")
        raise ValueError(f"{text!r}: {named[1]} has no {statistic}; use {allowed}")
    tags = dict(_tag(part) for part in (named[2] or "").split(",") if part.strip())
    return Threshold(f"{metric.strip()}: {text.strip()}", own, tags, statistic, "==" if op == "===" else op, value)


def _tag(text: str) -> tuple[str, str]:
    name, _, value = text.partition(":")
    return name.strip(), value.strip().strip("\"'")


_METRIC = re.compile(r"([a-z_]+)(?:\{([^{}]*)\})?")
_RULE = re.compile(
    r"(avg|min|max|med|count|rate|value|p\(\s*(\d+(?:\.\d+)?)\s*\))\s*(<=|>=|===|==|!=|<|>)\s*(-?\d+(?:\.\d+)?)"
)
