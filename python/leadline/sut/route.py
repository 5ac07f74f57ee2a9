"""The kernel forwards: no tunnel, no process. The baseline that every other system is compared with."""

from __future__ import annotations

import asyncio

from leadline.errors import LeadlineError
from leadline.plan.sut import RouteSut
from leadline.sut.addressing import gateway_address
from leadline.sut.client_bringup import confirm
from leadline.sut.forwarding import forward
from leadline.sut.model import BringUp, ClientState, Site


class Route:
    """Plain routes from the clients to the server's network."""

    kind = "route"

    def __init__(self, parameters: RouteSut) -> None:
        self.parameters = parameters

    async def bring_up(self, site: Site) -> BringUp:
        """Forward on the gateways, route on the clients, and see traffic through."""
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

    async def failure(self) -> LeadlineError:
        """Wait for ever: there is no process that could end."""
        never: asyncio.Future[LeadlineError] = asyncio.get_running_loop().create_future()
        return await never

    async def take_down(self, site: Site) -> None:
        """Nothing runs; routes and forwarding go with the trial's hosts."""
