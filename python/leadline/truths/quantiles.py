"""Quantiles of times that a server or a wire wrote down."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from leadline.errors import LeadlineError


def quantiles_us(times_s: Sequence[float]) -> Mapping[str, float]:
    """The median, the 99th percentile and the longest, by the names of Leadline's figures.

    Raises:
        LeadlineError: there is none.
    """
    if not times_s:
        raise LeadlineError("nothing was answered")
    ordered = sorted(times_s)

    def at(share: float) -> float:
        return 1e6 * ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return {"latency_p50_us": at(0.5), "latency_p99_us": at(0.99), "latency_max_us": at(1.0)}
