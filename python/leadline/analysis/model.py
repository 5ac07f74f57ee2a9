"""The results of analysis, as records: commands print them, `report` draws them, `dataset` stores them.

An unknown value is None, never 0. Rates are per second, `*_bps` are bits per second, instants are ns on the
controller's monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from leadline.analysis.clock_model import HostClock
from leadline.analysis.cross_check_model import CrossCheck, Ratio
from leadline.analysis.dealt_model import DealtLoad
from leadline.analysis.fleet_model import FleetFindings
from leadline.analysis.gateway_model import GatewayStatistics
from leadline.analysis.ladder_model import HostCost, Ladder
from leadline.analysis.packet_model import PacketFindings
from leadline.analysis.scaling_model import Scaling
from leadline.analysis.scenario_model import ScenarioFindings
from leadline.analysis.search_findings import SearchFindings
from leadline.analysis.size_model import GatewayCost
from leadline.analysis.tier_model import TierStatistics, TracedRequest
from leadline.analysis.trial_records import FactDifference, FlowSpan, TimeMark
from leadline.analysis.wake_up_times import WakeUp


class Verdict(StrEnum):
    """Whether a figure is valid. The worst verdict comes first, and wins over the others."""

    INCOMPLETE = "incomplete"
    DISTURBED = "disturbed"
    GENERATOR_LIMITED = "generator-limited"
    RECEIVER_LIMITED = "receiver-limited"
    UNSTABLE = "unstable"
    UNDETERMINED = "undetermined"
    VALID = "valid"


_RANKS = {verdict: rank for rank, verdict in enumerate(Verdict)}


class Bound(StrEnum):
    """The side of a figure on which the true one lies, where the error can go one way only."""

    LEAST = "at least"
    MOST = "at most"
    NONE = "not known"

    @property
    def inverted(self) -> Bound:
        """The side on which one divided by the figure lies."""
        return _INVERTED[self]


_INVERTED = {Bound.LEAST: Bound.MOST, Bound.MOST: Bound.LEAST, Bound.NONE: Bound.NONE}


@dataclass(frozen=True, slots=True)
class Reason:
    """One piece of evidence: a stable code in kebab case, and a sentence for the user with the figures in it."""

    code: str  # What it is, a stable name.
    text: str  # The sentence for the user.
    verdict: Verdict | None = None
    """The verdict that it gives the figures which it concerns; None for a note."""
    metrics: tuple[str, ...] = ()
    """The figures that it concerns; empty where it concerns all of them."""


@dataclass(frozen=True, slots=True)
class Validity:
    """A verdict, its reasons (worst first), and notes that change no verdict (shared CPUs, missing counters)."""

    verdict: Verdict  # The worst verdict of all reasons.
    reasons: tuple[Reason, ...] = ()  # What speaks against figures, the worst first.
    notes: tuple[Reason, ...] = ()  # What changes no verdict.


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure; `low` and `high` bound it at 95 %, within one test or over repeats.

    A `censored` figure is a lower bound: operations were outstanding at the end, so the true figure is at least
    `value`.
    """

    value: float | None  # The figure, in its unit; null if unknown.
    unit: str  # The unit: `bit/s`, `us`, `ratio` and so on; empty for a count.
    low: float | None = None  # Lower bound at 95 %; null if unknown.
    high: float | None = None  # Upper bound at 95 %; null if unknown.
    censored: bool = False  # Whether it is a lower bound.
    verdict: Verdict = Verdict.VALID
    """Whether this figure can be believed; the test's verdict is the worst of its leading figures."""
    reasons: tuple[str, ...] = ()
    """The codes of the reasons against it, worst first."""
    bound: Bound | None = None
    """Where it is not valid: on which side of `value` the true figure lies for sure."""
    unbounded: str | None = None
    """Why `low` or `high` is null; null if neither is, or if the figure itself is unknown."""
    unknown: str | None = None
    """Why the figure itself is null, where that is known."""

    @property
    def side(self) -> Bound | None:
        """The side of `value` on which the true figure lies; None if `value` is the figure, and no bound of it."""
        return self.bound or (Bound.LEAST if self.censored else None)

    @property
    def is_least(self) -> bool:
        """Whether the true figure is at least `value`, and more is not known."""
        return self.side is Bound.LEAST

    def doubted(self, verdict: Verdict, code: str, bound: Bound) -> Metric:
        """The same figure with one more reason against it, no worse than those before. Reasons that move it to
        different sides leave neither."""
        joint = bound if self.bound in (None, bound) else Bound.NONE
        if self.censored and joint is Bound.MOST:
            joint = Bound.NONE
        worst = min(self.verdict, verdict, key=_RANKS.__getitem__)
        return replace(self, verdict=worst, reasons=(*self.reasons, code), bound=joint)


