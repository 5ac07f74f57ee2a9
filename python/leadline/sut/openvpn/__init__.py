"""The system `openvpn`: the real OpenVPN daemon at both ends, or another OpenVPN-compatible client, or a fleet.

`parameters` is its model; `bring_up` owns the order of steps, `config` writes the files, `program` queries the
program, `log` reads the logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.plan.need import Need
from leadline.sut.openvpn.parameters import OpenvpnSut
from leadline.sut.system import System, tun_device

if TYPE_CHECKING:
    from leadline.sut.daemons import Daemons
    from leadline.sut.model import BringUp, Site


class Openvpn(System[OpenvpnSut]):
    """OpenVPN between the clients and the gateway. Its routes disappear with its interfaces."""

    name = "openvpn"
    title = "OpenVPN"
    model = OpenvpnSut
    carries_fleets = True

    def needs(self, parameters: OpenvpnSut, *, fleet: bool) -> list[Need]:
        """The server's program, the clients' program if it is another one, and a TUN device."""
        needs = [Need("program", parameters.binary, "the system under test is OpenVPN", parameters.optional)]
        if parameters.client is not None and not fleet:
            program = parameters.client.command[0]
            needs.append(Need("program", program, "the measured clients", parameters.optional))
        return [*needs, tun_device(parameters)]

    def bring_up_seconds(self, parameters: OpenvpnSut) -> tuple[float, float]:
        """The server starts first, and each client does a TLS handshake."""
        return 2.0, 0.06

    async def bring_up(self, parameters: OpenvpnSut, site: Site, daemons: Daemons) -> BringUp:
        """Make the keys, start the server, then all clients at the same time."""
        from leadline.sut.openvpn.bring_up import bring_up

        return await bring_up(parameters, site, daemons)


SYSTEM = Openvpn()
