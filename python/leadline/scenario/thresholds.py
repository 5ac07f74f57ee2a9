"""Thresholds by k6's syntax: `http_req_duration: p(95)<500`, `http_req_failed{name:login}: rate<0.01`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass

from leadline.plan.source import did_you_mean
from leadline.plan.tags import read_tags

METRICS = {
    "http_req_duration": ("trend", "request_duration"),
    "http_req_failed": ("rate", "request_failed"),
    "http_reqs": ("counter", "requests"),
    "http_req_waiting": ("trend", "request_first_byte"),
    "http_req_connecting": ("longest", "connect"),
    "http_req_tls_handshaking": ("longest", "tls_full"),
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
    # Of times that only requests with a new connection have, the longest alone is the same by request and connection.
    "longest": ("max",),
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
    tags = read_tags(named[2] or "")
    _check_tags(named[1], tags)
    return Threshold(f"{metric.strip()}: {text.strip()}", own, tags, statistic, "==" if op == "===" else op, value)


def _check_tags(metric: str, tags: dict[str, str]) -> None:
    """Raise ValueError for tags that the metric cannot have, or that no request has."""
    for name, value in tags.items():
        if not name or not value:
            raise ValueError(f"{name or value!r} is not a tag; write it as in {metric}{{name:login}}")
        if name in _NOT_KEPT:
            words = f"{metric} is not kept by {name}"
            raise ValueError(f"{words}; {_NOT_KEPT[name]}")
        if metric in _OF_GROUPS and name != "scenario":
            raise ValueError(f"{metric} is of iterations, which have no {name}; use scenario:NAME, a group of users")
        if name == "check" and metric != "checks":
            raise ValueError(f"{metric} has no checks; use checks{{check:{value}}}")
        if METRICS[metric][0] in ("gauge", "longest"):
            raise ValueError(f"{metric} has no tags; leave them out")


def check_known_tags(threshold: Threshold, known: Mapping[str, Set[str]]) -> None:
    """Raise ValueError if nothing in the scenario has a threshold's tag; `known` has the values of each."""
    for name, value in threshold.tags.items():
        if name not in known and name not in SYSTEM_TAGS:
            hint = did_you_mean(name, (*sorted(known), *SYSTEM_TAGS))
            raise ValueError(f"{threshold.text}: nothing has the tag '{name}'; {hint}")
        values = known.get(name, frozenset())
        if values and not {value, f"::{value}"} & values:
            hint = did_you_mean(value, sorted(values))
            raise ValueError(f"{threshold.text}: nothing has the tag {name}:{value}; {hint}")


SYSTEM_TAGS = ("name", "group", "scenario", "method", "check")
"""Tags that requests have without being given them: their name, the transactions around, the group of users, the
method; checks have their name."""
_BY_STATUS = "use a check of the status, as in check: [200], and checks{check:NAME}"
_NOT_KEPT = {
    "status": _BY_STATUS,
    "expected_response": _BY_STATUS,
    "error": "http_req_failed counts all failures",
    "error_code": "http_req_failed counts all failures",
    "url": "give the request a name, and use name:NAME",
    **dict.fromkeys(("proto", "subproto", "tls_version", "ip", "vu", "iter", "ocsp_status"), "give the requests tags"),
}
_OF_GROUPS = ("iteration_duration", "iterations", "dropped_iterations")


_METRIC = re.compile(r"([a-z_]+)(?:\{([^{}]*)\})?")
_RULE = re.compile(
    r"(avg|min|max|med|count|rate|value|p\(\s*(\d+(?:\.\d+)?)\s*\))\s*(<=|>=|===|==|!=|<|>)\s*(-?\d+(?:\.\d+)?)"
)
