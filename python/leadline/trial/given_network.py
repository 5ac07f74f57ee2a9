"""The addresses of a tunnel between given hosts, from what the plan and the hosts say of their networks. Pure.

Nothing is guessed: where two networks could be meant, the error names the key of the plan that decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_interface, ip_network
from itertools import combinations

from leadline.contract.models import NetworkView
from leadline.errors import LeadlineError
from leadline.plan.host_address import HostAddress
from leadline.plan.hosts import GATEWAYS, Topology
from leadline.sut.addressing import Addressing, Network, TunnelClient
from leadline.sut.forwarding import SERVER

_POOLS: dict[int, tuple[Network, ...]] = {
    4: (
        *(IPv4Network(f"10.{number}.0.0/16") for number in (*range(83, 128), *range(128, 256), *range(83))),
        *(IPv4Network(f"172.{number}.0.0/16") for number in range(16, 32)),
        IPv4Network("192.168.0.0/16"),
        # Networks for tests (RFC 2544) and for carriers (RFC 6598).
        *(IPv4Network(f"198.{number}.0.0/16") for number in (18, 19)),
        *(IPv4Network(f"100.{number}.0.0/16") for number in range(64, 128)),
    ),
    6: tuple(IPv6Network(f"fd{number:02x}::/64") for number in (*range(0x83, 0x100), *range(0x83))),
}
"""Networks for tunnels, in the order of preference; a lab's is the first one."""
_WHOLE_WORLD_BITS = 1
"""Routes to networks of this prefix length or less are default routes."""


@dataclass(frozen=True, slots=True)
class GivenHostView:
    """A given host, as the plan and its agent describe it."""

    address: HostAddress
    network: NetworkView
    machine: str
    """The same text for the same network stack."""
    reached_from: str | None
    """The address that commands it over SSH."""


@dataclass(frozen=True, slots=True)
class _Port:
    """An address of a host's interface."""

    interface: str
    address: str
    network: Network
    mtu: int | None


def given_addressing(topology: Topology, hosts: Mapping[str, GivenHostView], clients: Sequence[str]) -> Addressing:
    """The tunnel's addresses in every IP version of the server's addresses; `clients` are the hosts that are measured.

    Raises:
        LeadlineError: two hosts are one, their networks leave no room for a gateway, or the plan has to say more.
    """
    gateway, near = GATEWAYS[topology][-1], GATEWAYS[topology][0]
    site_to_site = topology == "site-to-site"
    used = {name: hosts[name] for name in (*clients, *GATEWAYS[topology], SERVER)}
    _check_different(used)
    versions: list[int] = [ip_address(address).version for address in hosts[SERVER].address.addresses]
    paths = {version: _path(used, gateway, near if site_to_site else None, clients, version) for version in versions}
    holders = {client: near if site_to_site else client for client in clients}
    return Addressing(
        gateway=gateway,
        outer={version: path.outer.address for version, path in paths.items()},
        clients=tuple(
            TunnelClient(client, holder, number, _outer_of(holder, paths))
            for number, (client, holder) in enumerate(holders.items(), 1)
        ),
        forwarding=GATEWAYS[topology],
        pool={version: _free_pool(used, version) for version in versions},
        server_lan={version: path.lan.network for version, path in paths.items()},
        client_lan={version: path.near.network for version, path in paths.items() if path.near is not None},
        link_mtu_bytes=min((mtu for path in paths.values() for mtu in path.mtus), default=1500),
        wan={version: path.outer.network for version, path in paths.items()},
        client_lan_gateways={version: path.near.address for version, path in paths.items() if path.near is not None},
        return_via={version: path.lan.address for version, path in paths.items()},
        used_interfaces=frozenset(interface.name for host in used.values() for interface in host.network.interfaces),
    )


def _outer_of(host: str, paths: Mapping[int, _Path]) -> dict[int, str]:
    return {version: path.far[host] for version, path in paths.items() if host in path.far}


@dataclass(frozen=True, slots=True)
class _Path:
    """The way from the clients to the server in one IP version."""

    outer: _Port
    """The gateway's, towards the clients."""
    far: Mapping[str, str]
    """The addresses of the hosts at the tunnel's other ends, of those in the gateway's network."""
    lan: _Port
    """The gateway's, towards the server."""
    near: _Port | None
    """The clients' gateway's, towards the client; None without such a gateway."""
    mtus: tuple[int, ...]


def _path(
    hosts: Mapping[str, GivenHostView], gateway: str, near: str | None, clients: Sequence[str], version: int
) -> _Path:
    server = next(one for one in hosts[SERVER].address.addresses if ip_address(one).version == version)
    lan = _towards(hosts, gateway, server)
    others = [near] if near is not None else list(clients)
    outer = _meeting(hosts, gateway, others, version, without=(lan.network,))
    inner = None
    if near is not None:
        inner = _meeting(hosts, near, clients, version, without=(lan.network, outer.network))
    for name in (*clients, *([near] if near is not None else [])):
        for port in _ports(hosts[name], version):
            if port.network.overlaps(lan.network):
                raise LeadlineError(
                    f"{name} is itself in the server's network {lan.network}, by its address {port.address}: its"
                    " packets to the server would go past the gateway",
                    hint="let hosts.server.address be in a network that only the gateway joins to the clients",
                )
    far = {name: end.address for name in others if (end := _port_in(hosts[name], outer.network)) is not None}
    on_path = [port for name in hosts for port in _ports(hosts[name], version)]
    ends = {outer.network, lan.network, *([inner.network] if inner is not None else [])}
    mtus = tuple(port.mtu for port in on_path if port.network in ends and port.mtu is not None)
    return _Path(outer, far, lan, inner, mtus)


