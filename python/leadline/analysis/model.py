"""What analysis finds, as records: commands print them, `report` draws them, `dataset` stores them.

A value that is not known is None, never 0. Rates are per second, `*_bps` are bits per second, instants are ns on the
controller's monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """Whether a figure can be believed, worst first where several apply."""

    INCOMPLETE = "incomplete"
    GENERATOR_LIMITED = "generator-limited"
    RECEIVER_LIMITED = "receiver-limited"
    UNSTABLE = "unstable"
    UNDETERMINED = "undetermined"
    VALID = "valid"


@dataclass(frozen=True, slots=True)
class Reason:
    """One piece of evidence: a stable code in kebab case, and a line for a person, with the figures in it."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Validity:
    """A verdict, what led to it (worst first), and notes that change no verdict (shared CPUs, missing counters)."""

    verdict: Verdict
    reasons: tuple[Reason, ...] = ()
    notes: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure; `low` and `high` bound it at 95 % where repeats allow that.

    A `censored` one is known from below only: it is at least `value`, as operations were outstanding when observation
    ended.
    """

    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    censored: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """The steady window: from the last flow's start (warm-up over) to the first flow's end.

    `cut_share` is the share of the time between the first start and the last end that lies outside of it.
    """

    first_start_ns: int
    start_ns: int
    end_ns: int
    last_end_ns: int

    @property
    def length_s(self) -> float:
        """Length of the steady part; 0 where the flows never overlapped."""
        return max(0, self.end_ns - self.start_ns) / 1e9

    @property
    def cut_share(self) -> float:
        """Head and tail as a share of everything."""
        whole = self.last_end_ns - self.first_start_ns
        return 1.0 - max(0, self.end_ns - self.start_ns) / whole if whole > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that a generator's threads can do with requests of one shape, measured against a null responder."""

    per_s: float
    """Operations per second."""
    extrapolated: bool
    """Whether its threads had time to spare then: what they would do with all of it was calculated."""
    engine: str | None = None
    """How the threads waited for their sockets then, where that is known."""


@dataclass(frozen=True, slots=True)
class Generator:
    """What generating cost: the figures of the result JSON's `generator`."""

    cpu_s: float | None
    wall_s: float | None
    busiest_thread: float | None
    late_p99_us: float | None
    cpu_ns_per_unit: float | None
    engine: str | None = None
    """How the threads waited for their sockets, where there is a choice."""
    engine_reason: str | None = None
    """Why it was not the faster engine."""
    ceiling_per_s: float | None = None
    """The generator's own ceiling for this load, operations per second; None where it was not measured."""
    spun_s: float | None = None
    """Part of `cpu_s`: threads waited awake for sends nearer than a sleep is long. That is no part of how busy
    they were; None where none did.
    """


