"""The ceiling of a generator by the CPU time of its threads in the run itself, for loads that no null responder can
answer: a scenario's flow depends on what the answers say.

Owns what is counted, from when to when; `rules` owns the verdict. Pure. docs/decisions/0005-ceiling.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

from leadline import quantities
from leadline.analysis.metrics import Histograms, busy_s
from leadline.analysis.model import Ceiling, CeilingBasis, Window
from leadline.analysis.test_data import OutcomeOf, ScenarioPoint, TestData
from leadline.analysis.validity import LEAST_BUSY, SATURATED_BUSY
from leadline.contract import records

MOST_ANSWERING = 0.5
"""Of users' time that their requests took. Beyond it their rate follows the answers rather than their waits, and a
number of users says nothing about the generator."""
LEAST_BUSY_S = 0.1
"""CPU time of the busiest thread, s. A kernel that counts it at its ticks knows that of a running thread to one tick,
10 ms at 100 Hz: less would leave the ceiling uncertain by more than a tenth."""
LEAST_ANSWERS = 100
"""In the measured span. The rate of fewer is uncertain by more than a tenth, as their number is by its square root."""


@dataclass(frozen=True, slots=True)
class _Use:
    """What one host's threads did in the measured span."""

    share: float
    """Of the most that they can do: of the time of the busiest thread, or of the CPUs that all threads share."""
    answers_per_s: float
    iterations_per_s: float
    users: float
    busy_s: float
    """CPU time that the busiest thread worked."""
    answers: int


def ceiling_of_run(data: TestData, window: Window | None, histograms: Histograms) -> Ceiling | None:
    """The rate at which the busiest generating thread would have no time left, at the run's own cost per request; None
    if it was too idle for this cost to say anything, or the run too short, or if a host's threads are unknown.

    All threads and hosts get more to do in proportion, so the first at its limit determines the rate.
    """
    known = _uses(data, window)
    if known is None or _is_too_short(known):
        return None
    share = max(use.share for use in known)
    answers, iterations = (sum(getattr(use, name) for use in known) for name in ("answers_per_s", "iterations_per_s"))
    if share < LEAST_BUSY:
        return None
    extrapolated = share < SATURATED_BUSY
    factor = 1.0 / share if extrapolated else 1.0
    users = sum(use.users for use in known) if _users_mostly_wait(data, known, histograms) else None
    return Ceiling(
        factor * answers,
        extrapolated,
        basis=CeilingBasis.THIS_RUN,
        reached_per_s=answers,
        iterations_per_s=factor * iterations,
        users=None if users is None else factor * users,
    )


@dataclass(frozen=True, slots=True)
class RunningUsers:
    """The users of a load that is a number of users, and what they got."""

    mean: float
    """Users at a time."""
    answers_per_s: float
    answers: int


def count_running_users(data: TestData, window: Window | None) -> RunningUsers | None:
    """The users in the measured span, and their answers; None of a load whose iterations are due at times, of one that
    fetched resources, which are in no latency, and where a host did not report."""
    known = _uses(data, window)
    if known is None or _has_due_iterations(data) or _has_fetched_resources(data):
        return None
    sums = [sum(getattr(use, name) for use in known) for name in ("users", "answers_per_s", "answers")]
    return RunningUsers(sums[0], sums[1], round(sums[2]))


def _has_fetched_resources(data: TestData) -> bool:
    reports = [report for found in data.load_outcomes() if (report := found.scenario) is not None]
    return any(row.get("resources") for report in reports for row in report["labels"])


def too_short(data: TestData, window: Window | None) -> str | None:
    """Why a run whose threads were busy enough has no ceiling: it was too short. None if that is not the reason."""
    known = _uses(data, window)
    if known is None or max(use.share for use in known) < LEAST_BUSY or not _is_too_short(known):
        return None
    busiest, answers = max(known, key=lambda use: use.share), sum(use.answers for use in known)
    did = f"{quantities.seconds(busiest.busy_s)} of CPU time in the busiest thread and {answers:,} answers"
    return f"too short: {did}; {quantities.seconds(LEAST_BUSY_S)} and {LEAST_ANSWERS} are needed"


def _is_too_short(known: Sequence[_Use]) -> bool:
    busiest = max(known, key=lambda use: use.share)
    return busiest.busy_s < LEAST_BUSY_S or sum(use.answers for use in known) < LEAST_ANSWERS


def _uses(data: TestData, window: Window | None) -> list[_Use] | None:
    """What the threads of each host did; None if that of one host is unknown."""
    if window is None or window.end_ns <= window.start_ns:
        return None
    used = [_use(data, found, window) for found in data.load_outcomes()]
    known = [use for use in used if use is not None]
    return known if known and len(known) == len(used) else None


