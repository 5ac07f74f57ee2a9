"""The system `strongswan`: the daemon charon at both ends, with ESP in the kernel or in user space.

`parameters` is its model; `bring_up` owns the order of steps, `config` writes the files, `log` reads charon's log,
`data_plane` chooses what carries the packets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from leadline.plan.need import STRONGSWAN_INSTALL, Need
from leadline.plan.sut import CpuAttribution
from leadline.sut.strongswan.parameters import StrongswanSut
from leadline.sut.system import System, tun_device

if TYPE_CHECKING:
    from leadline.sut.daemons import Daemons
    from leadline.sut.model import BringUp, Site


class Strongswan(System[StrongswanSut]):
    """IPsec between the clients and the gateway, or between two gateways. Its routes, policies and states disappear
    with the trial's hosts."""

    name = "strongswan"
    # What it is called depends on the data plane, which is known when it is up.
    title = ""
    model = StrongswanSut
    carries_fleets = True
    connects_hosts = True

    def cpu_attribution(self, parameters: StrongswanSut) -> CpuAttribution:
        """The CPU time of charon, unless the kernel encrypts; with `auto` the bring-up tells."""
        return CpuAttribution.KERNEL if parameters.data_plane == "kernel" else CpuAttribution.PROCESS

    def packets(self, parameters: StrongswanSut, link_mtu_bytes: int) -> tuple[int, int] | None:
        """What ESP adds with a single AEAD cipher on a data plane that the plan names; others are not known
        beforehand. To packets of other lengths than the largest it adds up to 3 bytes more or less of padding."""
        if parameters.data_plane == "auto" or not _AEAD.fullmatch(parameters.esp) or parameters.compression:
            return None
        # kernel-libipsec always encapsulates ESP in UDP.
        is_user_space = parameters.data_plane == "libipsec"
        fixed_bytes = _IP_BYTES[parameters.ip] + (_UDP_BYTES if is_user_space else 0) + _ESP_BYTES
        room_bytes = (link_mtu_bytes - fixed_bytes) // _ALIGNMENT_BYTES * _ALIGNMENT_BYTES - _TRAILER_BYTES
        largest_bytes = min(_TUN_MTU_BYTES, room_bytes) if is_user_space else room_bytes
        padding_bytes = -(largest_bytes + _TRAILER_BYTES) % _ALIGNMENT_BYTES
        return largest_bytes, fixed_bytes + padding_bytes + _TRAILER_BYTES

    def fleet_conflicts(self, parameters: StrongswanSut) -> Iterator[tuple[str, str, str | None]]:
        """Each client would need a certificate of its own."""
        if parameters.method not in ("psk", "eap-mschapv2"):
            yield (
                "method",
                f"a fleet's clients do not prove themselves by {parameters.method}",
                "use psk or eap-mschapv2",
            )

    def needs(self, parameters: StrongswanSut, *, fleet: bool) -> list[Need]:
        """The daemon, the program that configures it, and a TUN device for ESP in user space."""
        why = "the system under test is strongSwan"
        needs = [
            Need("program", program, why, parameters.optional, STRONGSWAN_INSTALL)
            for program in (parameters.binary, parameters.swanctl)
        ]
        if parameters.data_plane == "kernel":
            from leadline.agents.kernel_support import ESP, need_of

            return [*needs, need_of(ESP, parameters)]
        return [*needs, tun_device(parameters)]

    def bring_up_seconds(self, parameters: StrongswanSut) -> tuple[float, float]:
        """The gateway starts first; each client is a daemon of its own."""
        return 2.0, 0.1

    async def bring_up(self, parameters: StrongswanSut, site: Site, daemons: Daemons) -> BringUp:
        """Make the keys, start the gateway's daemon, then all clients' at the same time."""
        from leadline.sut.strongswan.bring_up import bring_up

        return await bring_up(parameters, site, daemons)


_AEAD = re.compile(r"(aes(128|192|256)gcm16|chacha20poly1305)")
_IP_BYTES = {4: 20, 6: 40}
_UDP_BYTES = 8
_ESP_BYTES = 8 + 8 + 16
"""SPI and sequence number, IV, and tag (RFC 4106, RFC 7634)."""
_TRAILER_BYTES, _ALIGNMENT_BYTES = 2, 4
"""Length of the padding and next header end at a multiple of 4 bytes (RFC 4303, 2.4)."""
_TUN_MTU_BYTES = 1400
"""Of kernel-libipsec's device."""

SYSTEM = Strongswan()
