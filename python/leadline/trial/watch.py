"""Stops a load when a target is missed: compares the figures so far, computed as those at the end, with the targets.

Checks each second, first after two seconds of figures (without warm-up), since the mean of a short time decides
nothing. All of a figure's interval has to miss its target, once the test shows one; before that its value decides. A
target that may still be met at the end stops nothing (`analysis.targets.missed_so_far`). Where the generator is the
limit, that is said once. Sends that are late for a while do not spoil the durations of all later seconds: those in
which sends were on time decide then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from leadline import quantities
from leadline.agents import Event
from leadline.analysis import TestData, TestSpec
from leadline.analysis.histograms import EMPTY, DamagedHistogram, Histogram, decode, merge
from leadline.analysis.intervals import Parts, joined
from leadline.analysis.model import Metric, TargetResult
from leadline.analysis.targets import missed_so_far
from leadline.analysis.test_analysis import figures_so_far
from leadline.analysis.validity import SATURATED_BUSY, late_allowed_us
from leadline.contract.models import Finished, Progress, Started
from leadline.dataset import are_machine_rules_off
from leadline.plan.percentiles import histogram_of
from leadline.plan.targets import Target
from leadline.trial.interrupt import Interrupt
from leadline.trial.live_metrics import BusyThreads
from leadline.trial.notifications import Notification, TargetOpen

GRACE_S = 2.0
_PERIOD_NS = 1_000_000_000


@dataclass(slots=True)
class TargetWatch:
    """The targets of one test, and those that its running figures missed."""

    targets: Sequence[Target]
    test: str
    missed: list[TargetResult] = field(default_factory=list)
    delays_ms: Mapping[str, int] = field(default_factory=dict)
    """Time before a target may be missed, by its text; none if absent."""

    def check(
        self,
        metrics: Mapping[str, Metric],
        generator_limited: bool,
        steady: bool = True,
        after_ms: float = math.inf,
        on_time: OnTime | None = None,
    ) -> bool:
        """Whether a target is missed; stores all that are. If the load's speed changes by plan, targets for rates are
        not checked. `after_ms` is the time since the load began. Durations `on_time` decide even if the generator is
        the limit, in place of those of all the time."""
        apart = on_time or OnTime(0, {})
        due = [target for target in self.targets if self.delays_ms.get(target.text, 0) <= after_ms]
        found = [
            missed_so_far(target, self.test, metrics, generator_limited, steady)
            for target in due
            if target.metric not in apart.metrics
        ]
        for target in (one for one in due if one.metric in apart.metrics):
            missed = missed_so_far(target, self.test, apart.metrics, False, steady)
            when = f"in the {apart.seconds} s in which sends were on time"
            found.append(missed and replace(missed, reason=f"{missed.reason}, {when}"))
        self.missed = [result for result in found if result is not None]
        return bool(self.missed)

    def left_open(self, metrics: Mapping[str, Metric], steady: bool, after_ms: float) -> TargetResult | None:
        """The first target that would be missed if the generator were not the limit."""
        due = (target for target in self.targets if self.delays_ms.get(target.text, 0) <= after_ms)
        found = (missed_so_far(target, self.test, metrics, False, steady) for target in due)
        return next((result for result in found if result is not None), None)


@dataclass(frozen=True, slots=True)
class OnTime:
    """The durations of the seconds in which sends were on time."""

    seconds: int
    metrics: Mapping[str, Metric]


class Follower:
    """Receives a load's events, keeps the data for its figures so far, and requests the end when a target is
    missed."""

    def __init__(
        self,
        label: str,
        spec: TestSpec,
        offsets_ns: Mapping[str, int],
        watch: TargetWatch,
        interrupt: Interrupt,
        *,
        notify: Callable[[Notification], None] = lambda _: None,
    ) -> None:
        self._label = label
        self._notify = notify
        self._is_reported = False
        self._offsets_ns = offsets_ns
        asked = tuple(target.metric for target in watch.targets)
        self._data = TestData(spec, tuple(offsets_ns), status="interrupted", asked=asked, is_running=True)
        # Those that targets name, in parts.
        self._named = {found.histogram for name in asked if (found := histogram_of(name)) is not None}
        self._named |= {name.removesuffix("_mean_us") for name in asked}
        self._all, self._on_time = _Durations(), _Durations()
        self._on_time_seconds: set[int] = set()
        self._was_on_time: dict[str, bool] = {}
        self._watch = watch
        self._interrupt = interrupt
        self._threads = BusyThreads()
        self._next_look_ns: int | None = None

    def on_event(self, host: str, event: Event) -> None:
        """Process an event; events that no figure needs are ignored."""
        if not isinstance(event, Started | Progress | Finished) or event.trial != self._label:
            return
        offset_ns = self._offsets_ns.get(host, 0)
        self._data.add(host, event.model_dump(mode="python"), offset_ns)
        if isinstance(event, Started):
            self._begin(event.t_ns - offset_ns)
        t_ns = event.t_ns - offset_ns
        self._take_histograms(host, t_ns)
        if not isinstance(event, Progress):
            return
        if event.standing is not None:
            self._threads.take(host, event.standing)
        if self._next_look_ns is not None and t_ns >= self._next_look_ns and not self._interrupt.asked.is_set():
            self._next_look_ns = t_ns + _PERIOD_NS
            self._check(t_ns)

    def _begin(self, t_ns: int) -> None:
        """The last host's start counts, as for the steady window."""
        self._data.start_at_ns = t_ns
        self._next_look_ns = t_ns + self._data.spec.warmup_ns + round(GRACE_S * 1e9)

    def _take_histograms(self, host: str, t_ns: int) -> None:
        """Decode the new histograms, add them up, and drop the encoded ones."""
        fresh: dict[str, Histogram] = {}
        for part in self._data.interval_histograms:
            name = str(part.report["metric"])
            fresh[name] = merge((fresh.get(name, EMPTY), *_readable([part.report])))
        self._data.interval_histograms.clear()
        second = t_ns // _PERIOD_NS
        self._all.add(fresh, second, self._named)
        if "late" not in fresh:
            return
        # An agent hands over a second's histograms together. Requests that were late may be answered a second later.
        is_on_time, was_on_time = not self._is_late(fresh["late"]), self._was_on_time.get(host, True)
        self._was_on_time[host] = is_on_time
        if is_on_time and was_on_time:
            self._on_time_seconds.add((t_ns - (self._data.start_at_ns or t_ns)) // _PERIOD_NS)
            self._on_time.add(fresh, second, self._named)

    def _check(self, t_ns: int) -> None:
        metrics, steady = figures_so_far(self._data, self._all.whole, self._all.parts), self._data.spec.steady
        after_s = (t_ns - (self._data.start_at_ns or t_ns)) / 1e9
        why = self._generator_limit()
        if self._watch.check(metrics, why is not None, steady, after_s * 1e3, self._durations_on_time()):
            said = "; ".join(f"{missed.target} ({missed.reason})" for missed in self._watch.missed)
            self._interrupt.ask(f"stopped after {after_s:.1f} s because a target was missed: {said}")
        elif why is not None and not self._is_reported:
            held = self._watch.left_open(metrics, steady, after_s * 1e3)
            if held is not None:
                self._is_reported = True
                self._notify(TargetOpen(self._label, held.target, held.reason, why))

    def _durations_on_time(self) -> OnTime | None:
        """What decides in place of all durations while sends are late; None if they are not, or if it is too little."""
        if not self._is_late(self._all.whole.get("late", EMPTY)) or len(self._on_time_seconds) < GRACE_S:
            return None
        if are_machine_rules_off() or self._is_busy():
            return None
        figures = figures_so_far(self._data, self._on_time.whole, self._on_time.parts)
        return OnTime(len(self._on_time_seconds), {name: one for name, one in figures.items() if one.unit == "us"})

    def _generator_limit(self) -> str | None:
        """Why the generator is the limit: a thread is busy all the time, or paced sends are too late. As at the end,
        nothing says so where the rules about the machine are off."""
        if are_machine_rules_off():
            return None
        if self._is_busy():
            return "a thread of the generator is busy all the time"
        late = self._all.whole.get("late", EMPTY)
        if self._is_late(late):
            limit_us = late_allowed_us(self._data.spec)
            p99, most = (quantities.microseconds(one) for one in (late.percentile_us(99.0), limit_us))
            return f"sends are {p99} late at p99; the limit is {most}"
        return None

    def _is_busy(self) -> bool:
        return (self._threads.busiest() or 0.0) >= SATURATED_BUSY

    def _is_late(self, late: Histogram) -> bool:
        late_us = late.percentile_us(99.0)
        return self._data.spec.paced and late_us is not None and late_us > late_allowed_us(self._data.spec)


class _Durations:
    """Histograms of some seconds: merged, and of those that targets name the part of each second."""

    def __init__(self) -> None:
        self.whole: dict[str, Histogram] = {}
        self._parts: dict[str, tuple[Histogram, ...]] = {}
        self._second: dict[str, int] = {}

    @property
    def parts(self) -> Parts:
        """The parts, in order."""
        return Parts(self._parts)

    def add(self, fresh: Mapping[str, Histogram], second: int, named: Collection[str]) -> None:
        """Add what a host reported in a second; hosts report the same second one after the other."""
        for name, histogram in fresh.items():
            self.whole[name] = merge((self.whole.get(name, EMPTY), histogram))
            if name not in named:
                continue
            parts = self._parts.get(name, ())
            if self._second.get(name) == second:
                self._parts[name] = (*parts[:-1], merge((parts[-1], histogram)))
            else:
                self._parts[name] = joined((*parts, histogram))
            self._second[name] = second


def _readable(reports: Iterable[Mapping[str, Any]]) -> Iterable[Histogram]:
    for report in reports:
        try:
            yield decode(report)
        except DamagedHistogram:
            continue  # counted when the whole test's histograms are read
