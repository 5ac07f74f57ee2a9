"""The records of how figures grow with a number."""

from __future__ import annotations

from dataclasses import dataclass

from leadline.statistics import Growth


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
    peak_low: float | None  # Lower bound of the peak at 95 %.
    peak_high: float | None  # Upper bound of the peak at 95 %; null if it may only level off.
    knee: float | None
    """The number from which on one percent more brings less than half a percent; None where that never comes."""
    residual: float
    """Standard deviation of the figures around the law, as a share of it."""
    curve: tuple[tuple[float, float], ...]
    """The law over the measured numbers: number and rate."""
    rate_low: float | None = None  # Lower bound of the rate at 95 %, from the fit's covariance.
    rate_high: float | None = None  # Upper bound of the rate at 95 %, from the fit's covariance.
    contention_low: float | None = None  # Lower bound of the contention at 95 %, from the fit's covariance.
    contention_high: float | None = None  # Upper bound of the contention at 95 %, from the fit's covariance.
    coherency_low: float | None = None  # Lower bound of the coherency at 95 %, from the fit's covariance.
    coherency_high: float | None = None  # Upper bound of the coherency at 95 %, from the fit's covariance.
    knee_low: float | None = None  # Lower bound of the knee at 95 %, as `knee_high`.
    knee_high: float | None = None
    """Upper bound of the knee at 95 %, from the fit's covariance; None where it has no bounds, or may never come."""
    peak_unbounded: str | None = None
    """Why a peak has no bounds."""


@dataclass(frozen=True, slots=True)
class ScalingMean:
    """The mean figure at one number, over the repeats."""

    number: float  # The number: clients, connections, bytes of a packet.
    mean: float  # The mean, in the unit of the figure.
    low: float | None = None  # Lower bound at 95 %; null with a single repeat.
    high: float | None = None
    """Bounds at 95 %; None with a single repeat."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """The growth of one figure with the numbers of an axis: clients, connections, flows, bytes of a packet."""

    metric: str  # The figure that grows.
    unit: str  # The unit of the figure.
    points: tuple[tuple[float, float], ...]
    """Number and figure, as measured, sorted by number."""
    exponent: float | None
    """None with fewer than two numbers."""
    low: float | None  # Lower bound of the exponent at 95 %, as `high`.
    high: float | None
    """Bounds at 95 %; None with fewer than three different points."""
    growth: Growth  # What the exponent says, in a word.
    upper_exponent: float | None
    """The exponent between the middle and the largest number, where fixed costs matter least."""
    notes: tuple[str, ...]
    """Notes for the reader."""
    axis: str = "clients"
    """What the numbers are: the plan's axis."""
    law: ScalabilityLaw | None = None
    """For rates over numbers of users or cores; None with fewer than four numbers."""
    means: tuple[ScalingMean, ...] = ()
    """The mean figure at each number, sorted by number."""
    line: tuple[tuple[float, float], ...] = ()
    """The power law over the measured numbers: number and figure; empty with fewer than two numbers."""
