"""The names of service demand: the CPU time that each end spends per byte, packet or transaction."""

from __future__ import annotations

from typing import Literal

from leadline.plan.metric_specs import MetricSpec, lower

Unit = Literal["byte", "packet", "transaction"]


def service_demand_specs(unit: Unit) -> tuple[MetricSpec, ...]:
    """The figures of both ends, for a kind's list."""
    return tuple(
        spec
        for side in ("client", "server")
        for spec in (
            lower(f"{side}_cpu_ns_per_{unit}", f"CPU time of the {side}'s load threads per {unit} that they moved"),
            lower(
                f"{side}_machine_cpu_ns_per_{unit}",
                f"CPU time of the {side}'s whole machine per {unit}, soft interrupts and other programs included",
            ),
        )
    )
