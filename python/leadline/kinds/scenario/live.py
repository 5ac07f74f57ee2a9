"""The requests and transactions of a scenario by name while it runs, from its agents' progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from leadline.analysis.histograms import DamagedHistogram, decode
from leadline.contract.models import LabelProgress, Progress
from leadline.kinds.live_connections import LiveConnections
from leadline.trial.notifications import LiveFigures, LiveLabel

_MOST_LABELS = 40
"""Reading a histogram takes about 0.3 ms: with more names only counts are live."""


class LiveLabels(LiveConnections):
    """Users and connections that exist, and of each name the counts so far, and the rate and latency of its last
    interval."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._last: dict[tuple[str, str, str], tuple[int, LabelProgress, float]] = {}
        self._reported_ns: dict[str, int] = {}
        self._users: dict[str, int] = {}

    def take(self, host: str, event: Progress) -> None:
        """Add a host's interval."""
        super().take(host, event)
        if event.scenario is None:
            return
        self._users[host] = sum(row.users for row in event.scenario.populations)
        length_s = (event.t_ns - self._reported_ns.get(host, event.t_ns - 1_000_000_000)) / 1e9
        self._reported_ns[host] = event.t_ns
        self._last = {key: last for key, last in self._last.items() if key[0] != host}
        for row in event.scenario.labels:
            counts = self._counts.setdefault((row.kind, row.name), [0, 0])
            counts[0] += row.ended
            counts[1] += row.failed
            self._last[host, row.kind, row.name] = (event.t_ns, row, length_s)

    def added_to(self, figures: LiveFigures, left_s: float) -> LiveFigures:
        """The figures with users, transactions and requests."""
        users = sum(self._users.values()) if self._users else None
        return replace(super().added_to(figures, left_s), users=users, labels=tuple(self._rows()))

    def _rows(self) -> Sequence[LiveLabel]:
        """Transactions, then requests, each in the order in which they first ended."""
        found = []
        for (kind, name), (ended, failed) in sorted(self._counts.items(), key=lambda item: item[0][0] == "request"):
            last = [one for key, one in self._last.items() if key[1:] == (kind, name)]
            per_s = sum(row.ended / length_s for _, row, length_s in last if length_s > 0)
            p95_us = max((_p95_us(row) or 0.0 for _, row, _ in last), default=0.0) if self._reads else 0.0
            found.append(LiveLabel(name, kind == "transaction", ended, failed, per_s, p95_us or None))
        return found

    @property
    def _reads(self) -> bool:
        return len(self._last) <= _MOST_LABELS


def _p95_us(row: LabelProgress) -> float | None:
    try:
        return decode(row.latency.model_dump()).percentile_us(95.0)
    except DamagedHistogram:
        return None  # counted when the whole test's histograms are read
