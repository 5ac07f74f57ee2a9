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
    connects_hosts = True
    comes_up_on_given_hosts = True

    def packets(self, parameters: OpenvpnSut, link_mtu_bytes: int) -> tuple[int, int] | None:
        """What its data channel adds with an AEAD cipher; other ciphers pad, which depends on each packet's size."""
        overhead_bytes = overhead(parameters)
        if overhead_bytes is None:
            return None
        return min(
            parameters.tun_mtu or _TUN_MTU_BYTES, link_mtu_bytes - overhead_bytes - _MSSFIX_SPARE_BYTES
        ), overhead_bytes

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


def overhead(parameters: OpenvpnSut) -> int | None:
    """Bytes that the tunnel adds to each IP packet of the load; None for ciphers that pad."""
    if not parameters.cipher.upper().endswith(_AEAD):
        return None
    transport = _TCP_BYTES if parameters.transport == "tcp" else _UDP_BYTES
    framing = 1 if parameters.compression in ("stub", "lzo", "lz4") else 0
    return _IP_BYTES[parameters.ip] + transport + _DATA_BYTES + framing


_AEAD = ("-GCM", "-POLY1305")
_IP_BYTES = {4: 20, 6: 40}
_UDP_BYTES = 8
_TCP_BYTES = 32 + 2
"""Header with timestamps, and the length before each packet of the tunnel."""
_DATA_BYTES = 4 + 4 + 16
"""Opcode with peer id, packet number, and tag of an AEAD cipher (data format P_DATA_V2)."""
_TUN_MTU_BYTES = 1500
_MSSFIX_SPARE_BYTES = 8
"""mssfix is 1492 by default: TCP's packets leave room for PPPoE."""

SYSTEM = Openvpn()
