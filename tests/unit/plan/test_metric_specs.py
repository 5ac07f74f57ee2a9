"""What kinds of test say of their figures: units as their names end, one explanation each."""

from __future__ import annotations

import pytest

from leadline.plan.kinds import PlanKind, plan_kinds
from leadline.plan.metric_specs import Better, lower, times


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("throughput_bps", "bit/s"),
        ("requests_per_s", "1/s"),
        ("latency_p99_us", "us"),
        ("server_cpu_s", "s"),
        ("server_cpu_per_client_ms", "ms"),
        ("memory_per_client_bytes", "bytes"),
        ("bytes_sent", "bytes"),
        ("lost_ratio", "ratio"),
        ("retransmits", "count"),
    ],
)
def test_name_has_the_unit(name: str, unit: str) -> None:
    assert lower(name, "").unit == unit


def test_times_name_their_percentile() -> None:
    found = times("latency", ("min", "p50", "p999"), "us", "the time")
    assert [one.name for one in found] == ["latency_min_us", "latency_p50_us", "latency_p999_us"]
    assert [one.explanation for one in found] == [
        "shortest of the time",
        "percentile 50 of the time",
        "percentile 99.9 of the time",
    ]
    assert {one.better for one in found} == {Better.LOWER}


@pytest.mark.parametrize("kind", plan_kinds(), ids=lambda kind: kind.name)
def test_every_figure_of_a_kind_is_there_once_and_explained(kind: PlanKind) -> None:
    names = [metric.name for metric in kind.metrics]
    assert names and len(names) == len(set(names))
    assert all(metric.explanation for metric in kind.metrics)