@dataclass(frozen=True, slots=True)
class Window:
    """The steady window: from the last flow's start (warm-up over) to the first flow's end.

    `cut_share` is the share of the time between the first start and the last end that is outside the window.
    `warm_up_ns` is the part before `start_ns` in which all flows ran and the rate still differed (MSER-5).
    """

    first_start_ns: int  # When the first flow began, ns.
    start_ns: int  # When the steady part begins, ns.
    end_ns: int  # When the steady part ends, ns.
    last_end_ns: int  # When the last flow ended, ns.
    warm_up_ns: int = 0
    """What the plan's warm-up left over, and was cut from the beginning."""
    unsettled: str | None = None
    """Why such a warm-up was not looked for, or its end not found."""

    @property
    def length_s(self) -> float:
        """Length of the steady part; 0 if the flows never ran at the same time."""
        return max(0, self.end_ns - self.start_ns) / 1e9

    @property
    def cut_share(self) -> float:
        """The time before and after the window, as a share of the whole."""
        whole = self.last_end_ns - self.first_start_ns
        return 1.0 - max(0, self.end_ns - self.start_ns) / whole if whole > 0 else 1.0


@dataclass(frozen=True, slots=True)
class NaiveRate:
    """What the usual averages say of a rate, in its unit: they count head and tail, when not all flows ran."""

    whole: float
    """The total divided by the time from the first flow's start to the last flow's end."""
    flows: float
    """The sum of the flows' averages, each over its own time."""


class CeilingBasis(StrEnum):
    """What a generator's ceiling is known from."""

    NULL_RESPONDER = "null responder"
    """A calibration before the load, against a responder that does nothing else."""
    THIS_RUN = "this run"
    """The CPU time of the threads in the run itself. An idle thread's cost per request is higher than a busy one's, so
    the ceiling is rather too low."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The maximum rate of a generator's threads with requests of one shape."""

    per_s: float
    """Operations per second."""
    extrapolated: bool
    """Whether its threads had idle time, so that the rate without idle time was calculated."""
    engine: str | None = None
    """How the threads waited for their sockets; None if unknown."""
    basis: CeilingBasis = CeilingBasis.NULL_RESPONDER
    iterations_per_s: float | None = None
    """A scenario's iterations per second at that rate."""
    reached_per_s: float | None = None
    """Operations per second in the part of the run that it is known from; None for a calibration."""
    users: float | None = None
    """A scenario's users at that rate, if the load is a number of users that mostly wait."""


@dataclass(frozen=True, slots=True)
class Generator:
    """The cost of generating: the figures of the result JSON's `generator`."""

    cpu_s: float | None  # CPU time of the load's threads, s.
    wall_s: float | None  # How long the load's threads ran, s: the longest of all hosts.
    busiest_thread: float | None  # The busiest thread's share of a core, 0 to 1.
    late_p99_us: float | None  # How late sends were, µs: the 99th percentile; null where nothing was due at an instant.
    cpu_ns_per_unit: float | None  # CPU time for each byte, datagram or request, ns.
    engine: str | None = None
    """How the threads waited for their sockets, if there is a choice."""
    engine_reason: str | None = None
    """Why the faster engine was not used."""
    ceiling_per_s: float | None = None
    """The generator's own ceiling for this load, operations per second; None if it is unknown."""
    spun_s: float | None = None
    """Part of `cpu_s` in which threads waited actively for sends that were too near for a sleep. It does not count as
    busy time; None if there was none.
    """
    ceiling_basis: CeilingBasis | None = None
    """What the ceiling is known from."""
    ceiling_extrapolated: bool | None = None
    """Whether the threads had idle time when it was measured, so that it was calculated."""
    ceiling_iterations_per_s: float | None = None
    """A scenario's iterations per second at its ceiling."""
    ceiling_users: float | None = None
    """A scenario's users at its ceiling; None unless the load is a number of users that mostly wait."""


