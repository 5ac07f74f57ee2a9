"""The CPUs that a stack's tiers need for a rate of requests, and their table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from leadline.analysis.model import Bound, Metric, Verdict
from leadline.analysis.tier_sizing import TierNeed, plan_tiers
from leadline.report.tier_sizes import tier_size_blocks


def run_of(**costs_us: float | None) -> Any:
    """A run whose stack's tiers took this CPU time a request."""
    metrics = {f"tier_cpu_us_per_request{{tier:{tier}}}": Metric(cost, "us") for tier, cost in costs_us.items()}
    metrics["requests_per_s"] = Metric(5000.0, "1/s")
    return SimpleNamespace(summaries=[SimpleNamespace(case="c01", test="users", metrics=metrics)])


def text_of(needs: list[TierNeed]) -> str:
    console = Console(width=100)
    with console.capture() as captured:
        for block in tier_size_blocks(needs, 0.7):
            console.print(block)
    return captured.get()


def test_cpus_are_the_rate_by_the_cost_of_a_request_with_time_to_spare() -> None:
    [need] = plan_tiers(run_of(router=70.0), [5000.0], busy=0.7)
    assert need.tier == "router"
    assert [need.cpus, need.planned_cpus] == pytest.approx([0.35, 0.5])
    assert need.per_cpu_per_s == pytest.approx(10_000)
    assert not need.is_doubted


def test_tier_without_a_known_cost_has_no_plan() -> None:
    assert list(plan_tiers(run_of(web=None, store=0.0), [5000.0], busy=0.7)) == []


def test_cost_of_a_doubted_measurement_is_marked() -> None:
    run = run_of(router=70.0)
    [name] = [name for name in run.summaries[0].metrics if name.startswith("tier")]
    run.summaries[0].metrics[name] = Metric(70.0, "us").doubted(Verdict.DISTURBED, "other-work", Bound.NONE)
    [need] = plan_tiers(run, [1000.0], busy=0.7)
    assert need.is_doubted
    assert "≈ 70.0 µs" in text_of([need])


def test_table_adds_the_tiers_up() -> None:
    needs = list(plan_tiers(run_of(router=70.0, app=140.0), [1000.0, 5000.0], busy=0.7))
    rows = [line.split() for line in text_of(needs).splitlines() if line.strip()]
    assert rows[2][0] == "router" and rows[2][-2:] == ["0.10", "0.50"]
    assert rows[3][0] == "app" and rows[3][-2:] == ["0.20", "1.0"]
    assert rows[4] == ["all", "0.30", "1.5"]
