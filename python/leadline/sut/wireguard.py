"""The system `wireguard`: `leadline-agent wireguard` at both ends, one process per peer, nothing to install.

WireGuard has no session before its first packet. A client's time is therefore the time until its process is ready;
the handshake is part of the probe that follows. A fleet's clients have no process: the agent that measures runs them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from leadline.plan.field_types import IpVersion
from leadline.plan.need import Need
from leadline.plan.sut import BaseSut
from leadline.sut.addressing import Addressing, TunnelClient, gateway_address, outer_address
from leadline.sut.system import System, tun_device

if TYPE_CHECKING:
    from leadline.sut.client_bringup import ClientPlan
    from leadline.sut.daemons import Daemon, Daemons
    from leadline.sut.model import BringUp, FleetAccess, Site

INTERFACE = "wg0"
PORT = 51820
READY = "ready"
GATEWAY_NAME, CLIENT_NAME = "wireguard-gateway", "wireguard-client"
_READY_WITHIN_S = 10.0
_OVERHEAD_BYTES = {4: 60, 6: 80}
"""Outer IP header, UDP header, WireGuard's own 16 bytes and its 16-byte tag (whitepaper, 5.4.6)."""

_LEAST_MTU_BYTES = 1280
"""RFC 8200, section 5: IPv6 needs this MTU. On a narrower link the outer packets are fragmented."""


class WireguardSut(BaseSut):
    """Embedded WireGuard; no installation needed."""

    kind: Literal["wireguard"] = "wireguard"
    ip: IpVersion = 4
    """IP version of the tunnel's transport."""

    @property
    def uses_ipv6(self) -> bool:
        """Whether the tunnel's transport uses IPv6."""
        return self.ip == 6


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A key pair in base64, as WireGuard writes it."""

    private: str
    public: str

    @classmethod
    def generate(cls) -> KeyPair:
        """A new pair."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        key = X25519PrivateKey.generate()
        raw = serialization.Encoding.Raw
        private = key.private_bytes(raw, serialization.PrivateFormat.Raw, serialization.NoEncryption())
        public = key.public_key().public_bytes(raw, serialization.PublicFormat.Raw)
        return cls(base64.b64encode(private).decode(), base64.b64encode(public).decode())


class Wireguard(System[WireguardSut]):
    """WireGuard between the clients and the gateway. Its routes disappear with its interfaces."""

    name = "wireguard"
    title = "WireGuard"
    model = WireguardSut
    carries_fleets = True

    def packets(self, parameters: WireguardSut, link_mtu_bytes: int) -> tuple[int, int]:
        """Each packet goes into one datagram of its own."""
        overhead_bytes = _OVERHEAD_BYTES[parameters.ip]
        return max(_LEAST_MTU_BYTES, link_mtu_bytes - overhead_bytes), overhead_bytes

    def needs(self, parameters: WireguardSut, *, fleet: bool) -> list[Need]:
        """A TUN device for each end that is a process; the clients of a fleet have none."""
        return [tun_device(parameters)]

    def bring_up_seconds(self, parameters: WireguardSut) -> tuple[float, float]:
        """The gateway's process starts first."""
        return 1.0, 0.05

    async def bring_up(self, parameters: WireguardSut, site: Site, daemons: Daemons) -> BringUp:
        """Start the gateway's end, then all clients' ends at the same time."""
        from leadline.sut.client_bringup import ClientPlan, Hooks, connect, unless_dead
        from leadline.sut.expectation import Expectation
        from leadline.sut.forwarding import forward
        from leadline.sut.model import BringUp

        addressing = site.addressing
        await forward(site)
        own, keys = KeyPair.generate(), [KeyPair.generate() for _ in range(site.fleet or len(addressing.clients))]
        outer = outer_address(addressing, parameters.ip)
        mtu_bytes = max(_LEAST_MTU_BYTES, addressing.link_mtu_bytes - _OVERHEAD_BYTES[parameters.ip])

        config = gateway_config(addressing, own, [pair.public for pair in keys], outer, mtu_bytes)
        gateway = await _daemon(site, addressing.gateway, GATEWAY_NAME, config)
        await daemons.start(gateway)
        await daemons.wait_for_output(gateway, READY, _READY_WITHIN_S)
        version = f"leadline-agent {site.hosts[addressing.gateway].agent_version} (boringtun)"
        if site.fleet is not None:
            # The tests measure whether its clients can connect; no process is started for them.
            access = fleet_access(addressing, own.public, keys, outer=outer, mtu_bytes=mtu_bytes)
            return BringUp(version, [], dict(site.server_address), (GATEWAY_NAME,), access)
        if addressing.site_to_site:
            for network in addressing.client_lan.values():
                await site.hosts[addressing.gateway].add_route(str(network), dev=INTERFACE)
        expected = Expectation(INTERFACE, addressing.pool, tuple(addressing.server_lan.values()))
        plans = [
            ClientPlan(end.client, await _daemon(site, end.host, CLIENT_NAME, config), READY, expected)
            for end, pair in zip(addressing.clients, keys, strict=True)
            for config in [client_config(addressing, end, pair, own, outer=outer, mtu_bytes=mtu_bytes)]
        ]
        hooks = Hooks(configure=lambda plan: _add_routes(site, plan))
        states = await unless_dead(daemons, gateway, connect(site, daemons, plans, hooks))
        return BringUp(version, states, dict(site.server_address), (GATEWAY_NAME, CLIENT_NAME))


