"""The record of a scalability law."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScalabilityLaw:
    """The Universal Scalability Law of one rate: `rate N / (1 + contention (N - 1) + coherency N (N - 1))`."""

    rate: float
    """The rate of one, in the figure's unit."""
    contention: float
    """The share that is serialised."""
    coherency: float
    """What each pair costs."""
    peak: float | None
    """The number with the highest rate; None if the rate only levels off."""
    peak_low: float | None
    peak_high: float | None
    knee: float | None
    """The number from which on one percent more brings less than half a percent; None where that never comes."""
    residual: float
    """Standard deviation of the figures around the law, as a share of it."""
    curve: tuple[tuple[float, float], ...]
    """The law over the measured numbers: number and rate."""
