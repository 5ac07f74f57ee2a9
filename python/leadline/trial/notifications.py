"""Notifications of a run to its subscribers. Records only; no subscriber can change the measurement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.plan import Case

if TYPE_CHECKING:
    from leadline.analysis.model import Interval, TestResult
    from leadline.trial.rounds import FirstRound


@dataclass(frozen=True, slots=True)
class RunBegan:
    """The run begins, before the first trial."""

    trials: int
    expected_s: float


@dataclass(frozen=True, slots=True)
class RoundAdded:
    """The run repeats cases whose figures are not known well enough: it has this many more trials."""

    trials: int
    expected_s: float


@dataclass(frozen=True, slots=True)
class FirstRoundMeasured:
    """Each case of a run that repeats until a precision has one trial."""

    first: FirstRound


@dataclass(frozen=True, slots=True)
class RoundsOutOfTime:
    """The run ends by its plan's time, though figures are not known well enough."""


@dataclass(frozen=True, slots=True)
class TrialBegan:
    """A trial begins: the `number`th of the run, from 1."""

    label: str
    number: int
    case: Case
    repeat: int


@dataclass(frozen=True, slots=True)
class HostLost:
    """A client host is lost; the trial goes on without it."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class HostSilent:
    """Nothing was heard from a host for some seconds."""

    host: str
    silent_s: float


@dataclass(frozen=True, slots=True)
class PhaseBegan:
    """A phase begins: `build`, `bring-up`, a test's name or `tear-down`."""

    label: str
    phase: str


@dataclass(frozen=True, slots=True)
class TestBegan:
    """A test's load is about to begin."""

    __test__ = False

    label: str
    test: str
    kind: str
    duration_s: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """The clients of a fleet that are still connecting."""

    unanswered: int
    """Clients that the server has not answered yet."""
    others: int
    """Clients that the server has answered, but that are not configured yet."""
    resting: int
    """Clients that failed, and will retry."""
    most_s: float
    """Time from now until the fleet ends, even if clients are still connecting."""


@dataclass(frozen=True, slots=True)
class LiveLabel:
    """The requests, or the transactions, of one name in a scenario that runs."""

    name: str
    is_transaction: bool
    ended: int
    """So far, as `failed`."""
    failed: int
    per_s: float
    """In the last interval."""
    p95_us: float | None
    """In the last interval, of the host where it is longest."""


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """The progress of a test: rates since the previous figures, over all clients. None if unknown."""

    label: str
    elapsed_s: float
    bits_per_s: float | None
    units_per_s: float | None
    latency_p50_us: float | None = None
    """p50 of the last second; p99 and lateness are of the last second too."""
    latency_p99_us: float | None = None
    latency_p50_censored: bool = False
    """Whether it is a lower bound because requests had no answer; the same field exists for p99."""
    latency_p99_censored: bool = False
    late_p99_us: float | None = None
    errors: int | None = None
    """Failed operations so far."""
    retransmits: int | None = None
    """Retransmitted TCP segments so far, summed over all flows."""
    rtt_us: float | None = None
    """Mean over the flows of the smoothed round-trip times that the kernels report."""
    lost_ratio: float | None = None
    """Share of the datagrams missing so far, of those that should have arrived."""
    connections: int | None = None
    """Number of open connections."""
    busiest_thread: float | None = None
    """Share of the last second in which the busiest generating thread was on a CPU."""
    clients: dict[str, int] | None = None
    """Number of a fleet's clients by state; None for other loads."""
    waiting: Waiting | None = None
    """The clients that a fleet waits for; None if it waits for none."""
    users: int | None = None
    """Users of a scenario that exist."""
    labels: tuple[LiveLabel, ...] = ()
    """A scenario's transactions and requests."""


@dataclass(frozen=True, slots=True)
class IntervalEnded:
    """An interval of a load has ended (on request), counted from `start_ns` on the controller's clock."""

    label: str
    start_ns: int
    interval: Interval


@dataclass(frozen=True, slots=True)
class TargetOpen:
    """A target is missed so far and would end the load, but the generator is the limit: the load goes on. Once for
    each load."""

    label: str
    target: str
    reason: str
    """The figure beside the target's bound."""
    limit: str
    """Why the generator is the limit."""


@dataclass(frozen=True, slots=True)
class ScriptOutput:
    """A line that a load's script printed."""

    label: str
    line: str


@dataclass(frozen=True, slots=True)
class TestEnded:
    """A test ended: `done`, `failed` or `interrupted`."""

    __test__ = False

    label: str
    test: str
    status: str
    error: str | None


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """A trial ended: `done`, `failed`, `skipped` or `interrupted`."""

    label: str
    status: str
    error: str | None


@dataclass(frozen=True, slots=True)
class TrialMeasured:
    """The results of a trial's tests; follows its `TrialEnded`."""

    label: str
    results: tuple[TestResult, ...]


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run ended, after the last trial and before the findings."""

    status: str


Notification = (
    RunBegan
    | RoundAdded
    | FirstRoundMeasured
    | RoundsOutOfTime
    | TrialBegan
    | HostLost
    | HostSilent
    | PhaseBegan
    | TestBegan
    | LiveFigures
    | IntervalEnded
    | ScriptOutput
    | TargetOpen
    | TestEnded
    | TrialEnded
    | TrialMeasured
    | RunEnded
)
Observer = Callable[[Notification], None]
