"""Lines of a scenario over time: users, errors by cause, percentiles."""

from __future__ import annotations

from typing import Any

from leadline.analysis.model import Window
from leadline.analysis.test_data import TestData
from leadline.analysis.test_spec import TestSpec
from leadline.kinds.scenario.lines import lines

S = 1_000_000_000


def progress(at_s: float, users: int, active: int, errors: dict[str, int]) -> dict[str, Any]:
    counts = dict.fromkeys(("due", "begun", "running", "completed", "failed", "interrupted", "dropped", "not_begun"), 0)
    population = {"name": "users", "users": users, "users_active": active, "iterations": counts}
    label = {"ended": 9, "failed": sum(errors.values()), "errors": errors, "latency": {}}
    labels = [{"name": "a", "kind": "request", **label}, {"name": "t", "kind": "transaction", **label}]
    scenario = {"populations": [population], "labels": labels}
    return {
        "type": "progress",
        "t_ns": int(at_s * S),
        "task": "load",
        "side": "local",
        "flows": [],
        "histograms": [],
        "scenario": scenario,
    }


def data() -> TestData:
    found = TestData(TestSpec.read({"name": "s", "kind": "scenario", "duration_ms": 3000}), start_at_ns=10 * S)
    found.add("one", progress(11, 2, 1, {"reset": 4}))
    found.add("two", progress(11.5, 3, 3, {}))
    found.add("one", progress(12, 5, 4, {"status_500": 2}))
    found.add("one", progress(12.01, 5, 4, {"reset": 1}))
    return found


WINDOW = Window(first_start_ns=10 * S, last_end_ns=13 * S, start_ns=10 * S, end_ns=13 * S)


def test_users_of_all_hosts_are_added() -> None:
    users, active = (line for line in lines(data(), WINDOW) if line.unit == "users")
    assert (users.t_s, users.values) == ((1.0, 1.5, 2.0, 2.01), (2, 5, 8, 8))
    assert active.values == (1, 4, 7, 7)


def test_errors_are_per_second_by_cause_without_those_of_transactions() -> None:
    errors = {line.label: line.values for line in lines(data(), WINDOW) if line.unit == "errors/s"}
    assert errors == {"reset": (4, 4, 0), "status_500": (0, 0, 2)}


def test_test_without_reports_has_no_lines() -> None:
    assert lines(TestData(TestSpec.read({"name": "s", "kind": "scenario", "duration_ms": 3000})), WINDOW) == ()
