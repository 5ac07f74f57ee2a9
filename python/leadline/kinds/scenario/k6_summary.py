"""A scenario's result as k6's summary (`--summary-export`), so that programs that read it go on reading. Pure.

Times are in ms, as k6 has them; figures that are not known are left out.
"""

from __future__ import annotations

from typing import Any

from leadline.analysis.model import TestResult

_TRENDS = {"http_req_duration": "service", "http_req_waiting": "first_byte", "iteration_duration": "iteration"}
_STATISTICS = {"avg": "mean", "min": "min", "med": "p50", "max": "max", "p(90)": "p90", "p(95)": "p95", "p(99)": "p99"}


def k6_summary(result: TestResult) -> dict[str, Any]:
    """The document: metrics by k6's names, and the checks of all requests."""
    metrics: dict[str, Any] = {}
    for name, family in _TRENDS.items():
        times = {word: _value(result, f"{family}_{ours}_us") for word, ours in _STATISTICS.items()}
        known = {word: time / 1000 for word, time in times.items() if time is not None}
        if known:
            metrics[name] = known
    length_s = result.window.length_s if result.window is not None else None
    for name, ours in (("http_reqs", "requests"), ("iterations", "iterations"), ("data_received", "bytes_received"),
                       ("data_sent", "bytes_sent"), ("dropped_iterations", "iterations_dropped")):  # fmt: skip
        count = _value(result, ours)
        if count is not None:
            metrics[name] = {"count": count, **({"rate": count / length_s} if length_s else {})}
    failed = _value(result, "error_ratio")
    if failed is not None:
        metrics["http_req_failed"] = {"value": failed}
    users = _value(result, "users_most")
    if users is not None:
        metrics["vus_max"] = {"value": users, "min": users, "max": users}
    checks = _checks(result)
    passed, missed = sum(one["passes"] for one in checks.values()), sum(one["fails"] for one in checks.values())
    if checks:
        metrics["checks"] = {
            "passes": passed,
            "fails": missed,
            "value": passed / (passed + missed) if passed + missed else 0,
        }
    root = {"name": "", "path": "", "id": "", "groups": {}, "checks": checks}
    return {"root_group": root, "metrics": metrics}


def _checks(result: TestResult) -> dict[str, Any]:
    """The checks of all requests by name."""
    found: dict[str, Any] = {}
    for label in result.scenario.labels if result.scenario is not None else ():
        for check in label.checks:
            one = found.setdefault(check.name, {"name": check.name, "path": f"::{check.name}", "passes": 0, "fails": 0})
            one["passes"] += check.passed
            one["fails"] += check.failed
    return found


def _value(result: TestResult, name: str) -> float | None:
    metric = result.metrics.get(name)
    return None if metric is None else metric.value
