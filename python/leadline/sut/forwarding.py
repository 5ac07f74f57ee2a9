"""Forwarding on the gateways of a trial, the plain routes between its clients and its server, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_network

from leadline.contract.models import NetworkView
from leadline.sut.addressing import Network
from leadline.sut.model import Site

SERVER = "server"
_FORWARDING = {4: "net/ipv4/ip_forward", 6: "net/ipv6/conf/all/forwarding"}


async def forward(site: Site) -> None:
    """Enable forwarding on each host that must forward, in every IP version that the hosts have."""
    for host in site.addressing.forwarding:
        for version in site.addressing.versions:
            await site.hosts[host].set_sysctl(_FORWARDING[version], 1)


async def add_plain_routes(site: Site) -> None:
    """Route between the clients and the server's network over the WAN, without a tunnel's interface."""
    hosts, addressing = site.hosts, site.addressing
    for version in addressing.versions:
        server_lan = str(addressing.server_lan[version])
        for end in addressing.clients:
            await hosts[end.host].add_route(server_lan, via=addressing.outer[version])
            if end.behind:
                client_lan = str(addressing.client_lan[version])
                await hosts[end.client].add_route(server_lan, via=addressing.client_gateway(version))
                await hosts[addressing.gateway].add_route(client_lan, via=end.outer[version])
    await route_back(site, addressing.wan)


async def route_back(site: Site, networks: Mapping[int, Network]) -> None:
    """Let the server answer through the gateway: a route on a given server to the networks that the load comes from, if
    it reaches them otherwise. With a site-to-site topology these are the clients' networks, otherwise `networks`."""
    addressing = site.addressing
    sources = addressing.client_lan if addressing.site_to_site else networks
    for version, via in addressing.return_via.items():
        network = sources[version]
        server = site.hosts[SERVER]
        if not leads(await server.network(), network, via):
            await server.add_route(str(network), via=via)


def leads(view: NetworkView, network: Network, via: str) -> bool:
    """Whether a host sends all packets to a network to the neighbour `via`."""
    routes = [(ip_network(route.destination), route.gateway) for route in view.routes]
    same = [(destination, gateway) for destination, gateway in routes if destination.version == network.version]
    if any(gateway != via for destination, gateway in same if _lies_in(destination, network)):
        return False
    around = [(destination.prefixlen, gateway) for destination, gateway in same if _lies_in(network, destination)]
    longest = max((length for length, _ in around), default=None)
    found = {gateway for length, gateway in around if length == longest}
    return found == {via}


def _lies_in(one: Network, other: Network) -> bool:
    return one.subnet_of(other)  # type: ignore[arg-type]  # both are of one version