@dataclass(frozen=True, slots=True)
class Interval:
    """One interval of a test, from `start_s` to `end_s` after the first flow's start, all flows summed."""

    start_s: float  # When it begins, s.
    end_s: float  # When it ends, s.
    values: dict[str, float | None]  # Each figure in it, in the unit that its name ends with.
    in_window: bool  # Whether it lies inside the steady window.
    censored: tuple[str, ...] = ()
    """Names of the values that are lower bounds, see `Metric.censored`."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot over time; `t_s` counts from the start of the trial's test (negative before it)."""

    label: str  # What the line shows.
    host: str  # The host; empty if it is of none.
    unit: str  # The unit of the values.
    t_s: tuple[float, ...]  # The instants of the values, s.
    values: tuple[float | None, ...]  # The values; null where one is unknown.


@dataclass(frozen=True, slots=True)
class Percentiles:
    """A latency curve: (percentile 0..100, value in µs), merged from histograms, never from percentiles."""

    metric: str  # What was recorded.
    count: int  # Values that the curve is made of.
    points: tuple[tuple[float, float], ...]  # Percentile, 0 to 100, and value, µs.
    open_from: float | None = None
    """The percentile from which on the values are lower bounds; None if none is."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of one metric: times in µs, or a thread's requests per second in each interval.

    `percentiles` are by nearest rank: this share of the values is at or below the value. `within_stdev` is the share
    of the values within one standard deviation of the mean. `count` values are known. Of `censored` further ones only
    the age is known, a lower bound; `bounds` names the figures that are lower bounds because of them: `min`, `mean`,
    `stdev`, `max`, or a percentile as in `99.9`.
    """

    metric: str  # What was recorded.
    count: int  # Values that are known.
    min: float | None  # The smallest value.
    mean: float | None  # The mean.
    stdev: float | None  # The standard deviation.
    within_stdev: float | None  # The share of the values within one standard deviation of the mean, 0 to 1.
    max: float | None  # The largest value.
    percentiles: dict[float, float]
    """By percentile, 0 to 100: the value that this share does not exceed, by nearest rank."""
    censored: int = 0  # Further values of which only a lower bound is known.
    bounds: tuple[str, ...] = ()  # Names of the figures that are lower bounds because of those.

    def is_bound(self, figure: str | float) -> bool:
        """Whether a figure, or a percentile, is a lower bound."""
        return (figure if isinstance(figure, str) else f"{figure:g}") in self.bounds

    def supports(self, percentile: float) -> bool:
        """Whether at least one value is above the percentile; with fewer values it equals the maximum."""
        return (self.count + self.censored) * (100.0 - percentile) / 100.0 >= 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """The server table: the use of the gateway's CPUs during one test, in percent of one CPU.

    `real_length_s` is the time from the first flow's start to the last one's end. `shared` means that the CPUs are
    those of the whole machine, because the hosts are namespaces of one. The `sut_*` figures are of the gateway's
    processes alone.
    """

    real_length_s: float | None  # How long the load really took, s.
    cpu_user_percent: float | None  # User mode.
    cpu_system_percent: float | None  # The kernel's work for processes.
    cpu_softirq_percent: float | None  # Soft interrupts.
    cpu_total_percent: float | None  # All that the CPUs were busy.
    cpu_wait_percent: float | None  # Waiting for disks.
    cpus: int | None  # Number of CPUs.
    shared: bool  # Whether they are those of the whole machine.
    sut_user_percent: float | None  # User mode of the gateway's processes.
    sut_system_percent: float | None  # The kernel's work for the gateway's processes.
    sut_memory_bytes: float | None  # Memory of the gateway's processes, bytes.


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """The client table: the number of clients, their transfer, and their rates."""

    clients: int  # Clients that took part.
    transfer_bytes: float | None  # Payload of all clients, bytes.
    total_bps: float | None  # Rate of all clients together, bit/s.
    average_bps: float | None  # Mean rate of a client, bit/s.


