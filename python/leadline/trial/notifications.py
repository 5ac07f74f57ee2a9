"""Notifications of a run to its subscribers. Records only; no subscriber can change what is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.plan import Case

if TYPE_CHECKING:
    from leadline.analysis.model import Interval, TestResult


@dataclass(frozen=True, slots=True)
class RunBegan:
    """Before the first trial."""

    trials: int
    expected_s: float


@dataclass(frozen=True, slots=True)
class TrialBegan:
    """A trial, the `number`th of the run (from 1)."""

    label: str
    number: int
    case: Case
    repeat: int


@dataclass(frozen=True, slots=True)
class PhaseBegan:
    """`build`, `bring-up`, a test's name or `tear-down`."""

    label: str
    phase: str


@dataclass(frozen=True, slots=True)
class TestBegan:
    """A test's load begins in a moment."""

    __test__ = False

    label: str
    test: str
    kind: str
    duration_s: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """Clients of a fleet that are on their way up."""

    unanswered: int
    """The server has not answered them at all."""
    others: int
    """It has, and they are not up yet."""
    resting: int
    """They failed, and will try again."""
    most_s: float
    """When the fleet ends at the latest, be they up or not: from now."""


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """How far a test has come: rates since the figures before, over all clients. None where nothing is known yet."""

    label: str
    elapsed_s: float
    bits_per_s: float | None
    units_per_s: float | None
    latency_p50_us: float | None = None
    """Of the last second, as are p99 and the lateness."""
    latency_p99_us: float | None = None
    latency_p50_censored: bool = False
    """Whether it is a lower bound, as requests had no answer; as is said of p99."""
    latency_p99_censored: bool = False
    late_p99_us: float | None = None
    errors: int | None = None
    """Failed operations so far."""
    retransmits: int | None = None
    """TCP segments sent again so far, all flows added up."""
    rtt_us: float | None = None
    """Mean over the flows of the kernels' smoothed round-trip times."""
    lost_ratio: float | None = None
    """Datagrams that are missing so far, of those that should have arrived."""
    connections: int | None = None
    """Connections that are open."""
    busiest_thread: float | None = None
    """Share of the last second that the busiest generating thread was on a CPU."""
    clients: dict[str, int] | None = None
    """A fleet's clients by their state; None of other loads."""
    waiting: Waiting | None = None
    """The clients that a fleet waits for; None if it waits for none."""


@dataclass(frozen=True, slots=True)
class IntervalEnded:
    """An interval of a load, on request, counted from `start_ns` on the controller's clock."""

    label: str
    start_ns: int
    interval: Interval


@dataclass(frozen=True, slots=True)
class ScriptOutput:
    """A line that a load's script printed."""

    label: str
    line: str


@dataclass(frozen=True, slots=True)
class TestEnded:
    """`done`, `failed` or `interrupted`."""

    __test__ = False

    label: str
    test: str
    status: str
    error: str | None


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """`done`, `failed`, `skipped` or `interrupted`."""

    label: str
    status: str
    error: str | None


@dataclass(frozen=True, slots=True)
class TrialMeasured:
    """What the tests of a trial that has ended came to; follows its `TrialEnded`."""

    label: str
    results: tuple[TestResult, ...]


@dataclass(frozen=True, slots=True)
class RunEnded:
    """After the last trial, before the findings."""

    status: str


Notification = (
    RunBegan
    | TrialBegan
    | PhaseBegan
    | TestBegan
    | LiveFigures
    | IntervalEnded
    | ScriptOutput
    | TestEnded
    | TrialEnded
    | TrialMeasured
    | RunEnded
)
Observer = Callable[[Notification], None]
