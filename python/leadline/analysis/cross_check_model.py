"""Records of a ratio over the repeats, and of a test's repetition with a second tool. Records only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from leadline.statistics import Comparison

Bounded = tuple[float | None, float | None, float | None]
"""A mean over the repeats, and the bounds of its 95 % interval."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure by that of the baseline: the ratio of the means over the repeats, with its 95 % interval."""

    value: float | None  # The figure divided by the baseline's; null if unknown, or known as a bound.
    low: float | None  # Lower bound at 95 %, alone of a ratio that is at least this; null if unknown.
    high: float | None  # Upper bound at 95 %, alone of a ratio that is at most this; null if unknown.
    word: Comparison  # What that says: faster, slower, equivalent or cannot tell.
    reason: str | None = None
    """Why the word is `cannot tell`; None for the other words."""


class Agreement(StrEnum):
    """Whether two tools measure the same."""

    AGREE = "agree"
    """The interval of the ratio lies within the margin."""
    DIFFER = "differ"
    """It lies on one side of 1, and not within the margin."""
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """A test's leading figure by Leadline and by a second tool, which repeated the test in each trial."""

    case: str
    """Empty for a command's measurement."""
    test: str  # The test's name in the plan.
    tool: str  # The second tool: `wrk`, `ab`, `h2load` or `iperf3`.
    versions: tuple[str, ...]
    """The versions that the tool reported."""
    metric: str  # The leading figure that both measured.
    unit: str  # The unit of that figure.
    repeats: int
    """Trials in which both have a figure."""
    own: Bounded
    """Leadline's mean and its bounds."""
    other: Bounded
    """The second tool's."""
    ratio: Ratio
    """The second tool's figure by Leadline's, in pairs: both of a trial have its circumstances in common."""
    agreement: Agreement  # Whether both agree.
    margin: float
    """The plan's `limits.margin`."""
    troubles: tuple[str, ...] = ()
    """Why repeats were left out."""
