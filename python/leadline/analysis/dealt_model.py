"""How a load was dealt to the hosts of its clients. A record only."""

from __future__ import annotations

from dataclasses import dataclass

from leadline import quantities


@dataclass(frozen=True, slots=True)
class DealtLoad:
    """How a load was dealt to the hosts of its clients."""

    clients: int  # The clients that took part.
    hosts: int  # The hosts that carried them.
    is_split: bool  # Whether the test's rate and numbers were those of all clients together.

    @property
    def words(self) -> str:
        """`500 clients on 50 hosts`, `shared by 7 clients`."""
        clients = self.clients_on_hosts or quantities.counted(self.clients, "client")
        return f"{'shared by ' if self.is_split else ''}{clients}"

    @property
    def clients_on_hosts(self) -> str:
        """`500 clients on 50 hosts`; empty if each client is a host."""
        if self.clients == self.hosts:
            return ""
        return f"{quantities.counted(self.clients, 'client')} on {quantities.counted(self.hosts, 'host')}"
