"""What CPU each tier of a stack needs for a rate of requests, from the CPU time that a request took there. Pure.

CPU time a request is taken to be the same at another rate. That is an estimate: work that is done for several requests
at once costs less a request under more load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leadline.analysis.model import RunAnalysis, Verdict
from leadline.plan.tags import split_figure
from leadline.plan.tier_metrics import PER_REQUEST, TAG

RATES_PER_S = (1000.0, 5000.0, 10_000.0)
"""The rates that are planned for by default."""


@dataclass(frozen=True, slots=True)
class TierNeed:
    """What one tier needs for one rate."""

    case: str  # The case whose cost it is.
    test: str  # Its test.
    tier: str  # The tier.
    cpu_us_per_request: float  # CPU time of the tier a request, us.
    is_doubted: bool  # Whether this cost is of a measurement that is not valid.
    rate_per_s: float  # Requests per second to plan for.
    cpus: float  # CPUs like the measured ones that these keep busy.
    planned_cpus: float  # The same for CPUs that are to have time to spare.
    per_cpu_per_s: float  # Requests per second that one such CPU carries, with time to spare.


def plan_tiers(analysis: RunAnalysis, rates_per_s: Sequence[float], busy: float) -> Iterator[TierNeed]:
    """What each tier of each case needs for each rate, with CPUs that are to be `busy` for this share of the time."""
    for summary in analysis.summaries:
        for name, metric in summary.metrics.items():
            figure, tags = split_figure(name)
            if figure != PER_REQUEST or metric.value is None or metric.value <= 0:
                continue
            for rate in rates_per_s:
                cpus = rate * metric.value / 1e6
                yield TierNeed(
                    case=summary.case,
                    test=summary.test,
                    tier=tags[TAG],
                    cpu_us_per_request=metric.value,
                    is_doubted=metric.verdict is not Verdict.VALID,
                    rate_per_s=rate,
                    cpus=cpus,
                    planned_cpus=cpus / busy,
                    per_cpu_per_s=busy * 1e6 / metric.value,
                )
