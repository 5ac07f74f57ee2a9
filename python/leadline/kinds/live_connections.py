"""The open connections of loads that count as HTTP does, while they run."""

from __future__ import annotations

from dataclasses import replace

from leadline.contract.models import HttpCounts, Progress
from leadline.trial.live_metrics import KindFigures
from leadline.trial.notifications import LiveFigures


class LiveConnections(KindFigures):
    """The number of open connections over all hosts, as of each host's last report."""

    def __init__(self) -> None:
        self._open: dict[str, int | None] = {}

    def take(self, host: str, event: Progress) -> None:
        """Store a host's count, if the event has one."""
        if event.standing is not None and isinstance(event.standing.counts, HttpCounts):
            self._open[host] = event.standing.counts.connections

    def added_to(self, figures: LiveFigures, left_s: float) -> LiveFigures:
        """The figures with the number of connections; None if no host reported one."""
        known = [count for count in self._open.values() if count is not None]
        return replace(figures, connections=sum(known) if known else None)
