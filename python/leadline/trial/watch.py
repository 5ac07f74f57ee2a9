"""Stops a load when a target is missed: compares the figures so far, computed as those at the end, with the targets.

Checks each second, first after two seconds of figures (without warm-up), since the mean of a short time decides
nothing. A target that may still be met at the end stops nothing (`analysis.targets.missed_so_far`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leadline.agents import Event
from leadline.analysis import TestData, TestSpec
from leadline.analysis.histograms import EMPTY, DamagedHistogram, Histogram, decode, merge
from leadline.analysis.model import Metric, TargetResult
from leadline.analysis.targets import missed_so_far
from leadline.analysis.test_analysis import figures_so_far
from leadline.analysis.validity import SATURATED_BUSY, late_allowed_us
from leadline.contract.models import Finished, Progress, Started
from leadline.plan.targets import Target
from leadline.trial.interrupt import Interrupt
from leadline.trial.live_metrics import BusyThreads

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
    ) -> bool:
        """Whether a target is missed; stores all that are. If the load's speed changes by plan, targets for rates are
        not checked. `after_ms` is the time since the load began."""
        due = (target for target in self.targets if self.delays_ms.get(target.text, 0) <= after_ms)
        found = (missed_so_far(target, self.test, metrics, generator_limited, steady) for target in due)
        self.missed = [result for result in found if result is not None]
        return bool(self.missed)


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
    ) -> None:
        self._label = label
        self._offsets_ns = offsets_ns
        asked = tuple(target.metric for target in watch.targets)
        self._data = TestData(spec, tuple(offsets_ns), status="interrupted", asked=asked)
        self._histograms: dict[str, Histogram] = {}
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
        self._take_histograms()
        if not isinstance(event, Progress):
            return
        if event.standing is not None:
            self._threads.take(host, event.standing)
        t_ns = event.t_ns - offset_ns
        if self._next_look_ns is not None and t_ns >= self._next_look_ns and not self._interrupt.asked.is_set():
            self._next_look_ns = t_ns + _PERIOD_NS
            self._check(t_ns)

    def _begin(self, t_ns: int) -> None:
        """The last host's start counts, as for the steady window."""
        self._data.start_at_ns = t_ns
        self._next_look_ns = t_ns + self._data.spec.warmup_ns + round(GRACE_S * 1e9)

    def _take_histograms(self) -> None:
        """Decode the new histograms, add them up, and drop the encoded ones."""
        for part in self._data.interval_histograms:
            name = str(part.report["metric"])
            self._histograms[name] = merge((self._histograms.get(name, EMPTY), *_readable([part.report])))
        self._data.interval_histograms.clear()

    def _check(self, t_ns: int) -> None:
        metrics = figures_so_far(self._data, self._histograms)
        after_s = (t_ns - (self._data.start_at_ns or t_ns)) / 1e9
        if self._watch.check(metrics, self._generator_limited(), self._data.spec.steady, after_s * 1e3):
            said = "; ".join(f"{missed.target} ({missed.reason})" for missed in self._watch.missed)
            self._interrupt.ask(f"stopped after {after_s:.1f} s because a target was missed: {said}")

    def _generator_limited(self) -> bool:
        """Whether a thread is busy all the time, or paced sends are too late."""
        if (self._threads.busiest() or 0.0) >= SATURATED_BUSY:
            return True
        spec = self._data.spec
        late_us = self._histograms.get("late", EMPTY).percentile_us(99.0)
        return spec.paced and late_us is not None and late_us > late_allowed_us(spec)


def _readable(reports: Iterable[Mapping[str, Any]]) -> Iterable[Histogram]:
    for report in reports:
        try:
            yield decode(report)
        except DamagedHistogram:
            continue  # counted when the whole test's histograms are read
