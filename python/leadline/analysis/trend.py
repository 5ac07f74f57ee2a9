"""The history of each figure over many runs: where its level shifts, and whether the shift is a regression.

A history has one plan, case, test, figure and kind of machine; runs with another load, other hardware or another kernel
make a history of their own, and what differs between the two is named. A point is a run's mean over its repeats, so
repeats make the history less noisy. Points that are not valid, or bounds alone, are kept for the plot and judged by
nothing; where the newest runs have no others, the figure is stale. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any

import numpy as np

from leadline.analysis.main_figures import better_of, chosen_figures
from leadline.analysis.model import RunAnalysis, Summary, Verdict
from leadline.analysis.plan_facts import environment_facts, flat, system_facts
from leadline.plan.metric_specs import Better
from leadline.statistics import ChangePoint, change_points, mean_of_repeats, neighbours_correlation, slow_loss

LEAST_RUNS = 10
"""With fewer runs no order of them is rare enough: of 9 runs even the clearest shift has a probability of 1.6 %."""
MARGIN = 0.02
"""A shift by less than this share is no regression, unless the user says otherwise."""
NEWEST = 10
"""A regression that began in this many newest runs of its plan is new."""

Facts = tuple[tuple[str, str], ...]
"""Names and values, sorted by name."""


class Shift(StrEnum):
    """What a shift of a figure's level is."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    SMALL = "within the margin"
    NEUTRAL = "neither better nor worse"


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run, as a history needs it."""

    run: str
    """The name of its folder."""
    plan: str
    started_at: str
    """ISO 8601; empty if unknown."""
    machine: Facts
    """Hardware and kernel of its hosts: the host's fingerprint. Runs are comparable where it is the same."""
    software: Facts
    """What may explain a shift: versions of Leadline, agent and distribution."""
    systems: Mapping[str, str]
    """The version of the system under test, by case."""
    loads: Mapping[tuple[str, str], Facts]
    """What the plan asks for, by case and test."""
    tests: Mapping[tuple[Facts, str], Facts]
    """The load of each test of its plan, by the parameters of its case and its name."""
    summaries: tuple[Summary, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A figure in one run: the mean over its repeats with its 95 % interval."""

    run: str
    started_at: str
    value: float
    low: float | None
    high: float | None
    repeats: int
    verdict: Verdict
    bound: str | None = None
    """The side of `value` on which the true figure lies, as `Metric.side`; None where it is exact."""

    @property
    def is_judged(self) -> bool:
        """Whether it counts: a figure that is not valid says nothing of the level, and neither does a bound."""
        return self.verdict is Verdict.VALID and self.bound is None


@dataclass(frozen=True, slots=True)
class Level:
    """A stretch of a history without a shift: the mean of its judged points, with its 95 % interval."""

    first_run: str
    last_run: str
    runs: int
    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Change:
    """A shift of the level. `run` is the first run of the new level: the cause lies near it, within two runs."""

    shift: Shift
    run: str
    started_at: str
    run_before: str
    before: float
    after: float
    ratio: float | None
    """The new level divided by the old one; None where the old one is 0."""
    probability: float | None
    """That of a shift as clear as this one in a history without any; None for one that came little by little."""
    runs_since: int
    """Judged runs on the new level."""
    is_new: bool
    """Whether it is in the newest runs of its plan."""
    differences: tuple[str, ...]
    """What else differs between the two runs: versions of software."""
    best: Level | None = None
    """The best earlier level, which the newest runs are compared with; None for a sudden shift."""
    low: float | None = None
    """Lower bound of `after - before` at 99 %; None for a sudden shift."""
    high: float | None = None
    """Upper bound of `after - before` at 99 %; None for a sudden shift."""


@dataclass(frozen=True, slots=True)
class History:
    """One figure over the runs that are comparable, oldest first."""

    plan: str
    parameters: dict[str, str]
    test: str
    kind: str
    metric: str
    unit: str
    better: Better
    machine: dict[str, str]
    points: tuple[Point, ...]
    levels: tuple[Level, ...]
    changes: tuple[Change, ...]
    reason: str | None
    """Why no shift was looked for; None if it was."""
    caution: str | None = None
    """Why shifts are less certain than their probability says."""

    @property
    def name(self) -> str:
        """The test and its parameters, for a line."""
        return _named(self.test, self.parameters)


@dataclass(frozen=True, slots=True)
class Separation:
    """Where the runs of one test part into two histories: from `run` on, `differences` hold."""

    plan: str
    parameters: dict[str, str]
    test: str
    run: str
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StaleFigure:
    """A figure with histories that are judged, of which the newest runs have no value to judge: their test failed, or
    the figure is not valid, or a bound alone."""

    plan: str
    parameters: dict[str, str]
    test: str
    metric: str
    run: str
    """The last run that has one."""
    started_at: str
    runs: int
    """Later runs whose plan has the test."""
    is_in_newest: bool
    """Whether any of the newest runs of the plan has one; without any, nothing can be said of them."""

    @property
    def name(self) -> str:
        """The test and its parameters, for a line."""
        return _named(self.test, self.parameters)


@dataclass(frozen=True, slots=True)
class Trend:
    """All histories of a folder of runs."""

    runs: int
    first: str
    last: str
    """When the first and the last run began; empty without a run."""
    margin: float
    newest: int
    histories: tuple[History, ...]
    separations: tuple[Separation, ...]
    stale: tuple[StaleFigure, ...] = ()

    @property
    def silent(self) -> tuple[StaleFigure, ...]:
        """The figures of which none of the newest runs has a value to judge."""
        return tuple(one for one in self.stale if not one.is_in_newest)

    @property
    def judged(self) -> tuple[History, ...]:
        """The histories that are long enough."""
        return tuple(one for one in self.histories if one.reason is None)

    def of_shift(self, shift: Shift, *, is_new: bool | None = None) -> tuple[tuple[History, Change], ...]:
        """All shifts of one sort: the new ones, the older ones, or both."""
        return tuple(
            (history, change)
            for history in self.histories
            for change in history.changes
            if change.shift is shift and is_new in (None, change.is_new)
        )


def recorded_run(run: str, analysis: RunAnalysis, manifest: Mapping[str, Any]) -> RecordedRun:
    """What a history needs of a run."""
    cases = [case for case in manifest.get("cases") or () if "id" in case]
    command = () if "plan" in manifest else (("command", _comparable(analysis.command)),)
    software = {"Leadline": [analysis.version], **_facts(analysis, _SOFTWARE)}
    return RecordedRun(
        run=run,
        plan=analysis.name,
        started_at=_utc(analysis.started_at),
        machine=_joined(_facts(analysis, _MACHINE)),
        software=_joined(software),
        systems={trial.case: trial.sut_version for trial in analysis.trials if trial.sut_version},
        loads={
            (case["id"], test["name"]): _load(case, test, command) for case in cases for test in case.get("tests") or ()
        },
        tests={
            (_parameters(case.get("parameters") or {}), test["name"]): _load(case, test, command)
            for case in cases
            for test in case.get("tests") or ()
        },
        summaries=analysis.summaries,
    )


def trend_of(
    runs: Iterable[RecordedRun], *, metrics: Sequence[str] = (), margin: float = MARGIN, newest: int = NEWEST
) -> Trend:
    """The histories of the main figures of each test, or of those that are named, over all runs."""
    ordered = sorted(runs, key=lambda run: (run.started_at, run.run))
    found: dict[_Key, list[tuple[RecordedRun, Summary]]] = {}
    for run in ordered:
        for summary in run.summaries:
            load = run.loads.get((summary.case, summary.test), ())
            key = _Key(run.plan, _parameters(summary.parameters), summary.test, summary.kind, run.machine, load)
            found.setdefault(key, []).append((run, summary))
    new_runs = _newest(ordered, newest)
    keyed = [
        (key, history)
        for key, rows in found.items()
        for name in chosen_figures(key.kind, metrics)
        if (history := _history(key, name, rows, margin, new_runs)) is not None
    ]
    histories = [history for _, history in keyed]
    return Trend(
        runs=len(ordered),
        first=ordered[0].started_at if ordered else "",
        last=ordered[-1].started_at if ordered else "",
        margin=margin,
        newest=newest,
        histories=tuple(sorted(histories, key=lambda one: (one.plan, one.test, sorted(one.parameters.items())))),
        separations=tuple(_separations(found)),
        stale=tuple(_stale(keyed, ordered, new_runs)),
    )


@dataclass(frozen=True, slots=True)
class _Key:
    """What the runs of one history have in common."""

    plan: str
    parameters: Facts
    test: str
    kind: str
    machine: Facts
    load: Facts


def _newest(ordered: Sequence[RecordedRun], number: int) -> frozenset[str]:
    """The newest runs of each plan."""
    by_plan: dict[str, list[str]] = {}
    for run in ordered:
        by_plan.setdefault(run.plan, []).append(run.run)
    return frozenset(name for names in by_plan.values() for name in names[-number:])


def _history(
    key: _Key, metric: str, rows: Sequence[tuple[RecordedRun, Summary]], margin: float, new_runs: frozenset[str]
) -> History | None:
    """One figure's history; None if no run knows it."""
    known = [(run, summary, found) for run, summary in rows if (found := summary.metrics.get(metric)) is not None]
    points = tuple(
        Point(run.run, run.started_at, found.value, found.low, found.high, summary.repeats, found.verdict, found.side)
        for run, summary, found in known
        if found.value is not None
    )
    if not points:
        return None
    better = better_of(key.kind, metric)
    judged = [point for point in points if point.is_judged]
    reason = None
    if len(judged) < LEAST_RUNS:
        bounds = sum(point.verdict is Verdict.VALID and not point.is_judged for point in points)
        more = f", {bounds} have only a bound" if bounds else ""
        reason = f"{len(judged)} of {len(rows)} runs are valid{more}: {LEAST_RUNS} are needed"
    shifts = () if reason else change_points([point.value for point in judged])
    judge = _Judge(better, margin, new_runs, {run.run: (run, summary.case) for run, summary in rows})
    changes = tuple(judge.changes(shifts, judged))
    return History(
        plan=key.plan,
        parameters=dict(key.parameters),
        test=key.test,
        kind=key.kind,
        metric=metric,
        unit=known[0][2].unit,
        better=better,
        machine=dict(key.machine),
        points=points,
        levels=tuple(_levels(judged, [shift.index for shift in shifts])),
        changes=(*changes, *judge.slow_loss(shifts, judged, changes)),
        reason=reason,
        caution=_caution([point.value for point in judged], [shift.index for shift in shifts]),
    )


def _stale(
    histories: Iterable[tuple[_Key, History]], ordered: Sequence[RecordedRun], new_runs: frozenset[str]
) -> Iterator[StaleFigure]:
    """Each figure that was judged and that the newest run of its test on the same hardware lacks. The history before
    another kernel is that of the same figure: its end is no gap. Runs whose plan does not have the test, or has it with
    another load, say nothing of it."""
    together: dict[tuple[_Key, str], list[History]] = {}
    for key, history in histories:
        together.setdefault((replace(key, machine=_hardware(key.machine)), history.metric), []).append(history)
    for (key, metric), found in together.items():
        if all(history.reason is not None for history in found):
            continue
        asked = [run for run in ordered if _asks(run, key)]
        known = {point.run for history in found for point in history.points if point.is_judged}
        last = max((place for place, run in enumerate(asked) if run.run in known), default=None)
        newest = {run.run for run in asked} & new_runs
        if last is not None and newest and last + 1 < len(asked):
            yield StaleFigure(
                plan=key.plan,
                parameters=dict(key.parameters),
                test=key.test,
                metric=metric,
                run=asked[last].run,
                started_at=asked[last].started_at,
                runs=len(asked) - last - 1,
                is_in_newest=bool(known & newest),
            )


def _hardware(machine: Facts) -> Facts:
    """What a machine is, whatever kernel it runs."""
    return tuple(fact for fact in machine if fact[0] != _MACHINE["kernel"])


def _asks(run: RecordedRun, key: _Key) -> bool:
    """Whether a run was to measure what these histories are of, on their hardware or on hosts that it never reached."""
    load = run.tests.get((key.parameters, key.test))
    return run.plan == key.plan and load == key.load and _hardware(run.machine) in ((), key.machine)


def _caution(values: Sequence[float], places: Sequence[int]) -> str | None:
    """Whether neighbouring runs resemble each other beyond what their levels explain: such runs come in no random
    order."""
    rests = [np.array(values[start:end]) for start, end in pairwise((0, *places, len(values)))]
    found = neighbours_correlation(np.concatenate([rest - rest.mean() if len(rest) else rest for rest in rests]))
    if found is None:
        return None
    return f"neighbouring runs resemble each other (correlation {found:.2f}): shifts are less certain"


@dataclass(frozen=True, slots=True)
class _Judge:
    """What decides on the shifts of one history."""

    better: Better
    margin: float
    new_runs: frozenset[str]
    cases: Mapping[str, tuple[RecordedRun, str]]
    """Each run, and its case."""

    def changes(self, shifts: Sequence[ChangePoint], judged: Sequence[Point]) -> Iterator[Change]:
        """The shifts with their places."""
        ends = [*(shift.index for shift in shifts), len(judged)][1:]
        for shift, end in zip(shifts, ends, strict=True):
            before, after = judged[shift.index - 1], judged[shift.index]
            yield Change(
                shift=self._sort(shift),
                run=after.run,
                started_at=after.started_at,
                run_before=before.run,
                before=shift.before,
                after=shift.after,
                ratio=shift.ratio,
                probability=shift.probability,
                runs_since=end - shift.index,
                is_new=after.run in self.new_runs,
                differences=tuple(_software_differences(self.cases[before.run], self.cases[after.run])),
            )

    def slow_loss(
        self, shifts: Sequence[ChangePoint], judged: Sequence[Point], changes: Sequence[Change]
    ) -> Iterator[Change]:
        """The loss that came little by little, if there is one and no new regression is named already."""
        is_named = any(one.shift is Shift.REGRESSION and one.is_new for one in changes)
        if is_named or not judged or self.better is Better.NEITHER:
            return
        values = [point.value for point in judged]
        found = slow_loss(values, shifts, self.margin, higher_is_better=self.better is Better.HIGHER)
        if found is None:
            return
        first, last = judged[found.end - 1], judged[found.index]
        (best,) = _levels(judged[found.start : found.end], ())
        yield Change(
            shift=Shift.REGRESSION,
            run=last.run,
            started_at=last.started_at,
            run_before=first.run,
            before=found.before,
            after=found.after,
            ratio=found.after / found.before if found.before else None,
            probability=None,
            runs_since=len(judged) - found.index,
            is_new=judged[-1].run in self.new_runs,
            differences=tuple(_software_differences(self.cases[first.run], self.cases[last.run])),
            best=best,
            low=found.low,
            high=found.high,
        )

    def _sort(self, shift: ChangePoint) -> Shift:
        """What a shift is; one from 0 is beyond every margin."""
        if self.better is Better.NEITHER:
            return Shift.NEUTRAL
        if abs(shift.after - shift.before) <= self.margin * abs(shift.before):
            return Shift.SMALL
        is_better = (shift.after > shift.before) is (self.better is Better.HIGHER)
        return Shift.IMPROVEMENT if is_better else Shift.REGRESSION


def _levels(judged: Sequence[Point], places: Sequence[int]) -> Iterator[Level]:
    for start, end in pairwise((0, *places, len(judged))):
        part = judged[start:end]
        if part:
            mean = mean_of_repeats([point.value for point in part])
            yield Level(part[0].run, part[-1].run, len(part), mean.value, mean.low, mean.high)


def _separations(found: Mapping[_Key, Sequence[tuple[RecordedRun, Summary]]]) -> Iterator[Separation]:
    """Each test whose runs are more than one history, with what differs from the history that began before."""
    together: dict[tuple[str, Facts, str], list[tuple[str, _Key]]] = {}
    for key, rows in found.items():
        together.setdefault((key.plan, key.parameters, key.test), []).append((rows[0][0].run, key))
    for (plan, parameters, test), parts in together.items():
        for (_, before), (run, after) in pairwise(parts):
            differences = (*_differences(before.machine, after.machine), *_differences(before.load, after.load))
            yield Separation(plan, dict(parameters), test, run, differences)


_MACHINE = {"cpu_model": "CPU model", "cpus": "CPUs", "architecture": "architecture", "kernel": "kernel"}
_SOFTWARE = {
    "distribution": "distribution",
    "agent_version": "agent",
    "build_profile": "agent's build profile",
    "tcp_congestion": "TCP",
}


def _facts(analysis: RunAnalysis, names: Mapping[str, str]) -> dict[str, list[str]]:
    """What the run's hosts say of some facts; each value once."""
    return {
        words: sorted({str(facts[name]) for facts in analysis.hosts.values() if facts.get(name) is not None})
        for name, words in names.items()
    }


def _joined(facts: Mapping[str, Sequence[str]]) -> Facts:
    return tuple(sorted((name, ", ".join(values)) for name, values in facts.items() if any(values)))


def _parameters(parameters: Mapping[str, Any]) -> Facts:
    """The parameters of a case as text, which is the same for a manifest and for a trial: a manifest has `true`."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in parameters.items()}
    return tuple(sorted(texts.items()))


def _load(case: Mapping[str, Any], test: Mapping[str, Any], command: Facts) -> Facts:
    """What a plan asks for in one test of a case."""
    return tuple(sorted((*command, *environment_facts(case), *system_facts(case), *flat(test))))


def _comparable(command: str) -> str:
    """The command of a single measurement, which alone names its server, without the options for its output."""
    return re.sub(r"\s(--json|(--out|--hdr|--format)[ =]\S+)", "", command)


def _differences(before: Facts, after: Facts) -> Iterator[str]:
    """`kernel: 6.1 -> 6.12` for each fact in which the two differ."""
    first, second = dict(before), dict(after)
    for name in sorted(first.keys() | second.keys()):
        if first.get(name) != second.get(name):
            yield f"{name}: {first.get(name, 'none')} -> {second.get(name, 'none')}"


def _software_differences(before: tuple[RecordedRun, str], after: tuple[RecordedRun, str]) -> Iterator[str]:
    sides = [
        (*run.software, *((("system under test", run.systems[case]),) if case in run.systems else ()))
        for run, case in (before, after)
    ]
    return _differences(sides[0], sides[1])


def _utc(text: str) -> str:
    """A time in UTC, so that texts sort by time; other text as it is."""
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        return text


def _named(test: str, parameters: Mapping[str, str]) -> str:
    return " ".join((test, *(f"{name}={value}" for name, value in parameters.items())))
