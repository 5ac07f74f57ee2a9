"""Decides whether a test's figures are valid: applies the rules of its kind to its data.

Each finding is a verdict with a reason. It concerns some of the figures (`scope`): each figure has the worst verdict of
its reasons, and a test has the worst verdict of its leading figures. All reasons are kept. Facts that are only worth
knowing (hosts that share CPUs, missing counters) are notes, which change no verdict. The thresholds are below; `rules`
has the shared rules, and each kind its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from leadline.analysis import machine_rules, stability, wake_ups
from leadline.analysis.flows import Flow
from leadline.analysis.metrics import Histograms, delivered_share
from leadline.analysis.model import Ceiling, Metric, Reason, Validity, Verdict, Window
from leadline.analysis.outages import without_consequences
from leadline.analysis.scope import ORDER, PERCENTILE_UNCERTAIN, Judged, judge_figures
from leadline.analysis.test_data import TestData
from leadline.analysis.test_spec import TestSpec
from leadline.contract import records
from leadline.registry import KINDS

Finding = tuple[Verdict, Reason]
# A thread that ran 95 % of the time has at most 5 % left: it could have generated at most a twentieth more load;
# scheduling granularity hides the rest.
SATURATED_BUSY = 0.95

# A thread that was running or waiting for a CPU all but 2 % of the time needed more CPU than it got. Waits are counted
# by the kernel to the nanosecond, so this can be tighter than the former.
STARVED_BUSY_AND_WAITING = 0.98

# Below this busy share, generating threads say nothing about their maximum.
LEAST_BUSY = 0.2

# Sends count as late from 1 ms on: wake-ups on an idle host are late by some tens of µs, timer ticks by up to 1 ms ...
LATE_FLOOR_US = 1000.0
# ... and from a tenth of the time between two sends on, where that is longer: less does not change the pace.
LATE_SHARE_OF_GAP = 0.1

# By this share of its planned length late sends may draw a load out: its rate is lower by as much.
RAN_OVER_SHARE = 0.02

# Share of sends that the host's own socket refused. Below one percent, a queue is full only now and then.

# From this share on, a rate is near the generator's ceiling, which was measured in one second and varies
# by some percent.
NEAR_CEILING = 0.9
# A thread at its ceiling is busy. One with a fifth of its time idle was not at its ceiling, whatever a null responder
# allowed: over another path, or with larger batches, a request may cost less than it did there.
CEILING_BUSY = 0.8

# Requests that waited for a connection or for an answer are reported from one in a hundred on, and beyond these few,
# which the end of any test may leave.
WAITING_SHARE = 0.01
WAITING_FEW = 3

REFUSED: tuple[records.CountName, ...] = (
    "status_4xx", "status_5xx", "status_6xx", "status_7xx", "status_8xx", "status_9xx",
)  # fmt: skip
"""Counts of answers that refuse their request; servers also send statuses that no standard has, such as 999."""

# A window shorter than half of the plan shows the start and the end of the load rather than the path.
SHORTEST_WINDOW_SHARE = 0.5

# In less than this no rate is read twice.
SHORTEST_WINDOW_INTERVALS = stability.SHORTEST_WINDOW_INTERVALS

# Clocks of two machines that are known to 1 ms: a hundredth of the default interval.
CLOCK_BOUND_NS = 1_000_000

# A CPU quota held back the side that answers.
QUOTA_USED_UP = "quota-used-up"

# A thread of the load was ready to run and waited for a CPU, and nothing else is known to have limited the rate.
THREAD_WAITED = "thread-waited"

# The reasons for which the generator counts as the limit.
GENERATOR_REASONS = frozenset(
    {
        "thread-saturated",
        "thread-starved",
        THREAD_WAITED,
        QUOTA_USED_UP,
        "pushback",
        "sender-interface-drops",
        "ran-over",
        "sends-late",
        "unsent",
        "near-ceiling",
        "users-wait",
    }
)

# The steady window is shorter than it should be, or too short for any; what was counted is whole.
SHORT_WINDOW, NO_WINDOW = "window-too-short", "no-steady-window"
SHORT_WINDOWS = frozenset({SHORT_WINDOW, NO_WINDOW})
# No request or transaction was answered.
NOTHING_ANSWERED = "nothing-answered"
NOTHING_REPLAYED = "nothing-replayed"
# Flows that transferred no byte.
NOT_STARTED = "flows-not-started"
# Parts of a test that differ, or are too few to tell.
UNEVEN = frozenset(
    {
        stability.INTERVALS_DISAGREE,
        stability.CHANGE_POINT,
        stability.PRECISION_UNKNOWN,
        PERCENTILE_UNCERTAIN,
    }
)
# Lines of the journal could not be read.
JOURNAL_DAMAGED = "journal-damaged"
# Enough requests were outstanding that high percentiles of the latency are lower bounds.
LATENCY_BOUND = "latency-lower-bound"
# With CPUs of their own, client and server had no time left: what the gateway alone carries is not known.
ENDS_FULL = "ends-cpus-full"
# Many requests waited until a connection was free.
CONNECTIONS_BUSY = "connections-busy"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence for a verdict."""

    data: TestData
    flows: Sequence[Flow]
    window: Window | None
    histograms: Histograms
    ceiling: Ceiling | None = None
    """The generator's, if it is known."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a kind of test, in order."""

    findings: tuple[Callable[[Evidence], Iterable[Finding]], ...]
    notes: tuple[Callable[[Evidence], Iterable[Reason]], ...]


class JudgedKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def primary(self) -> str:
        """The leading figure of a test."""

    @property
    def decisive(self) -> tuple[str, ...]:
        """The figures, beside the primary one, whose verdicts determine the verdict of a test."""

    @property
    def woken(self) -> tuple[str, ...]:
        """The sides that wake up once per operation."""

    def rules(self) -> Rules:
        """The rules of its tests."""


def assess(
    evidence: Evidence,
    figures: Mapping[str, Metric],
    notes: Sequence[Reason] = (),
    findings: Iterable[Finding] = (),
    *,
    spared: Collection[str] = (),
    unmoved: Collection[str] = (),
) -> Judged:
    """A test's figures with the verdict on each, and the verdict on the test, with every reason and every note; `notes`
    and `findings` are more of them, and the rest is for `judge_figures`."""
    spec = evidence.data.spec
    kind: JudgedKind = KINDS.find(spec.kind)
    rules = kind.rules()
    return judge_figures(
        figures,
        machine_rules.without_machine(
            without_consequences([*(found for rule in rules.findings for found in rule(evidence)), *findings])
        ),
        machine_rules.notes_without_machine(
            [*machine_rules.notes(), *(note for rule in rules.notes for note in rule(evidence)), *notes]
        ),
        primary=kind.primary,
        decisive=kind.decisive,
        delivered=delivered_share(evidence.data, evidence.flows),
        cpus_sleep=_waits_asleep(evidence, figures, kind.woken),
        spared=spared,
        unmoved=unmoved,
    )


def _waits_asleep(evidence: Evidence, figures: Mapping[str, Metric], woken: Sequence[str]) -> bool:
    """Whether the test waits for answers, with CPUs that may sleep until they come."""
    waits = any(name.startswith("latency_") and metric.value is not None for name, metric in figures.items())
    latency_us = evidence.histograms.sample("latency").percentile(50).value_us
    return (waits or evidence.data.spec.counts_units) and wake_ups.may_sleep(evidence.data, woken, latency_us)


def combine(findings: Iterable[Finding], notes: Iterable[Reason] = ()) -> Validity:
    """The worst verdict, the reasons worst first, and the notes."""
    ranked = sorted(findings, key=lambda finding: ORDER.index(finding[0]))
    verdict = ranked[0][0] if ranked else Verdict.VALID
    return Validity(verdict, tuple(replace(reason, verdict=said) for said, reason in ranked), tuple(notes))


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst verdict, by the order of `Verdict`; valid if there is none."""
    return min(verdicts, key=ORDER.index, default=Verdict.VALID)


def late_allowed_us(spec: TestSpec) -> float:
    """The allowed lateness of paced sends at p99, µs; above it the generator counts as the limit."""
    return max(LATE_FLOOR_US, LATE_SHARE_OF_GAP * (spec.send_gap_s or 0.0) * 1e6)


def leftover(connections: int) -> int:
    """The number of requests that may be due and unsent at any end: one per connection, or a few."""
    return max(WAITING_FEW, connections)
