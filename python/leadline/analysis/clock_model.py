"""What a test's findings say of the hosts' clocks. Data alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostClock:
    """The clock of a host that has one of its own, in one test, and when the host began."""

    host: str
    """The host's name in the trial."""
    offset_us: float
    """How far it was ahead of the controller's before the test: both count from their machines' starts."""
    bound_us: float
    """The largest error of the host's instants in the test: the offset's bound, and what the clock moved meanwhile."""
    comparisons: int
    """Before, during and after the test."""
    drift_ppm: float | None
    """How fast it runs away; null if one comparison cannot tell, or if no drift fits them all."""
    drift_bound_ppm: float | None
    """The true drift is within this much of it, parts per million."""
    start_late_us: float | None
    """How long after the agreed instant the host began, by its own clock."""
    start_bound_us: float
    """The error of that instant by the clocks."""
