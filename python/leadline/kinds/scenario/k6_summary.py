"""A scenario's result as k6's summary (`--summary-export`), so that programs that read it go on reading. Pure.

Times are in ms, as k6 has them; figures that are not known are left out, and so are k6's phases that are not measured:
`http_req_blocked`, `http_req_sending`, `http_req_receiving`. As in k6, a threshold has `true` if it was missed, and one
with tags has a metric of its own: `http_req_duration{name:login}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leadline.analysis.model import TargetResult, TestResult
from leadline.analysis.scenario_model import LabelFindings
from leadline.kinds.scenario.lines import USERS
from leadline.kinds.scenario.tagged import has_tags
from leadline.kinds.scenario.targets import target_of
from leadline.plan.tags import NO_TAGS, with_tags
from leadline.scenario.thresholds import Threshold

_TRENDS = {
    "http_req_duration": "service",
    "http_req_waiting": "first_byte",
    "iteration_duration": "iteration",
    "group_duration": "transaction",
}
_OF_CONNECTIONS = {
    "http_req_connecting": (("connect", "connections_opened"),),
    "http_req_tls_handshaking": (("tls_full", "handshakes_full"), ("tls_resumed", "handshakes_resumed")),
}
"""Times that a request has if it opened its connection, each with the number of those that did."""
_STATISTICS = {"avg": "mean", "min": "min", "med": "p50", "max": "max", "p(90)": "p90", "p(95)": "p95", "p(99)": "p99"}
_COUNTERS = {
    "http_reqs": "requests",
    "iterations": "iterations",
    "data_received": "bytes_received",
    "data_sent": "bytes_sent",
    "dropped_iterations": "iterations_dropped",
}


def k6_summary(
    result: TestResult, judged: Sequence[TargetResult] = (), thresholds: Sequence[Threshold] = ()
) -> dict[str, Any]:
    """The document: metrics by k6's names, those of thresholds with tags, and the checks of all requests. `judged` are
    the outcomes of all targets."""
    metrics = {name: found for name in _NAMES if (found := _metric(result, name, NO_TAGS))}
    outcomes = {one.target: one.outcome for one in judged}
    for one in thresholds:
        written, _, rule = one.text.rpartition(": ")
        found = metrics.setdefault(written, _metric(result, written.partition("{")[0], one.tags))
        found.setdefault("thresholds", {})[rule] = outcomes.get(target_of(one)) == "missed"
    root = {"name": "", "path": "", "id": "", "groups": _groups(result), "checks": _checks(result)}
    return {"root_group": root, "metrics": metrics}


def _metric(result: TestResult, name: str, tags: Mapping[str, str]) -> dict[str, Any]:
    """The values of one of k6's metrics; none if they are not known."""
    if name in _TRENDS:
        times = {word: _value(result, f"{_TRENDS[name]}_{ours}_us", tags) for word, ours in _STATISTICS.items()}
        return {word: time / 1000 for word, time in times.items() if time is not None}
    if name in _OF_CONNECTIONS:
        return {} if tags else _of_connections(result, _OF_CONNECTIONS[name])
    if name in _COUNTERS:
        count = _value(result, _COUNTERS[name], tags)
        length_s = result.window.length_s if result.window is not None else None
        return {} if count is None else {"count": count, **({"rate": count / length_s} if length_s else {})}
    if name == "http_req_failed":
        value = _value(result, "error_ratio", tags)
        labels = _labels(result, tags)
        failed = sum(one.failed for one in labels)
        counts = {"passes": failed, "fails": sum(one.ended for one in labels) - failed}
        return {} if value is None else {**counts, "value": value}
    if name == "checks":
        checks = [one for label in _labels(result, tags) for one in label.checks]
        checks = [one for one in checks if tags.get("check") in (None, one.name)]
        passed, failed = sum(one.passed for one in checks), sum(one.failed for one in checks)
        value = passed / (passed + failed) if passed + failed else 0
        return {"passes": passed, "fails": failed, "value": value} if checks else {}
    return _users(result, name, tags)


def _users(result: TestResult, name: str, tags: Mapping[str, str]) -> dict[str, Any]:
    """Users over time, or the largest number of them."""
    if name == "vus":
        line = next((one for one in result.series if (one.label, one.unit) == ("users", USERS)), None)
        known = [] if line is None else [value for value in line.values if value is not None]
        return {"value": known[-1], "min": min(known), "max": max(known)} if known else {}
    users = _value(result, "users_most", tags)
    return {} if users is None else {"value": users, "min": users, "max": users}


def _of_connections(result: TestResult, parts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """A time of connections as a time of requests: 0 for those that used an open one, as k6 counts."""
    requests = _value(result, "requests", NO_TAGS)
    counts = [_value(result, count, NO_TAGS) for _, count in parts]
    opened = sum(count for count in counts if count)
    if not requests or all(count is None for count in counts) or opened > requests:
        return {}
    found: dict[str, float] = {}
    times_us = [
        (count, _value(result, f"{time}_mean_us", NO_TAGS), _value(result, f"{time}_max_us", NO_TAGS))
        for (time, _), count in zip(parts, counts, strict=True)
        if count
    ]
    known = [(count * mean, most) for count, mean, most in times_us if mean is not None and most is not None]
    if len(known) == len(times_us):
        found["avg"] = sum(total for total, _ in known) / requests / 1000
        found["max"] = max((most for _, most in known), default=0) / 1000
    share_without = 100 * (1 - opened / requests)
    return found | {word: 0 for word, percentile in _PERCENTILES.items() if percentile < share_without}


def _groups(result: TestResult) -> dict[str, Any]:
    """The transactions by name. Which one contains another is known where a threshold asks for the tag `group`."""
    root: dict[str, Any] = {"groups": {}}
    for label in result.scenario.labels if result.scenario is not None else ():
        if not label.is_transaction:
            continue
        group, path = root, ""
        for name in label.tags.get("group", f"::{label.name}").removeprefix("::").split("::"):
            path += f"::{name}"
            made = {"name": name, "path": path, "id": "", "groups": {}, "checks": {}}
            group = group["groups"].setdefault(name, made)
    groups: dict[str, Any] = root["groups"]
    return groups


def _labels(result: TestResult, tags: Mapping[str, str]) -> list[LabelFindings]:
    """The requests that have the tags."""
    labels = result.scenario.labels if result.scenario is not None else ()
    return [one for one in labels if not one.is_transaction and has_tags(one.name, one.tags, tags)]


def _checks(result: TestResult) -> dict[str, Any]:
    """The checks of all requests by name."""
    found: dict[str, Any] = {}
    for label in result.scenario.labels if result.scenario is not None else ():
        for check in label.checks:
            one = found.setdefault(check.name, {"name": check.name, "path": f"::{check.name}", "passes": 0, "fails": 0})
            one["passes"] += check.passed
            one["fails"] += check.failed
    return found


def _value(result: TestResult, name: str, tags: Mapping[str, str]) -> float | None:
    metric = result.metrics.get(with_tags(name, tags))
    return None if metric is None else metric.value


_PERCENTILES = {"min": 0, "med": 50, "p(90)": 90, "p(95)": 95, "p(99)": 99}
_NAMES = (*_TRENDS, *_OF_CONNECTIONS, *_COUNTERS, "http_req_failed", "checks", "vus", "vus_max")