class LimitedBy(StrEnum):
    """The part that limited a figure."""

    OFFERED_RATE = "offered rate"
    GENERATOR = "generator"
    ANSWERING_SIDE = "answering side"
    LINK = "link"
    GATEWAY = "gateway"
    TIER = "tier"
    SERVER = "server"
    ENDS_CPUS = "ends' CPUs"
    PACING = "pacing"
    RECEIVER_WINDOW = "receiver's window"
    SEND_BUFFER = "send buffer"
    PATH = "path"
    SENDING_PROGRAM = "sending program"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Limit:
    """What limited a test's leading figure, and how that is known."""

    by: LimitedBy  # The part that limited it.
    evidence: str  # How that is known, with figures.
    clause: str = ""
    """The same in a sentence, `its single thread is the limit at 100 % of a core`; empty if the part says it all."""
    next_step: str = ""
    """What to do about it, where that is not the same for all limits of the part; else empty."""


@dataclass(frozen=True, slots=True)
class TestResult:
    """One test of one trial."""

    case: str  # The case, by its name in the run.
    repeat: int  # The number of the repeat, from 1.
    test: str  # The test's name in the plan.
    kind: str  # The test's kind.
    parameters: dict[str, Any]  # The case's parameters, by name.
    status: str  # done | failed | interrupted
    error: str | None  # Why it has no figures; null if it has.
    metrics: dict[str, Metric]  # The figures, by name.
    validity: Validity  # The verdict with its reasons.
    window: Window | None  # The steady window; null if there is none.
    generator: Generator | None  # What generating the load cost; null if unknown.
    errors: dict[str, int]  # Failures by name.
    intervals: tuple[Interval, ...] = ()  # The figures over time.
    clients: ClientStatistics | None = None  # The table of clients; null without one.
    server: ServerStatistics | None = None  # The table of the gateway; null without one.
    percentiles: tuple[Percentiles, ...] = ()  # Latency curves.
    series: tuple[Series, ...] = ()  # Plots over time: CPU, memory, queues of each host.
    error_examples: dict[str, str] = field(default_factory=dict)
    """The message of the first failure of a name, if it says more than the name."""
    distributions: tuple[Distribution, ...] = ()
    """http and tunnel: every histogram with values; http also has `thread_rate`."""
    limit: Limit | None = None
    """What limited its leading figure; None where that was not asked."""
    fleet: FleetFindings | None = None
    """Only for tunnel."""
    gateways: tuple[GatewayStatistics, ...] = ()
    """Each gateway on its path."""
    tiers: tuple[TierStatistics, ...] = ()
    """The tiers of a stack, in the order in which a request meets them."""
    slowest_traced: tuple[TracedRequest, ...] = ()
    """The slowest of the requests that the stack's HAProxy logged, with their times in each tier."""
    naive: dict[str, NaiveRate] = field(default_factory=dict)
    """Rates of which a usual average differs by more than the interval, and by more than 1 %."""
    started_at_s: float | None = None
    """When its load began by the controller's wall clock, s since 1970; null in runs of older versions."""
    clocks: tuple[HostClock, ...] = ()
    """Of hosts with clocks of their own: offsets, drifts and starts."""
    host_costs: tuple[HostCost, ...] = ()
    """What it cost each host, in CPU time."""
    search: SearchFindings | None = None
    """What a search for the highest rate found; None for a test at one rate. The figures are then those of the last
    trial at the rate found."""
    flow_spans: tuple[FlowSpan, ...] = ()
    """When its flows ran, in the order in which they began; neighbours together if they are many."""
    time_marks: tuple[TimeMark, ...] = ()
    """The seconds in which other work or a hypervisor took more than the bound, and stalls of its rate."""
    wake_ups: dict[str, WakeUp] = field(default_factory=dict)
    """The time that an idle CPU takes to wake up, of each host where it was measured."""
    scenario: ScenarioFindings | None = None
    """Groups of users, transactions and requests by name; only for scenario."""
    packets: PacketFindings | None = None
    """Raw frames by size and by flow; only for packets."""
    circumstances: dict[str, float] = field(default_factory=dict)
    """What may differ from repeat to repeat, as far as it is known. Shares of the time: `waiting` of the thread that
    waited longest for a CPU. Shares of the machine's CPUs: `other_work`, `stolen`, `soft_interrupts`. Also
    `wake_up_us`, the mean over the hosts, and `clock_hz`."""
    rate_parts: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Each rate in ten equal parts of the window: the interval over the repeats is never narrower than what the parts
    of all of them allow. Without rates in stages, and those that were read less often."""

    dealt: DealtLoad | None = None
    """How its load was dealt to hosts; null where each host is a client with the test's own rate and numbers."""

    build_profiles: dict[str, str | None] = field(default_factory=dict)  # Of each host's agent; null if unknown.

    def value(self, metric: str) -> float | None:
        """The value of a figure; None if it is unknown, or was not measured."""
        found = self.metrics.get(metric)
        return None if found is None else found.value

    def distribution(self, metric: str) -> Distribution | None:
        """The distribution of that name; None if nothing was recorded."""
        return next((one for one in self.distributions if one.metric == metric), None)


