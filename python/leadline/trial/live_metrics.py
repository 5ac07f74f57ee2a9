"""Computes live figures of a running load from its events: rates since the previous figures, latencies of the last
second, errors, connections, and the generator's state. Sends them as notifications; measures and stores nothing.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Protocol

from leadline.agents import Event
from leadline.analysis.durations import Sample
from leadline.analysis.histograms import DamagedHistogram, Histogram, decode, merge
from leadline.analysis.metrics import CENSORED
from leadline.contract.models import FlowProgress, Progress, Standing
from leadline.trial.event_log import EventLog
from leadline.trial.notifications import LiveFigures

_PERIOD_S = 0.5
_SHOWN = ("latency", f"latency{CENSORED}", "late")
# Threads report their histograms once a second, each at its own time.
_RECENT_NS = 1_100_000_000
# Reading a histogram takes about 0.3 ms. With more hosts than this, only rates are live.
_MOST_HOSTS_READ = 4
# A share over a shorter time shows the start of a thread rather than its load.
_SHORTEST_ACCOUNT_S = 0.1


class KindFigures:
    """The live figures that only loads of one kind have. This is a kind without any; others override it."""

    def take(self, host: str, event: Progress) -> None:
        """Process a host's progress event."""

    def added_to(self, figures: LiveFigures, left_s: float) -> LiveFigures:
        """The figures with those of the kind; `left_s` is the time until the load ends at the latest."""
        return figures


class LiveKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    def live_figures(self) -> KindFigures:
        """New figures for one load."""


class LiveMetrics:
    """The live figures of all clients of one load."""

    def __init__(
        self, label: str, kind: LiveKind, start_at_ns: int, *, hosts: int, event_log: EventLog, longest_s: float
    ) -> None:
        self._label = label
        self._start_at_ns = start_at_ns
        self._reads_histograms = hosts <= _MOST_HOSTS_READ
        self._event_log = event_log
        self._longest_s = longest_s
        self._latest: dict[tuple[str, str, int, str], FlowProgress] = {}
        # By host (each has its own clock) and metric.
        self._recent: dict[tuple[str, str], deque[tuple[int, Histogram]]] = {}
        self._standings: dict[str, Standing] = {}
        self._threads = BusyThreads()
        self._of_kind = kind.live_figures()
        self._sent_s = 0.0
        self._before: tuple[int, int] = (0, 0)

    def on_event(self, host: str, event: Event) -> None:
        """Process a progress event; sends the figures twice a second."""
        if not isinstance(event, Progress) or event.trial != self._label:
            return
        for flow in event.flows:
            self._latest[host, event.task, flow.flow, event.side] = flow
        if self._reads_histograms:
            self._read(host, event)
        self._of_kind.take(host, event)
        if event.standing is not None:
            self._standings[host] = event.standing
            self._threads.take(host, event.standing)
        elapsed_s = (time.monotonic_ns() - self._start_at_ns) / 1e9
        since_s = elapsed_s - self._sent_s
        if since_s >= _PERIOD_S:
            self._publish(elapsed_s, since_s)

    def _read(self, host: str, event: Progress) -> None:
        """Store the histograms of an event, and drop those that are too old at its time."""
        for report in event.histograms:
            if report.metric not in _SHOWN:
                continue
            try:
                made = decode(report.model_dump())
            except DamagedHistogram:
                continue  # counted when the whole test's histograms are read
            self._recent.setdefault((host, report.metric), deque()).append((event.t_ns, made))
        for metric in _SHOWN:
            kept = self._recent.get((host, metric))
            while kept and kept[0][0] < event.t_ns - _RECENT_NS:
                kept.popleft()

    def _merged(self, metric: str) -> Histogram:
        """The histogram of the last second, over all hosts."""
        return merge(one for (_, name), kept in self._recent.items() if name == metric for _, one in kept)

    def _publish(self, elapsed_s: float, since_s: float) -> None:
        # A flow's bytes are received on one side only; answers to requests on the client's side.
        totals = [0, 0]
        for key in {key[:3] for key in self._latest}:
            sides = [row for side in ("local", "peer") if (row := self._latest.get((*key, side))) is not None]
            totals[0] += max(row.received_bytes for row in sides)
            totals[1] += max(row.received_units or 0 for row in sides)
        bits = (totals[0] - self._before[0]) * 8 / since_s
        units = (totals[1] - self._before[1]) / since_s
        self._before, self._sent_s = (totals[0], totals[1]), elapsed_s
        completed, ages, late = (self._merged(metric) for metric in _SHOWN)
        latency = Sample(completed, ages)
        p50, p99 = latency.percentile(50.0), latency.percentile(99.0)
        standings = list(self._standings.values())
        figures = LiveFigures(
            label=self._label,
            elapsed_s=elapsed_s,
            bits_per_s=bits,
            units_per_s=units if totals[1] else None,
            latency_p50_us=p50.value_us,
            latency_p50_censored=p50.is_bound,
            latency_p99_us=p99.value_us,
            latency_p99_censored=p99.is_bound,
            late_p99_us=late.percentile_us(99.0),
            errors=sum(sum(now.errors.values()) for now in standings) if standings else None,
            retransmits=sum(retransmits) if (retransmits := self._known("retransmits")) else None,
            rtt_us=sum(times_us) / len(times_us) if (times_us := self._known("rtt_us")) else None,
            lost_ratio=self._lost_ratio(),
            busiest_thread=self._threads.busiest(),
        )
        self._event_log.notify(self._of_kind.added_to(figures, max(0.0, self._longest_s - elapsed_s)))

    def _known(self, name: str) -> list[int]:
        """The values of a counter, from the flows' sides that report it."""
        found = (getattr(row, name) for row in self._latest.values())
        return [value for value in found if value is not None]

    def _lost_ratio(self) -> float | None:
        rows = [row for row in self._latest.values() if row.missing_units is not None]
        missing = sum(row.missing_units or 0 for row in rows)
        due = missing + sum(row.received_units or 0 for row in rows)
        return missing / due if due else None


class BusyThreads:
    """The busy share of each generating thread between its last two reports, which each thread sends at its own
    time."""

    def __init__(self) -> None:
        self._accounts: dict[tuple[str, str], tuple[float, float]] = {}
        self._shares: dict[tuple[str, str], float] = {}

    def take(self, host: str, standing: Standing) -> None:
        """Store the CPU time of a host's threads so far."""
        for thread in standing.threads:
            key = (host, thread.name)
            used_s, wall_s = self._accounts.get(key, (0.0, 0.0))
            now_s = thread.user_s + thread.system_s - (thread.spun_s or 0.0)
            if thread.wall_s - wall_s >= _SHORTEST_ACCOUNT_S:
                self._shares[key] = max(0.0, now_s - used_s) / (thread.wall_s - wall_s)
                self._accounts[key] = (now_s, thread.wall_s)

    def busiest(self) -> float | None:
        """The busy share of the busiest thread; None if no thread has reported."""
        return max(self._shares.values(), default=None)
