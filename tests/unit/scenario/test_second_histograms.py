"""Intervals of a scenario's durations, from the histograms of its seconds: of all together, and by tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from leadline.analysis.metrics import merged_histograms
from leadline.analysis.model import Metric
from leadline.analysis.test_analysis import analyse_test
from leadline.analysis.test_data import TestData
from leadline.analysis.test_spec import TestSpec

S, SECONDS = 1_000_000_000, 20
COUNTS = dict.fromkeys(("due", "begun", "late", "dropped", "not_begun", "failed", "interrupted", "running"), 0)


def histogram(metric: str, values_ns: Sequence[int]) -> dict[str, Any]:
    made = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in values_ns:
        made.record_value(value)
    return {"metric": metric, "count": len(values_ns), "hdr_v2": made.encode().decode("ascii")}


def values() -> list[list[int]]:
    """Of each second 200 durations, of which no second's resemble its neighbours'."""
    generator = np.random.default_rng(7)
    return [(5e6 * np.exp(0.3 * generator.standard_normal(200))).astype(int).tolist() for _ in range(SECONDS)]


def progress(second: int, row: Sequence[int], is_detailed: bool, warm_up: Sequence[int]) -> dict[str, Any]:
    label = {
        "ended": len(row),
        "failed": 0,
        "errors": {},
        "latency": histogram("latency", [*row, *warm_up]),
        "tags": {},
    }
    if is_detailed:
        label["histograms"] = [histogram(name, row) for name in ("latency", "service", "first_byte")]
    labels = [{"name": "login", "kind": "request", **label}, {"name": "visit", "kind": "transaction", **label}]
    iterations = [histogram(name, row) for name in ("iteration", "start_late")]
    population = {"name": "all", "users": 2, "users_active": 2, "iterations": COUNTS | {"completed": len(row)}}
    together = [histogram(name, row) for name in ("latency", "service", "first_byte", "transaction")]
    return {
        "type": "progress",
        "t_ns": (second + 1) * S - 1,
        "task": "load",
        "side": "local",
        "flows": [],
        "histograms": [*together, *iterations],
        "scenario": {"populations": [population | {"histograms": iterations}], "labels": labels},
    }


def finished(row: Sequence[int]) -> dict[str, Any]:
    names = ("latency", "service", "first_byte")
    label = {
        "population": 0, "ended": len(row), "failed": 0, "interrupted": 0, "errors": {}, "error_examples": {},
        "checks": [], "misses": {}, "sent_bytes": 0, "received_bytes": 0, "redirects": 0, "cached": 0, "tags": {},
        "histograms": [histogram(name, row) for name in names],
    }  # fmt: skip
    population = {
        "name": "all", "is_main": True, "iterations": COUNTS | {"completed": len(row)},
        "users_begun": 2, "users_most": 2, "start_ns": 0, "end_ns": SECONDS * S,
        "histograms": [histogram(name, row) for name in ("iteration", "start_late")],
    }  # fmt: skip
    labels = [{"name": "login", "kind": "request", **label}, {"name": "visit", "kind": "transaction", **label}]
    report = {"populations": [population], "labels": labels, "slowest": [], "users_memory_bytes": None}
    generator = {"side": "local", "wall_s": 20.0, "threads": [], "pushback": 0, "late_p99_us": None}
    outcome = {
        "flows": [], "histograms": [histogram(name, row) for name in names], "errors": {}, "error_examples": {},
        "generator": generator, "receiver": None, "counts": {"kind": "none"}, "scenario": report,
    }  # fmt: skip
    return {"type": "finished", "t_ns": SECONDS * S, "task": "load", "outcome": outcome}


TAGGED = (
    *("latency_p90_us{name:login}", "service_p90_us{name:login}", "first_byte_p90_us{name:login}"),
    *("transaction_p90_us{name:visit}", "iteration_p90_us{scenario:all}"),
)


def data(*, is_detailed: bool = True, warm_up: Mapping[int, Sequence[int]] | None = None) -> TestData:
    spec = TestSpec.read({"name": "s", "kind": "scenario", "duration_ms": SECONDS * 1000, "interval_ms": 1000})
    found = TestData(spec, ("one",), start_at_ns=0, asked=TAGGED)
    rows = values()
    for second, row in enumerate(rows):
        found.add("one", progress(second, row, is_detailed, (warm_up or {}).get(second, ())))
    found.add("one", finished([value for row in rows for value in row]))
    return found


def bounds(metric: Metric) -> tuple[float, float]:
    assert metric.low is not None and metric.high is not None, metric
    return metric.low, metric.high


@pytest.mark.parametrize("name", ["p50", "p90", "p99"])
def test_iterations_and_transactions_have_the_interval_that_equal_requests_have(name: str) -> None:
    metrics = analyse_test(data()).metrics
    figures = [metrics[f"{one}_{name}_us"] for one in ("latency", "service", "iteration", "transaction")]
    low, high, value = figures[0].low, figures[0].high, figures[0].value
    assert low is not None and value is not None and value / 1.2 < low < value, "it is no range of all times"
    # Too few of the values lie beyond a p99 to bound it by their ranks: the longest of them does.
    assert high is not None and value < high < 1.2 * value
    assert {(one.low, one.high) for one in figures} == {(low, high)}


def test_durations_by_tags_have_the_interval_of_their_seconds() -> None:
    metrics = analyse_test(data()).metrics
    assert {bounds(metrics[name]) for name in TAGGED} == {bounds(metrics["latency_p90_us"])}


def test_warm_up_is_in_no_second_of_a_label() -> None:
    slow = {second: [500_000_000] * 50 for second in (0, 1)}
    metrics = analyse_test(data(warm_up=slow)).metrics
    assert bounds(metrics["latency_p90_us{name:login}"]) == bounds(metrics["latency_p90_us"])


def test_names_without_histograms_of_seconds_have_the_range_of_their_times() -> None:
    metrics = analyse_test(data(is_detailed=False)).metrics
    low, high = bounds(metrics["service_p90_us{name:login}"])
    shortest, longest = (metrics[f"service_{end}_us"].value for end in ("min", "max"))
    assert low == pytest.approx(shortest, rel=1e-3) and high == pytest.approx(longest, rel=1e-3)
    assert bounds(metrics["iteration_p90_us{scenario:all}"]) == bounds(metrics["iteration_p90_us"])


def test_running_load_has_no_range_for_an_interval() -> None:
    running = replace(data(is_detailed=False), is_running=True)
    metric = analyse_test(running).metrics["service_p90_us{name:login}"]
    assert (metric.low, metric.high) == (None, None) and metric.value is not None


def test_seconds_together_are_the_whole_of_an_interrupted_test() -> None:
    ended = data()
    cut = replace(ended, outcomes=[])
    whole, metrics = merged_histograms(cut), analyse_test(cut).metrics
    for name in ("iteration", "transaction", "service"):
        assert whole.named(name).count == 200 * SECONDS
        own, of_ended = metrics[f"{name}_p90_us"], analyse_test(ended).metrics[f"{name}_p90_us"]
        assert (own.value, bounds(own)) == (of_ended.value, bounds(of_ended))