@dataclass(frozen=True, slots=True)
class ClientBringUp:
    """The clients' bring-up in one trial."""

    connected: int  # Clients with a tunnel that carries traffic.
    partial: int  # Clients that connected, but were not configured in full.
    failed: int  # Clients without a tunnel.
    time_p50_s: float | None  # Time until a client was connected, s: the median.
    time_max_s: float | None  # The longest such time, s.
    causes: dict[str, int] = field(default_factory=dict)  # Clients that failed, by cause.


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One trial: how it ended, and its tests."""

    trial: str  # The trial's name: case and repeat.
    case: str  # The case, by its name in the run.
    repeat: int  # The number of the repeat, from 1.
    status: str  # done | failed | skipped (as `optional` of the plan allows) | interrupted
    error: str | None  # Why it failed or was left out; null otherwise.
    sut: str  # The kind of the system under test.
    sut_version: str | None  # Its version; null if unknown.
    bring_up: ClientBringUp | None  # Its clients' bring-up; null without clients.
    tests: tuple[TestResult, ...]  # Its tests, in order.
    parameters: dict[str, Any] = field(default_factory=dict)  # The case's parameters, by name.
    on_given_hosts: bool = False
    """Whether the system stands on given hosts and was not brought up; its version is then the plan's label."""
    sut_title: str | None = None
    """What sentences call the system; None if it is not known, where its kind stands for it."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One test of one case over its repeats: means with 95 % t-intervals over the repeats' values."""

    case: str  # The case, by its name in the run.
    test: str  # The test's name in the plan.
    kind: str  # The test's kind.
    parameters: dict[str, Any]  # The case's parameters, by name.
    repeats: int  # Repeats that have figures.
    failed: int  # Repeats that failed.
    metrics: dict[str, Metric]  # Means over the repeats, by name.
    validity: Validity  # The worst verdict of the repeats, with reasons.
    limit: Limit | None = None
    """What limited most of the repeats."""
    gaps: dict[str, int] = field(default_factory=dict)
    """Metrics that are unknown in some of the repeats: in how many."""
    baseline: str | None = None
    """The case that it is compared with, by the plan's `baseline`."""
    ratios: dict[str, Ratio] = field(default_factory=dict)
    """The main figures, and those of targets, by those of the baseline."""


@dataclass(frozen=True, slots=True)
class TargetResult:
    """A target of the plan: met, missed, or not decidable (no sample, or a result that is not valid)."""

    target: str  # The target, as the plan has it.
    case: str  # The case that it was judged for.
    outcome: str  # met | missed | undecided
    value: float | None  # The figure that decided, in its unit; null if unknown.
    reason: str  # Why the outcome is what it is.