def _use(data: TestData, found: OutcomeOf, window: Window) -> _Use | None:
    """A host's use of its threads between the readings that are nearest to the ends of the measured span."""
    readings = [point for point in data.scenario_points if point.host == found.host and point.standing is not None]
    span = _span(found, window)
    if span is None or not readings:
        return None
    # Before the first reading nothing had been done.
    begin = ScenarioPoint(
        data.start_at_ns if data.start_at_ns is not None else window.first_start_ns, found.host, _IDLE
    )
    last = min(readings, key=lambda one: abs(one.t_ns - span[1]))
    earlier = (one for one in readings if one.t_ns < last.t_ns)
    first = min((begin, *earlier), key=lambda one: abs(one.t_ns - span[0]))
    shares, length_s, busiest_s = _shares(_threads(first), _threads(last))
    if not length_s:
        return None
    answers = _answers(last) - _answers(first)
    cpus = _cpus(data, found)
    return _Use(
        share=max(*shares, sum(shares) / cpus if cpus else 0.0),
        answers_per_s=answers / length_s,
        iterations_per_s=(_iterations(last) - _iterations(first)) / length_s,
        users=_mean_users([first, *(one for one in readings if first.t_ns < one.t_ns <= last.t_ns)]),
        busy_s=busiest_s,
        answers=answers,
    )


def _span(found: OutcomeOf, window: Window) -> tuple[int, int] | None:
    """The part of the window in which the main groups ran; None if they did not."""
    main = [row for row in (found.scenario["populations"] if found.scenario is not None else ()) if row["is_main"]]
    starts = [start - found.offset_ns for row in main if (start := row.get("start_ns")) is not None]
    ends = [end - found.offset_ns for row in main if (end := row.get("end_ns")) is not None]
    if not starts or not ends:
        return None
    span = max(window.start_ns, min(starts)), min(window.end_ns, max(ends))
    return span if span[0] < span[1] else None


def main_window(data: TestData, window: Window | None) -> Window | None:
    """The part of the window in which the main groups of all hosts ran; the whole one as long as that is unknown."""
    if window is None:
        return None
    spans = [_span(found, window) for found in data.load_outcomes()]
    known = [span for span in spans if span is not None]
    if not known or len(known) < len(spans):
        return window
    start_ns, end_ns = max(start for start, _ in known), min(end for _, end in known)
    return replace(window, start_ns=start_ns, end_ns=end_ns) if start_ns < end_ns else window


def _shares(
    before: Sequence[records.ThreadReport], after: Sequence[records.ThreadReport]
) -> tuple[list[float], float, float]:
    """The share of its time that each thread worked between two readings, the longest of these times, and the longest
    time that a thread worked, s."""
    earlier = {thread["name"]: thread for thread in before}
    shares, longest_s, busiest_s = [], 0.0, 0.0
    for thread in after:
        known = earlier.get(thread["name"])
        wall_s = thread["wall_s"] - (known["wall_s"] if known is not None else 0.0)
        if wall_s > 0:
            worked_s = busy_s(thread) - (busy_s(known) if known is not None else 0.0)
            shares.append(worked_s / wall_s)
            longest_s, busiest_s = max(longest_s, wall_s), max(busiest_s, worked_s)
    return shares, longest_s, busiest_s


def _threads(point: ScenarioPoint) -> Sequence[records.ThreadReport]:
    return point.standing["threads"] if point.standing is not None else ()


def _answers(point: ScenarioPoint) -> int:
    counts: Mapping[str, Any] = cast(Mapping[str, Any], point.standing["counts"]) if point.standing is not None else {}
    return int(counts.get("responses") or 0)


def _iterations(point: ScenarioPoint) -> int:
    """Iterations that came to their end."""
    rows = [row["iterations"] for row in point.progress["populations"]]
    return sum(row["completed"] + row["failed"] for row in rows)


def _mean_users(points: Sequence[ScenarioPoint]) -> float:
    """The number of users, by the time between readings."""
    length_ns = points[-1].t_ns - points[0].t_ns
    counted = (
        (sum(row["users"] for row in last.progress["populations"]), last.t_ns - first.t_ns)
        for first, last in pairwise(points)
    )
    return sum(users * time_ns for users, time_ns in counted) / length_ns if length_ns else 0.0


def _users_mostly_wait(data: TestData, used: Sequence[_Use], histograms: Histograms) -> bool:
    """Whether the load is a number of users, and not a rate, and most of their time is waits of their own."""
    if _has_due_iterations(data):
        return False
    latency_us = histograms.sample("latency").mean.value_us
    if latency_us is None:
        return False
    outstanding = sum(use.answers_per_s for use in used) * latency_us / 1e6
    return outstanding <= MOST_ANSWERING * sum(use.users for use in used)


def _has_due_iterations(data: TestData) -> bool:
    """Whether iterations have times at which they are due: only then they can be late."""
    reports = [report for found in data.load_outcomes() if (report := found.scenario) is not None]
    main = [row for report in reports for row in report["populations"] if row["is_main"]]
    return any(one["metric"] == "start_late" for row in main for one in row["histograms"])


def _cpus(data: TestData, found: OutcomeOf) -> float | None:
    """The CPUs that a host's threads share: its own in a lab, or its machine's, and no more than a quota allows."""
    facts, quota = data.facts.get(found.host, {}), found.outcome["generator"].get("quota")
    cpus = len(facts["own_cpus"]) if facts.get("own_cpus") else facts.get("cpus")
    limits = [float(one) for one in (cpus, quota["cpus"] if quota else None) if one]
    return min(limits, default=None)


_IDLE: records.ScenarioProgress = {"populations": [], "labels": []}