@dataclass(frozen=True, slots=True)
class Interval:
    """One interval of a test, from `start_s` to `end_s` after the first flow's start, all flows summed."""

    start_s: float
    end_s: float
    values: dict[str, float | None]
    in_window: bool
    censored: tuple[str, ...] = ()
    """Names of the values that are lower bounds, as `Metric.censored` says."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot over time; `t_s` counts from the trial's test begin (may be negative before it)."""

    label: str
    host: str
    unit: str
    t_s: tuple[float, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """A latency curve: (percentile 0..100, value in µs), merged from histograms, never from percentiles."""

    metric: str
    count: int
    points: tuple[tuple[float, float], ...]
    open_from: float | None = None
    """The percentile from which on the values are lower bounds; None where none is."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """How the values of one metric spread: times in µs, or a thread's requests per second from interval to interval.

    `percentiles` are by nearest rank: the value at or below which that share of the values lie. `within_stdev` is the
    share of the values within one standard deviation of the mean. `count` values are known; of `censored` more only
    that they are at least their age, and `bounds` names the figures that are lower bounds for it: `min`, `mean`,
    `stdev`, `max`, or a percentile as in `99.9`.
    """

    metric: str
    count: int
    min: float | None
    mean: float | None
    stdev: float | None
    within_stdev: float | None
    max: float | None
    percentiles: dict[float, float]
    censored: int = 0
    bounds: tuple[str, ...] = ()

    def is_bound(self, figure: str | float) -> bool:
        """Whether a figure, or a percentile, is a lower bound."""
        return (figure if isinstance(figure, str) else f"{figure:g}") in self.bounds

    def supports(self, percentile: float) -> bool:
        """Whether at least one value lies beyond the percentile; with fewer it only repeats the maximum."""
        return (self.count + self.censored) * (100.0 - percentile) / 100.0 >= 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """The seeds' second table: what the gateway's CPUs did during one test, in percent of one CPU.

    `real_length_s` reaches from the first flow's start to the last one's end. `shared` tells that the CPUs are the
    whole machine's because the hosts are namespaces of one; the `sut_*` figures are the gateway's processes alone.
    """

    real_length_s: float | None
    cpu_user_percent: float | None
    cpu_system_percent: float | None
    cpu_softirq_percent: float | None
    cpu_total_percent: float | None
    cpu_wait_percent: float | None
    cpus: int | None
    shared: bool
    sut_user_percent: float | None
    sut_system_percent: float | None
    sut_memory_bytes: float | None


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """The seeds' first table: clients, what they moved, and how fast."""

    clients: int
    transfer_bytes: float | None
    total_bps: float | None
    average_bps: float | None


@dataclass(frozen=True, slots=True)
class Misfortune:
    """One cause for which clients of a fleet are not configured, and the first of them."""

    cause: str
    clients: int
    examples: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Overload:
    """A limit of the server that the clients' misfortunes look like: `pool_exhausted`, `max_clients`,
    `connect_freq_initial`."""

    name: str
    clients: int
    seen: str
    """What it is concluded from."""


@dataclass(frozen=True, slots=True)
class FleetFindings:
    """What became of a fleet's clients, beyond their counts. Causes come the most frequent first."""

    failed: tuple[Misfortune, ...]
    partial: tuple[Misfortune, ...]
    waiting: int
    """Clients that never tried."""
    recovered: int
    """Clients that are configured after an attempt that was not."""
    ciphers: dict[str, int]
    """Clients by the data cipher that they were given."""
    ignored_options: tuple[str, ...]
    """Lines of the profile that mean nothing to a fleet."""
    overload: tuple[Overload, ...] = ()


@dataclass(frozen=True, slots=True)
class TestResult:
    """One test of one trial."""

    case: str
    repeat: int
    test: str
    kind: str
    parameters: dict[str, Any]
    status: str  # done | failed | interrupted
    error: str | None
    metrics: dict[str, Metric]
    validity: Validity
    window: Window | None
    generator: Generator | None
    errors: dict[str, int]
    intervals: tuple[Interval, ...] = ()
    clients: ClientStatistics | None = None
    server: ServerStatistics | None = None
    percentiles: tuple[Percentiles, ...] = ()
    series: tuple[Series, ...] = ()
    error_examples: dict[str, str] = field(default_factory=dict)
    """What the first failure of a name said, where there is more to say than the name."""
    distributions: tuple[Distribution, ...] = ()
    """Of http and tunnel: every histogram that was fed; of http also `thread_rate`."""
    fleet: FleetFindings | None = None
    """Of tunnel."""

    def distribution(self, metric: str) -> Distribution | None:
        """The distribution of that name; None where nothing was recorded."""
        return next((one for one in self.distributions if one.metric == metric), None)


@dataclass(frozen=True, slots=True)
class ClientBringUp:
    """How a sut's clients came up in one trial."""

    connected: int
    partial: int
    failed: int
    time_p50_s: float | None
    time_max_s: float | None
    causes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One trial: how it ended, and its tests."""

    trial: str
    case: str
    repeat: int
    status: str  # done | failed | skipped (its program is missing, and the plan says optional) | interrupted
    error: str | None
    sut: str
    sut_version: str | None
    bring_up: ClientBringUp | None
    tests: tuple[TestResult, ...]
    parameters: dict[str, Any] = field(default_factory=dict)
    on_given_hosts: bool = False
    """Whether the system stood on given hosts; its version is then what the plan calls it."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One test of one case over its repeats: means with 95 % t-intervals over the repeats' values."""

    case: str
    test: str
    kind: str
    parameters: dict[str, Any]
    repeats: int
    failed: int
    metrics: dict[str, Metric]
    validity: Validity
    gaps: dict[str, int] = field(default_factory=dict)
    """Metrics that some of the repeats know and others do not: how many do not."""


@dataclass(frozen=True, slots=True)
class TargetResult:
    """A target of the plan: met, missed, or not decidable (no sample, or a result that is not valid)."""

    target: str
    case: str
    outcome: str  # met | missed | undecided
    value: float | None
    reason: str


class Growth(StrEnum):
    """What an exponent says."""

    CONSTANT = "constant"
    LESS = "less than linear"
    LINEAR = "linear"
    MORE = "more than linear"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True, slots=True)
class Scaling:
    """How one figure grows with a number."""

    metric: str
    unit: str
    points: tuple[tuple[float, float], ...]
    """Number and figure, as measured, by number."""
    exponent: float | None
    """None with fewer than two numbers."""
    low: float | None
    high: float | None
    """Bounds at 95 %; None with fewer than three points that differ."""
    growth: Growth
    upper_exponent: float | None
    """Between the middle and the largest number: where fixed costs weigh least."""
    notes: tuple[str, ...]
    """What a reader should know."""


@dataclass(frozen=True, slots=True)
class JournalDamage:
    """Lines of a journal that are missing in everything that is made from it."""

    lines: int = 0
    """All lines of the journal."""
    garbled: int = 0
    """Lines that are no entry."""
    malformed: int = 0
    """Entries that lack what their type promises."""
    torn: bool = False
    """Whether the last line ends in the middle."""


@dataclass(frozen=True, slots=True)
class RunAnalysis:
    """Everything that a table or a report shows of one run."""

    run_id: str
    name: str
    status: str  # done | failed | interrupted | killed (the journal just ends)
    started_at: str
    plan_text: str
    command: str
    version: str
    hosts: dict[str, dict[str, Any]]
    trials: tuple[TrialResult, ...]
    summaries: tuple[Summary, ...]
    targets: tuple[TargetResult, ...]
    validity: Validity
    notes: tuple[Reason, ...]
    observer_cpu_share: dict[str, float | None]
    scaling: dict[str, tuple[Scaling, ...]] = field(default_factory=dict)
    """How figures grow with an axis of clients, by test."""
    journal: JournalDamage = JournalDamage()
