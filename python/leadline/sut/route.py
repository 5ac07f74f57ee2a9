"""The kernel forwards: no tunnel, no process. The baseline that every other system is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from leadline.plan.sut import BaseSut
from leadline.sut.addressing import gateway_address
from leadline.sut.system import System

if TYPE_CHECKING:
    from leadline.sut.daemons import Daemons
    from leadline.sut.model import BringUp, Site


class RouteSut(BaseSut):
    """The kernel forwards: the baseline that every other system is compared with."""

    kind: Literal["route"] = "route"


class Route(System[RouteSut]):
    """Plain routes from the clients to the server's network. They go with the trial's hosts."""

    name = "route"
    model = RouteSut

    def bring_up_seconds(self, parameters: RouteSut) -> tuple[float, float]:
        """Most of it is the traffic that proves the clients connected."""
        return 0.3, 0.02

    async def bring_up(self, parameters: RouteSut, site: Site, daemons: Daemons) -> BringUp:
        """Forward on the gateways, route on the clients, and see traffic through."""
        return await route_and_confirm(site)


async def route_and_confirm(site: Site) -> BringUp:
    """Have the kernel forward between the clients and the server's network, and see traffic through."""
    from leadline.sut.client_bringup import confirm
    from leadline.sut.forwarding import forward
    from leadline.sut.model import BringUp, ClientState

    hosts, addressing = site.hosts, site.addressing
    await forward(site)
    for version in addressing.versions:
        server_lan, client_lan = str(addressing.server_lan[version]), addressing.client_lan[version]
        for end in addressing.clients:
            await hosts[end.host].add_route(server_lan, via=addressing.outer[version])
            if end.behind:
                await hosts[end.client].add_route(server_lan, via=gateway_address(client_lan))
                await hosts[addressing.gateway].add_route(str(client_lan), via=end.outer[version])
    states = await confirm(site, [ClientState(end.client, "connected", None) for end in addressing.clients])
    kernel = hosts[addressing.gateway].facts.kernel
    return BringUp(f"Linux {kernel}", states, dict(site.server_address), ())


SYSTEM = Route()
