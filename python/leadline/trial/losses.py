"""Client hosts that a trial goes on without: each loss is recorded once, with its reason, and told at once.

A plan says which share of the clients may be lost (`tolerate`); the gateways and the server are never left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from leadline.errors import AgentLost, LeadlineError
from leadline.trial.event_log import EventLog
from leadline.trial.notifications import HostLost


@dataclass(slots=True)
class HostLosses:
    """The hosts that a trial has lost."""

    clients: Sequence[str]
    share: float
    """Of the clients that may be lost, 0 to 1; their number is rounded down."""
    trial: str
    event_log: EventLog
    reasons: dict[str, str] = field(default_factory=dict)
    """Why each one was lost, by host."""

    def accept(self, host: str, error: LeadlineError) -> bool:
        """Whether the trial goes on without this host, which fails with the error. May be asked again."""
        if host in self.reasons:
            return True
        if not isinstance(error, AgentLost):
            return False  # a full disk here, for instance
        if host not in self.clients or len(self.reasons) >= int(self.share * len(self.clients) + 1e-9):
            return False
        self.reasons[host] = str(error)
        self.event_log.record("host-lost", trial=self.trial, host=host, reason=str(error), clients=len(self.clients))
        self.event_log.notify(HostLost(host, str(error)))
        return True
