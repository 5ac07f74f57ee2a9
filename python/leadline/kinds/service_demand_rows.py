"""The service demand of both ends in the summary: one line, instead of one for each figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from leadline.plan.service_demand_metrics import Unit, service_demand_specs

if TYPE_CHECKING:
    from leadline.analysis.model import Metric, TestResult

Rows = list[tuple[str, str]]


def demand_line(metrics: Mapping[str, Metric], unit: Unit) -> str:
    """Both ends' service demand in one line; empty if it is not known."""
    parts = []
    for side in ("client", "server"):
        own, machine = (metrics.get(f"{side}{whose}_cpu_ns_per_{unit}") for whose in ("", "_machine"))
        if own is not None and own.value is not None:
            whole = f", its machine {machine.value:.3g} ns" if machine is not None and machine.value is not None else ""
            parts.append(f"{side} {own.value:.3g} ns{whole}")
    return "; ".join(parts)


def with_demand_line(result: TestResult, unit: Unit, rows: Callable[[TestResult], Rows]) -> Rows:
    """The rows of a result's other figures, and the line."""
    named = {spec.name for spec in service_demand_specs(unit)}
    others = {name: metric for name, metric in result.metrics.items() if name not in named}
    line = demand_line(result.metrics, unit)
    return [*rows(replace(result, metrics=others)), *([(f"CPU per {unit}", line)] if line else [])]
