"""Reports each interval of a running load when it has ended, for `--interval`. Measures nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from leadline.agents import Event
from leadline.analysis.model import Interval
from leadline.analysis.running_intervals import RunningIntervals
from leadline.contract.models import Finished, Progress
from leadline.trial.event_log import EventLog
from leadline.trial.notifications import IntervalEnded


class IntervalFollower:
    """The intervals of all clients of one load; it ends with the last client. `sides` has the side for which other
    tasks than those of the clients count, None for those that count for none."""

    def __init__(
        self,
        label: str,
        intervals: RunningIntervals,
        start_at_ns: int,
        offsets_ns: Mapping[str, int],
        event_log: EventLog,
        *,
        sides: Mapping[tuple[str, str], str | None] = MappingProxyType({}),
    ) -> None:
        self._label = label
        self._start_at_ns = start_at_ns
        self._offsets_ns = offsets_ns
        self._event_log = event_log
        self._sides = sides
        self._intervals = intervals
        self._running = set(offsets_ns)
        self._end_ns = start_at_ns

    def on_event(self, host: str, event: Event) -> None:
        """Process an event; events without counters are ignored."""
        if not isinstance(event, Progress | Finished) or event.trial != self._label:
            return
        offset_ns = self._offsets_ns.get(host, 0)
        is_other = (host, event.task) in self._sides
        side = self._sides.get((host, event.task))
        if is_other and (side is None or isinstance(event, Finished)):
            return
        if isinstance(event, Progress):
            row = event.model_dump(mode="python")
            self._publish(
                self._intervals.take(host, event.t_ns - offset_ns, row if side is None else {**row, "side": side})
            )
            return
        ends_ns = [flow.end_ns - offset_ns for flow in event.outcome.flows if flow.end_ns is not None]
        self._end_ns = max([self._end_ns, *ends_ns])
        self._running.discard(host)
        if not self._running:
            self._publish(self._intervals.end(self._end_ns))

    def _publish(self, intervals: Iterable[Interval]) -> None:
        for interval in intervals:
            self._event_log.notify(IntervalEnded(self._label, self._start_at_ns, interval))
