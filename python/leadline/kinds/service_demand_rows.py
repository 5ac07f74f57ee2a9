"""The service demand of both ends in the summary: one line, instead of one for each figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from leadline.plan.service_demand_metrics import Unit, service_demand_specs

if TYPE_CHECKING:
    from leadline.analysis.model import Metric, TestResult

Rows = list[tuple[str, str]]


def demand_line(metrics: Mapping[str, Metric], unit: Unit, *, is_brief: bool = False) -> str:
    """Both ends' service demand in one line, in a brief one without that of their machines; empty if it is not
    known."""
    from leadline import quantities

    def value(name: str) -> float | None:
        return metrics[name].value if name in metrics else None

    parts = []
    for side in ("client", "server"):
        own, machine = (value(f"{side}{whose}_cpu_ns_per_{unit}") for whose in ("", "_machine"))
        if own is not None:
            whole = "" if machine is None or is_brief else f", its machine {quantities.nanoseconds(machine)}"
            parts.append(f"{side} {quantities.nanoseconds(own)}{whole}")
    return (", " if is_brief else "; ").join(parts)


def brief_demand_row(metrics: Mapping[str, Metric], unit: Unit) -> Rows:
    """The row of the short summary; none if the service demand is not known."""
    line = demand_line(metrics, unit, is_brief=True)
    return [(f"CPU per {unit}", line)] if line else []


def with_demand_line(result: TestResult, unit: Unit, rows: Callable[[TestResult], Rows]) -> Rows:
    """The rows of a result's other figures, and the line."""
    named = {spec.name for spec in service_demand_specs(unit)}
    others = {name: metric for name, metric in result.metrics.items() if name not in named}
    line = demand_line(result.metrics, unit)
    return [*rows(replace(result, metrics=others)), *([(f"CPU per {unit}", line)] if line else [])]
