"""Forwarding on the gateways of a trial, and the plain routes between its clients and its server."""

from __future__ import annotations

from leadline.sut.addressing import gateway_address
from leadline.sut.model import Site

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
        server_lan, client_lan = str(addressing.server_lan[version]), addressing.client_lan[version]
        for end in addressing.clients:
            await hosts[end.host].add_route(server_lan, via=addressing.outer[version])
            if end.behind:
                await hosts[end.client].add_route(server_lan, via=gateway_address(client_lan))
                await hosts[addressing.gateway].add_route(str(client_lan), via=end.outer[version])