def gateway_config(
    addressing: Addressing, own: KeyPair, clients: Sequence[str], outer: str, mtu_bytes: int
) -> dict[str, object]:
    """The gateway's end: one peer per client's public key, which may send from its own address and the network behind
    it."""
    behind = [str(network) for network in addressing.client_lan.values()] if addressing.site_to_site else []
    peers = [
        {
            "public_key": public,
            "endpoint": None,
            "allowed_ips": [
                *(
                    f"{addressing.numbered_address(number, version)}/{pool.max_prefixlen}"
                    for version, pool in addressing.pool.items()
                ),
                *behind,
            ],
            "keepalive_s": None,
        }
        for number, public in enumerate(clients, 1)
    ]
    return {
        "interface": INTERFACE,
        "mtu": mtu_bytes,
        "private_key": own.private,
        "listen_port": PORT,
        "listen_address": outer,
        "addresses": [f"{gateway_address(pool)}/{pool.prefixlen}" for pool in addressing.pool.values()],
        "peers": peers,
    }


def client_config(
    addressing: Addressing, end: TunnelClient, own: KeyPair, gateway: KeyPair, *, outer: str, mtu_bytes: int
) -> dict[str, object]:
    """A client's end: traffic for the pool and the server's network goes to the gateway."""
    return {
        "interface": INTERFACE,
        "mtu": mtu_bytes,
        "private_key": own.private,
        "listen_port": None,
        "listen_address": "::" if ":" in outer else "0.0.0.0",
        "addresses": [
            f"{addressing.client_address(end, version)}/{pool.prefixlen}" for version, pool in addressing.pool.items()
        ],
        "peers": [
            {
                "public_key": gateway.public,
                "endpoint": f"[{outer}]:{PORT}" if ":" in outer else f"{outer}:{PORT}",
                "allowed_ips": [
                    str(network) for network in (*addressing.pool.values(), *addressing.server_lan.values())
                ],
                "keepalive_s": None,
            }
        ],
    }


def fleet_access(
    addressing: Addressing, gateway: str, keys: Sequence[KeyPair], *, outer: str, mtu_bytes: int
) -> FleetAccess:
    """A file for each client of a fleet, as `wg-quick` reads it, with what it leads to. `gateway` is its public key."""
    from leadline.sut.model import FleetAccess

    lan = tuple(str(network) for network in addressing.server_lan.values())
    allowed = ", ".join((*(str(pool) for pool in addressing.pool.values()), *lan))
    endpoint = f"[{outer}]:{PORT}" if ":" in outer else f"{outer}:{PORT}"
    peer = f"[Peer]\nPublicKey = {gateway}\nEndpoint = {endpoint}\nAllowedIPs = {allowed}\n"
    files = []
    for number, pair in enumerate(keys, 1):
        own = (
            f"{addressing.numbered_address(number, version)}/{pool.prefixlen}"
            for version, pool in addressing.pool.items()
        )
        files.append(f"[Interface]\nPrivateKey = {pair.private}\nAddress = {', '.join(own)}\nMTU = {mtu_bytes}\n{peer}")
    return FleetAccess(
        client_files=tuple(files), pools=tuple(str(pool) for pool in addressing.pool.values()), routes=lan
    )


async def _daemon(site: Site, host: str, name: str, config: dict[str, object]) -> Daemon:
    from leadline.sut.daemons import Daemon

    ops = site.hosts[host]
    file = await ops.write_file(site.files("wireguard") / f"{host}.json", json.dumps(config, indent=1))
    argv = (await ops.agent_program(), "wireguard", str(file))
    return Daemon(name, argv, site.log_file("wireguard", host), (READY,), host)


async def _add_routes(site: Site, plan: ClientPlan) -> None:
    addressing = site.addressing
    for version, network in addressing.server_lan.items():
        await site.hosts[plan.daemon.host].add_route(str(network), dev=INTERFACE)
        if plan.daemon.host != plan.client:
            near = gateway_address(addressing.client_lan[version])
            await site.hosts[plan.client].add_route(str(network), via=near)


SYSTEM = Wireguard()
