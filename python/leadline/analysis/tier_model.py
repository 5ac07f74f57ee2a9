"""Records of what the tiers of a stack used and how long requests were in them. An unknown value is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TierStatistics:
    """One tier in one test: its CPU time and memory in the steady window, and times of requests in the whole load."""

    tier: str  # The tier's name in the plan.
    kind: str  # haproxy | node | redis | command
    host: str  # The host that it runs on.
    processes: tuple[str, ...]  # The names of its processes in observations.
    cpus: tuple[int, ...]  # The CPUs that these may use; empty: all of the host.
    cpu_percent: float | None  # CPU time of its processes, percent of one CPU.
    cpu_unknown: str | None  # Why that is unknown.
    cpu_us_per_request: float | None  # The same for each answered request, us.
    memory_bytes: float | None  # Memory of its processes, bytes.
    time_mean_us: float | None
    """Time that a request spent in this tier and those behind it, us, mean of the logged requests."""
    time_p99_us: float | None
    """The same, 99th percentile; None of fewer than 100 requests."""
    own_mean_us: float | None
    """The same without the time in the tiers behind it, as far as they have times."""
    time_unknown: str | None  # Why these times are unknown.
    logged: int | None  # Requests in HAProxy's log from which the times are.
    execution_us_per_request: float | None
    """Redis alone: time in which it executed commands, for each answered request, us."""
    counters: dict[str, int] = field(default_factory=dict)
    """What it counted itself during the load: requests, connections opened to the next tier, reused ones ..."""


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request, with its time in each tier."""

    trace: str | None  # Its `traceparent`; null if it had none.
    status: int  # Status of its answer.
    times_us: dict[str, float]  # Time in each tier, with those behind it, us.
