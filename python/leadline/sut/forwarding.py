"""Enables forwarding on the gateways of a trial."""

from __future__ import annotations

from leadline.sut.model import Site

_FORWARDING = {4: "net/ipv4/ip_forward", 6: "net/ipv6/conf/all/forwarding"}


async def forward(site: Site) -> None:
    """Enable forwarding on each host that must forward, in every IP version that the hosts have."""
    for host in site.addressing.forwarding:
        for version in site.addressing.versions:
            await site.hosts[host].set_sysctl(_FORWARDING[version], 1)
