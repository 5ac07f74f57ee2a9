"""The records of a ladder: each layer as a share of what the layer below allows, and where the capacity goes.

`model.RunAnalysis` holds them. Bounds and verdicts are the words of `model.Bound` and `model.Verdict`. An unknown value
is None, with the reason beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class HostCost:
    """What a test cost one host, in CPU time inside the steady window; over all of the test where the CPU time of the
    load's threads is known in all alone."""

    host: str
    """The host; `machine` for all CPUs of the machine that the hosts share."""
    source: str
    """Whose CPU time it is: `control group`, `load threads`, `whole machine`, or of a gateway what counts as the
    system's."""
    cpu_percent: float | None
    """Percent of one CPU."""
    ns_per_byte: float | None
    """CPU time for each byte of payload that was delivered."""
    ns_per_packet: float | None
    """CPU time for each packet that passed the host's busiest interface, both directions counted."""
    ns_per_operation: float | None
    """CPU time for each datagram, transaction or request that was answered; None for a stream of bytes."""
    reason: str | None = None
    """Why a figure is null; null if none is."""
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of a mean over repeats: `low` and `high` of each figure at 95 %, by its name."""
    unbounded: str | None = None
    """Why `bounds` is empty; null if it is not."""


@dataclass(frozen=True, slots=True)
class Share:
    """A figure as a share of another one; `low` and `high` bound it at 95 %, over repeats that were measured in
    turn."""

    value: float | None  # The share: 1 is as much as the other one; null if unknown.
    low: float | None = None  # Lower bound at 95 %; null if unknown.
    high: float | None = None  # Upper bound at 95 %; null if unknown.
    bound: str | None = None
    """Where a figure is a bound: on which side of `value` the true share lies."""
    reason: str | None = None
    """Why `value`, or `low` and `high`, are null; null if none is."""


@dataclass(frozen=True, slots=True)
class LadderFigure:
    """The figure of a layer, over the repeats."""

    value: float | None  # The mean over the repeats; null if unknown.
    unit: str  # The unit of the figure.
    low: float | None = None  # Lower bound at 95 %; null if unknown.
    high: float | None = None  # Upper bound at 95 %; null if unknown.
    bound: str | None = None
    """Where it is not valid: on which side of `value` the true figure lies, as `Metric.bound`."""
    verdict: str = "valid"
    """As `Metric.verdict`."""
    repeats: int = 0
    """How many repeats have this figure."""


@dataclass(frozen=True, slots=True)
class LadderLayer:
    """One layer: what it carries, as a share of what the layer below allows and of what the plain route carries."""

    test: str  # The test's name in the plan.
    layer: str  # The layer: `udp`, `tcp`, `rr`, `http` and so on.
    title: str  # What sentences call the layer.
    chain: str
    """`payload` or `requests`: the layers whose figures are in one unit."""
    figure: LadderFigure  # What it carries.
    error: str | None
    """Why the layer has no figure; null if it has one."""
    below: str | None
    """What its share is taken of: the title of the layer below, `the link`, or `the plain route`."""
    allowed: float | None
    """What the layer below allows: its figure, or what a layer above it carried where its figure is a lower bound."""
    allowed_by: str | None
    """The layer that showed that the layer below carries more than its own figure; null if that is its own."""
    share: Share
    """Of what the layer below allows."""
    headers: float | None
    """The part of what is allowed that this layer's headers take, calculated from their sizes; null if unknown."""
    headers_reason: str | None  # Why that is unknown.
    lost: Share
    """The part of what is allowed, headers apart, that this layer does not carry. Negative if it carries more."""
    baseline: LadderFigure | None = None
    """The same layer through the plain route; null if that was not measured."""
    share_of_baseline: Share | None = None  # Its figure as a share of that.
    limited_by: str | None = None
    """The part that limited it, as `Limit.by`."""
    evidence: str | None = None
    """How that is known."""
    costs: tuple[HostCost, ...] = ()
    """What it costs each host: means over the repeats."""
    baseline_costs: tuple[HostCost, ...] = ()
    """The same through the plain route."""


class BarKind(StrEnum):
    """What a bar of a waterfall stands for."""

    LEVEL = "level"
    """What a layer carries."""
    HEADERS = "headers"
    """What a layer's headers take, calculated."""
    LOST = "lost"
    """What is lost between two layers beside headers."""
    GAINED = "gained"
    """What a layer carries beyond the one below it."""


@dataclass(frozen=True, slots=True)
class WaterfallBar:
    """One bar of a waterfall, from `start` to `end` in its unit; a level starts at 0."""

    label: str  # The words beside the bar.
    kind: BarKind  # What it stands for.
    start: float  # Where it begins.
    end: float  # Where it ends.
    share: float
    """Its length as a share of the longest bar."""
    test: str | None = None
    """The test of a level; null for the link and for what is lost."""
    through: str | None = None
    """Of a level: the system under test that it was measured through."""
    bound: str | None = None
    """Of a level: on which side of `end` the true figure lies, where it is a bound."""


@dataclass(frozen=True, slots=True)
class Waterfall:
    """Where the capacity goes, from the lowest layer to the highest."""

    chain: str  # `payload` or `requests`: which layers it shows.
    unit: str  # The unit of its bars.
    bars: tuple[WaterfallBar, ...]  # The bars, from the lowest layer up.


@dataclass(frozen=True, slots=True)
class Ladder:
    """The ladder of one case."""

    case: str  # The case, by its name in the run.
    parameters: dict[str, str] = field(default_factory=dict)  # The case's parameters, by name.
    sut: str = ""
    """The system under test."""
    baseline: str | None = None
    """The case of the plain route; null if there is none."""
    why_alone: str | None = None
    """Why there is no baseline; null if there is one."""
    layers: tuple[LadderLayer, ...] = ()
    """From the bottom up, the payload's chain first."""
    waterfalls: tuple[Waterfall, ...] = ()  # Where the capacity goes: one for each unit.
    look_first: str = ""
    """Where to look first, in a sentence."""
    notes: tuple[str, ...] = ()  # Notes for the reader.
