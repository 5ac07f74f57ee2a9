"""The kernel forwards: no tunnel, no process. The baseline that every other system is compared with."""

from __future__ import annotations

import asyncio

from leadline.errors import LeadlineError
from leadline.plan.sut import RouteSut
from leadline.sut.addressing import CLIENT_LAN, SERVER_LAN, addressing_of, gateway_address
from leadline.sut.client_bringup import confirm
from leadline.sut.model import BringUp, ClientState, Site


class Route:
    """Plain routes from the clients to the server's network."""

    kind = "route"

    def __init__(self, parameters: RouteSut) -> None:
        self.parameters = parameters

    async def bring_up(self, site: Site) -> BringUp:
        """Forward on the gateways, route on the clients, and see traffic through."""
        lab, addressing = site.lab, addressing_of(site.lab, site.clients)
        for host in addressing.forwarding:
            lab.forward(host)
        for version in addressing.versions:
            server_lan, client_lan = str(SERVER_LAN[version]), CLIENT_LAN[version]
            for end in addressing.clients:
                lab.add_route(end.host, server_lan, via=addressing.outer[version])
                if end.behind:
                    lab.add_route(end.client, server_lan, via=gateway_address(client_lan))
                    near = lab.hosts[end.host].addresses["wan"][version]
                    lab.add_route(addressing.gateway, str(client_lan), via=near)
        states = await confirm(site, [ClientState(end.client, "connected", None) for end in addressing.clients])
        kernel = site.agents[addressing.gateway].hello.host.kernel
        return BringUp(f"Linux {kernel}", states, dict(site.server_address), ())

    async def failure(self) -> LeadlineError:
        """Wait for ever: there is no process that could end."""
        never: asyncio.Future[LeadlineError] = asyncio.get_running_loop().create_future()
        return await never

    async def take_down(self, site: Site) -> None:
        """Nothing runs; routes and forwarding go with the trial's hosts."""
