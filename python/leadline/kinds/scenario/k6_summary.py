"""A scenario's result as k6's summary (`--summary-export`), so that programs that read it go on reading. Pure.

Times are in ms, as k6 has them; figures that are not known are left out. As in k6, a threshold has `true` if it was
missed, and one with tags has a metric of its own: `http_req_duration{name:login}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leadline.analysis.model import TargetResult, TestResult
from leadline.analysis.scenario_model import LabelFindings
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
    metrics = {name: found for name in (*_TRENDS, *_COUNTERS, *_OTHERS) if (found := _metric(result, name, NO_TAGS))}
    outcomes = {one.target: one.outcome for one in judged}
    for one in thresholds:
        written, _, rule = one.text.rpartition(": ")
        found = metrics.setdefault(written, _metric(result, written.partition("{")[0], one.tags))
        found.setdefault("thresholds", {})[rule] = outcomes.get(target_of(one)) == "missed"
    root = {"name": "", "path": "", "id": "", "groups": {}, "checks": _checks(result)}
    return {"root_group": root, "metrics": metrics}


def _metric(result: TestResult, name: str, tags: Mapping[str, str]) -> dict[str, Any]:
    """The values of one of k6's metrics; none if they are not known."""
    if name in _TRENDS:
        times = {word: _value(result, f"{_TRENDS[name]}_{ours}_us", tags) for word, ours in _STATISTICS.items()}
        return {word: time / 1000 for word, time in times.items() if time is not None}
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
    users = _value(result, "users_most", tags)
    return {} if users is None else {"value": users, "min": users, "max": users}


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


_OTHERS = ("http_req_failed", "checks", "vus_max")
