"""The addresses of a tunnel in a trial's topology: its ends, the networks behind them, its pool. Pure.

`trial` makes it from the hosts of the trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from itertools import count

from leadline.errors import EnvironmentLimit

Network = IPv4Network | IPv6Network

GATEWAY_NUMBER = 1
"""The gateway of a network has its first address, in the lab and in the tunnels."""
_FIRST_CLIENT: dict[int, int] = {4: 0x100, 6: 0x10000}
"""First address of fixed tunnel clients, as on the WAN: 10.83.1.0 and fd83::1:0."""


@dataclass(frozen=True, slots=True)
class TunnelClient:
    """One client's end of the tunnel."""

    client: str
    """The host that generates load."""
    host: str
    """The host at the tunnel's end: the client itself, or its site's gateway."""
    number: int
    """From 1."""
    outer: Mapping[int, str] = field(default_factory=dict)
    """WAN address of the host at the tunnel's end, by IP version."""

    @property
    def behind(self) -> bool:
        """Whether there is a network behind this end."""
        return self.client != self.host


@dataclass(frozen=True, slots=True)
class Addressing:
    """The tunnel in this topology. Networks of IP versions that the hosts lack are absent."""

    gateway: str
    """The host at the tunnel's server end, next to the load's server."""
    outer: Mapping[int, str]
    """The gateway's address on the WAN by IP version."""
    clients: tuple[TunnelClient, ...]
    forwarding: tuple[str, ...]
    """The hosts that must forward packets."""
    pool: Mapping[int, Network]
    """Networks in the tunnel."""
    server_lan: Mapping[int, Network]
    """The networks of the load's server."""
    client_lan: Mapping[int, Network]
    """The networks behind the client's end of a site-to-site tunnel."""
    link_mtu_bytes: int
    """The smallest MTU on the path."""
    wan: Mapping[int, Network] = field(default_factory=dict)
    """The network of the gateway's WAN address, on given hosts."""
    client_lan_gateways: Mapping[int, str] = field(default_factory=dict)
    """The address of the clients' gateway in their network, where it is not the network's first one."""
    return_via: Mapping[int, str] = field(default_factory=dict)
    """The gateway's address in the server's network, where the server may reach the clients otherwise. A lab's server
    has no other way."""
    used_interfaces: frozenset[str] = frozenset()
    """Names of interfaces that the hosts have already."""

    @property
    def versions(self) -> tuple[int, ...]:
        """The IP versions that the hosts have; a kernel may lack IPv6."""
        return tuple(sorted(self.outer))

    @property
    def site_to_site(self) -> bool:
        """Whether the tunnel joins two networks."""
        return any(client.behind for client in self.clients)

    def client_gateway(self, version: int) -> str:
        """The address of the clients' gateway in the network behind the client's end."""
        return self.client_lan_gateways.get(version) or gateway_address(self.client_lan[version])

    def free_interface(self, prefix: str) -> str:
        """The name for a tunnel's interfaces: `prefix` with the first number that no host uses."""
        return next(name for number in count() if (name := f"{prefix}{number}") not in self.used_interfaces)

    def client_address(self, client: TunnelClient, version: int) -> str:
        """A client's address in the pool, for tunnels with fixed addresses."""
        return self.numbered_address(client.number, version)

    def numbered_address(self, number: int, version: int) -> str:
        """The address in the pool of the client with this number, from 1."""
        return str(self.pool[version][_FIRST_CLIENT[version] + number])


def outer_address(addressing: Addressing, version: int) -> str:
    """The gateway's WAN address of this version.

    Raises:
        EnvironmentLimit: the hosts have none.
    """
    if version not in addressing.outer:
        raise EnvironmentLimit(
            f"the hosts have no IPv{version}", hint="carry the tunnel over the other version (sut.ip)"
        )
    return addressing.outer[version]


def gateway_address(network: Network) -> str:
    """The address of a network's gateway."""
    return str(network[GATEWAY_NUMBER])
