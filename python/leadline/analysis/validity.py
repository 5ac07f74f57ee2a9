"""Whether a test's figures can be believed: the rules of its kind, applied to what the test left.

Each finding is a verdict with a reason; the worst verdict wins and every reason is kept. What is only worth knowing
(hosts that share CPUs, counters that are missing) is a note, which changes no verdict. The thresholds are below; the
rules that kinds are judged by are in `rules` and, where one kind alone has them, with the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from leadline.analysis import stability
from leadline.analysis.flows import Flow
from leadline.analysis.metrics import Histograms
from leadline.analysis.model import Reason, Validity, Verdict, Window
from leadline.analysis.test_data import TestData
from leadline.analysis.test_spec import TestSpec
from leadline.registry import KINDS

Finding = tuple[Verdict, Reason]
# A thread that ran 95 % of the time has no more than 5 % left: a twentieth more load is the most that it could have
# given, and scheduling granularity hides the rest.
SATURATED_BUSY = 0.95

# A thread that was running or waiting for a CPU all but 2 % of the time wanted more CPU than it got. Waits are counted
# by the kernel to the nanosecond, so this can be tighter than the former.
STARVED_BUSY_AND_WAITING = 0.98

# Sends count as late from 1 ms on: wake-ups on an idle host are late by some tens of µs, timer ticks by up to 1 ms ...
LATE_FLOOR_US = 1000.0
# ... and from a tenth of the time between two sends on, where that is longer: less does not change the pace.
LATE_SHARE_OF_GAP = 0.1

# Sends refused by the own host's socket: below one in a hundred it is the queue's ordinary breathing.
PUSHBACK_SHARE = 0.01

# From here on a rate is near the generator's ceiling, which was measured in one second and varies by some percent.
NEAR_CEILING = 0.9
# A thread at its ceiling is busy. One that had a fifth of its time to spare was not, whatever a null responder let it
# do: over another path, or with larger batches, a request may cost less than it did there.
CEILING_BUSY = 0.8

# Requests that waited for a connection or for an answer are reported from one in a hundred on, and beyond these few,
# which the end of any test may leave.
WAITING_SHARE = 0.01
WAITING_FEW = 3

# A window shorter than half of what was planned says more about head and tail than about the path.
SHORTEST_WINDOW_SHARE = 0.5

# Below two intervals no rate was read twice, and the gap between the last operation and the end weighs as much as any.
SHORTEST_WINDOW_INTERVALS = 2

# Clocks of two machines that are known to 1 ms: a hundredth of the default interval.
CLOCK_BOUND_NS = 1_000_000

# The reasons for which a generator is held to be the limit.
GENERATOR_REASONS = frozenset(
    {"thread-saturated", "thread-starved", "pushback", "sends-late", "unsent", "near-ceiling"}
)

# The steady window is shorter than it should be, or too short for any; what was counted is whole.
SHORT_WINDOW, NO_WINDOW = "window-too-short", "no-steady-window"
SHORT_WINDOWS = frozenset({SHORT_WINDOW, NO_WINDOW})
# Flows that never moved a byte.
NOT_STARTED = "flows-not-started"
# Parts of a test that differ.
UNEVEN = frozenset({stability.INTERVALS_DISAGREE, stability.CHANGE_POINT})
# Lines of the journal could not be read.
JOURNAL_DAMAGED = "journal-damaged"
# Enough requests were outstanding that high percentiles of the latency are lower bounds.
LATENCY_BOUND = "latency-lower-bound"
# Many requests waited until a connection was free.
CONNECTIONS_BUSY = "connections-busy"

_ORDER = list(Verdict)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a verdict is made from."""

    data: TestData
    flows: Sequence[Flow]
    window: Window | None
    histograms: Histograms


@dataclass(frozen=True, slots=True)
class Rules:
    """How a kind of test is judged, in order."""

    findings: tuple[Callable[[Evidence], Iterable[Finding]], ...]
    notes: tuple[Callable[[Evidence], Iterable[Reason]], ...]


class JudgedKind(Protocol):
    """What this module needs of a kind of test."""

    def rules(self) -> Rules:
        """How its tests are judged."""


def assess(
    data: TestData,
    flows: Sequence[Flow],
    window: Window | None,
    histograms: Histograms,
) -> Validity:
    """The verdict on one test, with every reason for it and every note."""
    kind: JudgedKind = KINDS.find(data.spec.kind)
    rules, evidence = kind.rules(), Evidence(data, flows, window, histograms)
    return combine(
        [found for rule in rules.findings for found in rule(evidence)],
        [note for rule in rules.notes for note in rule(evidence)],
    )


def combine(findings: Iterable[Finding], notes: Iterable[Reason] = ()) -> Validity:
    """The worst verdict, the reasons worst first, and the notes."""
    ranked = sorted(findings, key=lambda finding: _ORDER.index(finding[0]))
    verdict = ranked[0][0] if ranked else Verdict.VALID
    return Validity(verdict, tuple(reason for _, reason in ranked), tuple(notes))


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The first in the order of `Verdict`; valid where there is none."""
    return min(verdicts, key=_ORDER.index, default=Verdict.VALID)


def late_allowed_us(spec: TestSpec) -> float:
    """How late paced sends may be at p99, µs, before the generator counts as the limit."""
    return max(LATE_FLOOR_US, LATE_SHARE_OF_GAP * (spec.send_gap_s or 0.0) * 1e6)


def leftover(connections: int) -> int:
    """How many requests any end may leave that were due and not sent: one for each connection, or a few."""
    return max(WAITING_FEW, connections)
