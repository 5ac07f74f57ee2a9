"""Where a tunnel lies in each topology: who holds its ends, which networks are behind them, which addresses it has.

Pure: it reads the names of the lab's hosts and its addressing plan, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

from leadline.errors import EnvironmentLimit
from leadline.lab import topology
from leadline.lab.hosts import Lab

Network = IPv4Network | IPv6Network

POOL: dict[int, Network] = {network.version: network for network in topology.VPN_POOL}
SERVER_LAN: dict[int, Network] = {network.version: network for network in topology.SERVER_LAN}
CLIENT_LAN: dict[int, Network] = {network.version: network for network in topology.CLIENT_LAN}
_FIRST_CLIENT: dict[int, int] = {4: 0x100, 6: 0x10000}
"""Addresses of fixed tunnel clients are counted from here, as on the WAN: 10.83.1.0 and fd83::1:0."""


@dataclass(frozen=True, slots=True)
class TunnelClient:
    """One client's end of the tunnel."""

    client: str
    """The host that sends the load."""
    host: str
    """The host that holds the tunnel's end: the client itself, or its site's gateway."""
    number: int
    """From 1."""

    @property
    def behind(self) -> bool:
        """Whether a network of its own lies behind this end."""
        return self.client != self.host

    def address(self, version: int) -> str:
        """Its address in the pool where the tunnel's kind has fixed ones."""
        return str(POOL[version][_FIRST_CLIENT[version] + self.number])


@dataclass(frozen=True, slots=True)
class Addressing:
    """The tunnel in this topology."""

    gateway: str
    """The host that holds the tunnel's server end, next to the load's server."""
    outer: Mapping[int, str]
    """The gateway's address on the WAN by IP version."""
    clients: tuple[TunnelClient, ...]
    forwarding: tuple[str, ...]
    """The hosts that have to forward."""
    versions: tuple[int, ...]
    """The IP versions that the lab's hosts have; a kernel may lack IPv6."""

    @property
    def site_to_site(self) -> bool:
        """Whether the tunnel joins two networks."""
        return any(client.behind for client in self.clients)

    def of(self, networks: Mapping[int, Network]) -> tuple[Network, ...]:
        """The networks of the versions that are there."""
        return tuple(networks[version] for version in self.versions)


def addressing_of(lab: Lab, clients: Sequence[str]) -> Addressing:
    """Read the topology from the lab's layout."""
    site_to_site = lab.layout.topology == "site-to-site"
    gateway = "gateway-b" if site_to_site else "gateway"
    ends = tuple(
        TunnelClient(client, "gateway-a" if site_to_site else client, number)
        for number, client in enumerate(clients[:1] if site_to_site else clients, 1)
    )
    forwarding = ("gateway-a", gateway) if site_to_site else (gateway,)
    outer = lab.hosts[gateway].addresses["wan"]
    return Addressing(gateway, outer, ends, forwarding, tuple(sorted(outer)))


def outer_address(addressing: Addressing, version: int) -> str:
    """The gateway's WAN address of this version.

    Raises:
        EnvironmentLimit: the lab's hosts have none.
    """
    if version not in addressing.outer:
        raise EnvironmentLimit(
            f"the hosts have no IPv{version}", hint="carry the tunnel over the other version (sut.ip)"
        )
    return addressing.outer[version]


def gateway_address(network: Network) -> str:
    """The first address of a network: the lab gives it to the network's gateway, and so do the tunnels."""
    return str(network[topology.GATEWAY_ON_LAN])
