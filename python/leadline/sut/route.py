"""The system `route`: the kernel forwards, without tunnel and process. It is the baseline for every other system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from leadline.plan.sut import BaseSut, CpuAttribution
from leadline.sut.system import System

if TYPE_CHECKING:
    from leadline.sut.daemons import Daemons
    from leadline.sut.model import BringUp, Site


class RouteSut(BaseSut):
    """Forwarding by the kernel: the baseline for every other system."""

    kind: Literal["route"] = "route"


class Route(System[RouteSut]):
    """Plain routes from the clients to the server's network. They disappear with the trial's hosts."""

    name = "route"
    title = "the plain route"
    model = RouteSut
    compared_with_route = False
    comes_up_on_given_hosts = True

    def packets(self, parameters: RouteSut, link_mtu_bytes: int) -> tuple[int, int]:
        """Packets pass as they are."""
        return link_mtu_bytes, 0

    def cpu_attribution(self, parameters: RouteSut) -> CpuAttribution:
        """The kernel forwards; no process does."""
        return CpuAttribution.KERNEL

    def bring_up_seconds(self, parameters: RouteSut) -> tuple[float, float]:
        """Most of the time is the traffic that verifies the clients' connections."""
        return 0.3, 0.02

    async def bring_up(self, parameters: RouteSut, site: Site, daemons: Daemons) -> BringUp:
        """Forward on the gateways, add routes on the clients, and verify by traffic."""
        return await route_and_confirm(site)


async def route_and_confirm(site: Site) -> BringUp:
    """Let the kernel forward between the clients and the server's network, and verify by traffic."""
    from leadline.sut.client_bringup import confirm
    from leadline.sut.forwarding import add_plain_routes, forward
    from leadline.sut.model import BringUp, ClientState

    hosts, addressing = site.hosts, site.addressing
    await forward(site)
    await add_plain_routes(site)
    states = await confirm(site, [ClientState(end.client, "connected", None) for end in addressing.clients])
    kernel = hosts[addressing.gateway].facts.kernel
    return BringUp(f"Linux {kernel}", states, dict(site.server_address), ())


SYSTEM = Route()
