"""The clients of a fleet by state while it runs, and the clients that it still waits for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from leadline.contract.models import Progress, TunnelCounts
from leadline.trial.live_metrics import KindFigures
from leadline.trial.notifications import LiveFigures, Waiting


class LiveClients(KindFigures):
    """The clients of all hosts' fleets, as of each host's last report."""

    def __init__(self) -> None:
        self._fleets: dict[str, TunnelCounts] = {}

    def take(self, host: str, event: Progress) -> None:
        """Store a host's counts, if the event has them."""
        if event.standing is not None and isinstance(event.standing.counts, TunnelCounts):
            self._fleets[host] = event.standing.counts

    def added_to(self, figures: LiveFigures, left_s: float) -> LiveFigures:
        """The figures with the number of clients by state; None if no fleet has reported."""
        fleets = self._fleets.values()
        return replace(figures, clients=_by_state(fleets), waiting=_waiting(fleets, left_s)) if fleets else figures


def _by_state(fleets: Collection[TunnelCounts]) -> dict[str, int]:
    return {
        "configured": sum(fleet.configured for fleet in fleets),
        "connecting": sum(fleet.connecting or 0 for fleet in fleets),
        "partial": sum(fleet.partial for fleet in fleets),
        "failed": sum(fleet.failed for fleet in fleets),
    }


def _waiting(fleets: Collection[TunnelCounts], left_s: float) -> Waiting | None:
    """The clients that are still connecting; None if there are none."""
    unanswered = sum(fleet.unanswered or 0 for fleet in fleets)
    trying, resting = sum(fleet.connecting or 0 for fleet in fleets), sum(fleet.resting or 0 for fleet in fleets)
    if trying + resting == 0:
        return None
    return Waiting(unanswered, trying - unanswered, resting, left_s)
