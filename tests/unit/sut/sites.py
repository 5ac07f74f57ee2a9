"""A tunnel between hosts that do not exist, with the networks that a lab has, and hosts that are this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from leadline.agents.local_ops import LocalOps
from leadline.lab import topology
from leadline.sut.addressing import Addressing, Network, TunnelClient
from leadline.sut.model import Site

POOL: dict[int, Network] = {network.version: network for network in topology.VPN_POOL}
SERVER_LAN: dict[int, Network] = {network.version: network for network in topology.SERVER_LAN}
CLIENT_LAN: dict[int, Network] = {network.version: network for network in topology.CLIENT_LAN}

OUTER = {4: "10.81.0.1", 6: "fd81::1"}
CLIENTS = tuple(TunnelClient(f"client{number}", f"client{number}", number) for number in (1, 2))
ADDRESSING = Addressing("gateway", OUTER, CLIENTS, ("gateway",), POOL, SERVER_LAN, CLIENT_LAN, 1500)


class FakeHost(LocalOps):
    """A host whose agent is a fake; files and commands are this machine's, changes to its network are noted."""

    def __init__(self, agent: Any, prefix: tuple[str, ...] = ()) -> None:
        super().__init__(agent, "c01/1/setup", prefix)
        self.changes: list[str] = []

    async def add_route(self, destination: str, *, via: str | None = None, dev: str | None = None) -> None:
        self.changes.append(f"route {destination} {via or dev}")

    async def remove_route(self, destination: str) -> None:
        self.changes.append(f"no route {destination}")

    async def set_sysctl(self, name: str, value: int | str) -> None:
        self.changes.append(f"{name}={value}")


def ipv4_alone(addressing: Addressing) -> Addressing:
    """The same without IPv6."""
    four: dict[str, Any] = {
        name: {4: getattr(addressing, name)[4]} for name in ("outer", "pool", "server_lan", "client_lan")
    }
    return replace(addressing, **four)


def site_of(agents: Mapping[str, Any], folder: Path, clients: Sequence[str]) -> Site:
    """A trial on hosts with these agents."""
    return Site(
        hosts={name: FakeHost(agent) for name, agent in agents.items()},
        agents=agents,
        addressing=ADDRESSING,
        folder=folder,
        label="c01/1",
        clients=tuple(clients),
        serve_port=5201,
        server_address={4: "10.82.0.2"},
    )