class Certainty(StrEnum):
    """How much of an answer is known."""

    KNOWN = "known"
    """With an interval."""
    ABOUT = "about"
    """Without an interval, or from one side only."""
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class TestAnswer:
    """What one test says of its case, in a sentence, with the figures that stand in it.

    `ratio` is the leading figure by the baseline's; it is null where there is no baseline, or no ratio that is known.
    """

    test: str  # The test's name in the plan.
    metric: str  # Its leading figure.
    sentence: str  # What it says.
    certainty: Certainty  # How much of it is known.
    baseline: str | None = None
    """The case that it is compared with."""
    ratio: float | None = None  # The leading figure divided by the baseline's.
    low: float | None = None  # Lower bound of the ratio at 95 %.
    high: float | None = None  # Upper bound of the ratio at 95 %.
    limit: LimitedBy | None = None  # What limited it; null if that was not asked.
    cost: str | None = None
    """What it cost the gateway, in a sentence: CPU per Gbit/s and per client."""
    next_step: str | None = None  # What to do next, in a sentence.
    unknown: str | None = None
    """What is not known, and why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a case's tests say: the sentence of the test that says most, and those of all of them."""

    case: str  # The case, by its name in the run.
    name: str
    """What the sentences call the case."""
    sentence: str  # What its leading test says.
    lead: str | None
    """The test whose sentence it is; null if no test has a figure."""
    tests: tuple[TestAnswer, ...] = ()  # What each of its tests says.
    baseline: str | None = None  # The case that it is compared with; null without one.
    next_step: str | None = None  # What to do next, in a sentence; null if nothing is to be done.


@dataclass(frozen=True, slots=True)
class JournalDamage:
    """Lines of a journal that could not be read; all results lack them."""

    lines: int = 0
    """All lines of the journal."""
    garbled: int = 0
    """Lines that are not an entry."""
    malformed: int = 0
    """Entries without required fields."""
    torn: bool = False
    """Whether the last line is incomplete."""


@dataclass(frozen=True, slots=True)
class RunAnalysis:
    """Everything that a table or a report shows of one run."""

    run_id: str  # The run's identifier.
    name: str  # The plan's name, or the command's kind.
    status: str  # done | failed | interrupted | killed (the journal ends without a record)
    started_at: str  # When the run began, ISO 8601.
    plan_text: str  # The plan as it was written; empty for a command.
    command: str  # The command line.
    version: str  # The version of Leadline that measured.
    hosts: dict[str, dict[str, Any]]  # What each host said of itself, by host.
    trials: tuple[TrialResult, ...]  # All trials, in the order in which they ran.
    summaries: tuple[Summary, ...]  # Each test of each case over its repeats.
    targets: tuple[TargetResult, ...]  # The plan's targets.
    validity: Validity  # The worst verdict of its tests, with reasons.
    notes: tuple[Reason, ...]  # Notes on the run as a whole.
    observer_cpu_share: dict[str, float | None]  # CPU time that observing took on each host, as a share of one CPU.
    scaling: dict[str, tuple[Scaling, ...]] = field(default_factory=dict)
    """The growth of figures with each axis of numbers, by test."""
    journal: JournalDamage = JournalDamage()  # Lines of the journal that could not be read.
    answers: tuple[Answer, ...] = ()
    """What each case's figures say, in sentences."""
    description: str = ""
    """The plan's description."""
    baselines: dict[str, str] = field(default_factory=dict)
    """The case that each case is compared with, by the plan's `baseline`."""
    ladders: tuple[Ladder, ...] = ()
    """The ladder of each case of a plan that has one."""
    sizing: tuple[GatewayCost, ...] = ()
    """What the work of each system costs on each gateway, for planning."""
    differences: tuple[FactDifference, ...] = ()
    """What differed in the environment of its trials."""
    cross_checks: tuple[CrossCheck, ...] = ()
    """Whether second tools agree with the figures, by the plan's `cross_check`."""
    missing_trials: tuple[str, ...] = ()  # Trials that were planned and never began, by name, in their order.
