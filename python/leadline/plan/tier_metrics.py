"""The figures of a stack's tiers, whatever the kind of test: `tier_cpu_us_per_request{tier:router}`.

Owns their names and meanings; `analysis.tiers` computes them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from leadline.plan.metric_specs import MetricSpec, lower

TAG = "tier"
"""The tag that names the tier."""

CPU, PER_REQUEST, MEMORY, IN_TIER_MEAN, IN_TIER_P99, EXECUTION = (
    "tier_cpu_percent",
    "tier_cpu_us_per_request",
    "tier_memory_bytes",
    "tier_time_mean_us",
    "tier_time_p99_us",
    "tier_execution_us_per_request",
)
TIER_METRICS: tuple[MetricSpec, ...] = (
    lower(CPU, "CPU time of a tier's processes in the steady window, percent of one CPU"),
    lower(PER_REQUEST, "the same for each request that users had answered"),
    lower(MEMORY, "memory of a tier's processes, mean of the steady window"),
    lower(IN_TIER_MEAN, "the time that a request spent in a tier and those behind it, mean of the logged requests"),
    lower(IN_TIER_P99, "the same, 99th percentile of the logged requests"),
    lower(EXECUTION, "time in which Redis executed commands, for each request that users had answered"),
)
_BY_NAME: Mapping[str, MetricSpec] = {spec.name: spec for spec in TIER_METRICS}


def is_of_tier(figure: str, tags: Mapping[str, str]) -> bool:
    """Whether a figure, with these tags, describes one tier."""
    return figure in _BY_NAME and tags.keys() == {TAG}


def tier_metric(figure: str, tier: str) -> str:
    """The name of a tier's figure: `tier_cpu_percent{tier:router}`."""
    return f"{figure}{{{TAG}:{tier}}}"


def tier_spec(figure: str) -> MetricSpec | None:
    """The meaning of a figure of tiers; None for another figure."""
    return _BY_NAME.get(figure)