def _check_different(hosts: Mapping[str, GivenHostView]) -> None:
    for (one, first), (other, second) in combinations(hosts.items(), 2):
        if first.machine == second.machine:
            raise LeadlineError(
                f"{one} and {other} are the same host, so nothing between them can be a tunnel",
                hint="give each of them a host of its own, or say sut: {kind: given, label: ...}",
            )


def _towards(hosts: Mapping[str, GivenHostView], gateway: str, server: str) -> _Port:
    """The gateway's port in the server's network."""
    own = [port.address for port in _ports(hosts[SERVER], ip_address(server).version)]
    if server not in own:
        raise LeadlineError(
            f"server has no address {server}; its addresses: {', '.join(own) or 'none'}",
            hint="hosts.server.address is its address in the network behind the gateway",
        )
    ports = _ports(hosts[gateway], ip_address(server).version)
    found = [port for port in ports if ip_address(server) in port.network]
    if not found:
        raise LeadlineError(
            f"{gateway} has no address in the network of the server's address {server}; its networks: {_list(ports)}",
            hint=f"hosts.server.address has to be in a network of {gateway}'s",
        )
    return max(found, key=lambda port: port.network.prefixlen)


def _meeting(
    hosts: Mapping[str, GivenHostView], gateway: str, others: Sequence[str], version: int, *, without: Sequence[Network]
) -> _Port:
    """The gateway's port in the one network that it shares with all these others."""
    ports = [port for port in _ports(hosts[gateway], version) if port.network not in without]
    shared = [
        port
        for port in ports
        if _is_meant(hosts[gateway], port, version)
        and all(
            any(
                end.network == port.network and _is_meant(hosts[name], end, version)
                for end in _ports(hosts[name], version)
            )
            for name in others
        )
    ]
    networks = {port.network for port in shared}
    if len(shared) == 1:
        return shared[0]
    named = [port for port in ports if hosts[gateway].address.addresses and _is_meant(hosts[gateway], port, version)]
    if not shared and len(named) == 1:
        # The others reach it through routers, as they reach it without a tunnel.
        return named[0]
    ends, key = f"{gateway} and {_names(others)}", _key_of(gateway)
    if not shared:
        raise LeadlineError(
            f"{ends} have no IPv{version} network in common besides that of the server; {gateway}'s: {_list(ports)}",
            hint=f"add {key} if they reach it through a router, or correct {_key_of(others[0])}",
        )
    if len(networks) > 1:
        found = " and ".join(sorted(map(str, networks)))
        raise LeadlineError(
            f"{ends} share {found}, and the plan does not say which is measured",
            hint=f"add {key}, {gateway}'s address in that network",
        )
    found = " and ".join(sorted(port.address for port in shared))
    raise LeadlineError(f"{gateway} has {found} in the network of {_names(others)}", hint=f"add {key}, one of them")


def _is_meant(host: GivenHostView, port: _Port, version: int) -> bool:
    """Whether the plan names this address of the host, or none of this version."""
    named = [ip_address(text) for text in host.address.addresses if ip_address(text).version == version]
    return not named or ip_address(port.address) in named


def _port_in(host: GivenHostView, network: Network) -> _Port | None:
    """The host's port in a network, that of the plan's address first."""
    ports = [port for port in _ports(host, network.version) if port.network == network]
    return min(ports, key=lambda port: not _is_meant(host, port, network.version), default=None)


def _ports(host: GivenHostView, version: int) -> list[_Port]:
    """The host's addresses that other hosts may use, of interfaces that are up."""
    found = []
    for interface in host.network.interfaces:
        for text in interface.addresses if interface.up else ():
            one = ip_interface(text)
            usable = not (one.is_loopback or one.is_link_local) and one.network.prefixlen < one.max_prefixlen
            if one.version == version and usable:
                found.append(_Port(interface.name, str(one.ip), one.network, interface.mtu))
    return found


def _free_pool(hosts: Mapping[str, GivenHostView], version: int) -> Network:
    """The first pool that overlaps with no network that a host is in, or has a route to, or is commanded from."""
    taken = [network for host in hosts.values() for network in _known_networks(host) if network.version == version]
    for pool in _POOLS[version]:
        if not any(pool.overlaps(network) for network in taken):
            return pool
    raise LeadlineError(
        f"every private IPv{version} network is in use on the given hosts, so there is none for the tunnel",
        hint="remove routes to whole ranges such as 10.0.0.0/8 on them",
    )


def _known_networks(host: GivenHostView) -> Iterator[Network]:
    for interface in host.network.interfaces:
        for text in interface.addresses:
            yield ip_interface(text).network
    for route in host.network.routes:
        network = ip_network(route.destination, strict=False)
        if network.prefixlen > _WHOLE_WORLD_BITS:
            yield network
    if host.reached_from is not None:
        yield ip_network(host.reached_from.partition("%")[0])


def _list(ports: Iterable[_Port]) -> str:
    return ", ".join(f"{port.network} ({port.interface})" for port in ports) or "none"


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _key_of(name: str) -> str:
    """The key of the plan that has a host's address."""
    return "hosts.clients[].address" if name.startswith("client") else f"hosts.{name}.address"
