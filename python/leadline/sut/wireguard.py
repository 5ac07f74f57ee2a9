"""The system `wireguard`: `leadline-agent wireguard` at both ends, one process per peer, nothing to install; or
wireguard-go, or the kernel's own, whose interfaces `wireguard_device` sets up.

WireGuard has no session before its first packet. A client's time is therefore the time until its process is ready;
the handshake is part of the probe that follows. A fleet's clients have no process: the agent that measures runs them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from leadline.plan.field_types import IpVersion
from leadline.plan.need import Need
from leadline.plan.sut import BaseSut, CpuAttribution
from leadline.sut.addressing import Addressing, TunnelClient, gateway_address, outer_address
from leadline.sut.system import System, tun_device

if TYPE_CHECKING:
    from pathlib import Path

    from leadline.sut.daemons import Daemon, Daemons
    from leadline.sut.model import BringUp, FleetAccess, Site
    from leadline.sut.wireguard_device import Implementation, Programs

INTERFACE = "wg"
"""Begins the name of its interfaces."""
PORT = 51820
READY = "ready"
GATEWAY_NAME, CLIENT_NAME = "wireguard-gateway", "wireguard-client"
_READY_WITHIN_S = 10.0
_INSTALL = {"wireguard-go": "apt-get install wireguard-go", "wg": "apt-get install wireguard-tools"}
_OVERHEAD_BYTES = {4: 60, 6: 80}
"""Outer IP header, UDP header, WireGuard's own 16 bytes and its 16-byte tag (whitepaper, 5.4.6)."""

_LEAST_MTU_BYTES = 1280
"""RFC 8200, section 5: IPv6 needs this MTU. On a narrower link the outer packets are fragmented."""


class WireguardSut(BaseSut):
    """WireGuard: embedded, which needs no installation, or another implementation."""

    kind: Literal["wireguard"] = "wireguard"
    implementation: Literal["embedded", "wireguard-go", "wireguard-kernel"] = "embedded"
    """What carries the packets at both ends: the agent itself (`embedded`), the program wireguard-go, or the kernel."""
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
    connects_hosts = True
    comes_up_on_given_hosts = True

    def packets(self, parameters: WireguardSut, link_mtu_bytes: int) -> tuple[int, int]:
        """Each packet goes into one datagram of its own."""
        overhead_bytes = _OVERHEAD_BYTES[parameters.ip]
        return max(_LEAST_MTU_BYTES, link_mtu_bytes - overhead_bytes), overhead_bytes

    def cpu_attribution(self, parameters: WireguardSut) -> CpuAttribution:
        """The CPU time of its processes, unless the kernel encrypts."""
        is_kernel = parameters.implementation == "wireguard-kernel"
        return CpuAttribution.KERNEL if is_kernel else CpuAttribution.PROCESS

    def needs(self, parameters: WireguardSut, *, fleet: bool) -> list[Need]:
        """A TUN device for each end that is a process, and the programs of other implementations."""
        match parameters.implementation:
            case "embedded":
                return [tun_device(parameters)]
            case "wireguard-go":
                return [*_programs(parameters, "wireguard-go", "wg"), tun_device(parameters)]
            case "wireguard-kernel":
                from leadline.agents.kernel_support import WIREGUARD, need_of

                return [*_programs(parameters, "wg"), need_of(WIREGUARD, parameters)]

    def bring_up_seconds(self, parameters: WireguardSut) -> tuple[float, float]:
        """The gateway's process starts first."""
        return 1.0, 0.05

    async def bring_up(self, parameters: WireguardSut, site: Site, daemons: Daemons) -> BringUp:
        """Start the gateway's end, then all clients' ends at the same time."""
        from leadline.sut.client_bringup import ClientPlan, Hooks, connect, unless_dead
        from leadline.sut.expectation import Expectation
        from leadline.sut.forwarding import forward, route_back
        from leadline.sut.model import BringUp

        addressing = site.addressing
        programs = await _find_programs(site, parameters.implementation)
        await forward(site)
        await route_back(site, addressing.pool)
        own, keys = KeyPair.generate(), [KeyPair.generate() for _ in range(site.fleet or len(addressing.clients))]
        outer = outer_address(addressing, parameters.ip)
        mtu_bytes = max(_LEAST_MTU_BYTES, addressing.link_mtu_bytes - _OVERHEAD_BYTES[parameters.ip])

        own_config = gateway_config(addressing, own, [pair.public for pair in keys], outer, mtu_bytes)
        configs = (
            {}
            if site.fleet is not None
            else {
                end.host: client_config(addressing, end, pair, own, outer=outer, mtu_bytes=mtu_bytes)
                for end, pair in zip(addressing.clients, keys, strict=True)
            }
        )
        # The tests measure whether a fleet's clients can connect; no process is started for them.
        access = (
            None if site.fleet is None else fleet_access(addressing, own.public, keys, outer=outer, mtu_bytes=mtu_bytes)
        )
        if parameters.implementation == "wireguard-kernel":
            return replace(await _bring_up_in_kernel(site, programs, own_config, configs), fleet=access)
        gateway = await _daemon(site, addressing.gateway, GATEWAY_NAME, own_config, programs)
        await daemons.start(gateway)
        await daemons.wait_for_output(gateway, gateway.report[0], _READY_WITHIN_S, refused=_refused(programs))
        version = f"leadline-agent {site.hosts[addressing.gateway].agent_version} (boringtun)"
        if access is not None:
            up = BringUp(version, [], dict(site.server_address), (GATEWAY_NAME,), access)
            return await _named(up, site, programs, parameters.implementation) if programs else up
        if addressing.site_to_site:
            await _route_client_lan(site)
        interface = addressing.free_interface(INTERFACE)
        expected = Expectation(interface, addressing.pool, tuple(addressing.server_lan.values()))
        plans = []
        for end in addressing.clients:
            daemon = await _daemon(site, end.host, CLIENT_NAME, configs[end.host], programs)
            plans.append(ClientPlan(end.client, daemon, daemon.report[0], expected, refused=_refused(programs)))
        hooks = Hooks(configure=lambda plan: _add_routes(site, plan.client, plan.daemon.host))
        states = await unless_dead(daemons, gateway, connect(site, daemons, plans, hooks))
        up = BringUp(version, states, dict(site.server_address), (GATEWAY_NAME, CLIENT_NAME))
        return await _named(up, site, programs, parameters.implementation) if programs else up


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
        "interface": addressing.free_interface(INTERFACE),
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
        "interface": addressing.free_interface(INTERFACE),
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


def _programs(parameters: WireguardSut, *names: str) -> list[Need]:
    why = f"the implementation is {parameters.implementation}"
    return [Need("program", name, why, parameters.optional, _INSTALL[name]) for name in names]


async def _find_programs(site: Site, implementation: Implementation) -> dict[str, Programs]:
    """The programs of another implementation than the embedded one, by host; empty for the embedded one. Hosts that
    share this machine's files have the same ones.

    Raises:
        MissingBinary: a host lacks one.
        MissingKernelFeature: a host's kernel has no WireGuard.
    """
    from leadline.sut.wireguard_device import find_programs

    if implementation == "embedded":
        return {}
    addressing = site.addressing
    ends = [] if site.fleet is not None else [end.host for end in addressing.clients]
    if not site.shared_files:
        return {host: await find_programs(site.hosts[host], implementation) for host in (addressing.gateway, *ends)}
    return dict.fromkeys(
        (addressing.gateway, *ends), await find_programs(site.hosts[addressing.gateway], implementation)
    )


def _refused(programs: Mapping[str, Programs]) -> str | None:
    from leadline.sut.wireguard_device import FAILED

    return FAILED if programs else None


async def _named(up: BringUp, site: Site, programs: Mapping[str, Programs], implementation: Implementation) -> BringUp:
    """The result under the implementation's own name and version."""
    from leadline.sut import wireguard_device

    gateway = site.addressing.gateway
    version = await wireguard_device.version(site.hosts[gateway], programs[gateway])
    names, titles = wireguard_device.NAMES, wireguard_device.TITLES
    return replace(up, version=version, name=names[implementation], title=titles[implementation])


async def _bring_up_in_kernel(
    site: Site, programs: Mapping[str, Programs], gateway: dict[str, object], clients: dict[str, dict[str, object]]
) -> BringUp:
    """Set up the interfaces of the kernels; there is no process. They disappear with a lab's hosts; given hosts remove
    them."""
    from leadline.sut import wireguard_device
    from leadline.sut.client_bringup import confirm
    from leadline.sut.model import BringUp, ClientState

    addressing = site.addressing
    for host, config in {addressing.gateway: gateway, **clients}.items():
        file = await _write(site, host, wireguard_device.wg_config(config))
        await wireguard_device.set_up_in_kernel(site.hosts[host], programs[host], config, file)
    if addressing.site_to_site:
        await _route_client_lan(site)
    ends = [end for end in addressing.clients if end.host in clients]
    for end in ends:
        await _add_routes(site, end.client, end.host)
    states = await confirm(site, [ClientState(end.client, "connected", None) for end in ends])
    up = BringUp("", states, dict(site.server_address), ())
    return await _named(up, site, programs, "wireguard-kernel")


async def _write(site: Site, host: str, text: str) -> Path:
    return await site.hosts[host].write_file(site.files("wireguard") / f"{host}.conf", text)


async def _daemon(
    site: Site, host: str, name: str, config: dict[str, object], programs: Mapping[str, Programs]
) -> Daemon:
    from leadline.sut import wireguard_device
    from leadline.sut.daemons import Daemon

    ops, log = site.hosts[host], site.log_file("wireguard", host)
    if programs:
        file = await _write(site, host, wireguard_device.wg_config(config))
        argv = wireguard_device.wireguard_go_argv(programs[host], config, file)
        return Daemon(name, argv, log, (wireguard_device.READY, wireguard_device.FAILED), host)
    file = await ops.write_file(site.files("wireguard") / f"{host}.json", json.dumps(config, indent=1))
    return Daemon(name, (await ops.agent_program(), "wireguard", str(file)), log, (READY,), host)


async def _route_client_lan(site: Site) -> None:
    for network in site.addressing.client_lan.values():
        await site.hosts[site.addressing.gateway].add_route(str(network), dev=site.addressing.free_interface(INTERFACE))


async def _add_routes(site: Site, client: str, holder: str) -> None:
    """Route the server's network through the tunnel: on the host that holds it, and on a client behind that."""
    addressing = site.addressing
    for version, network in addressing.server_lan.items():
        await site.hosts[holder].add_route(str(network), dev=site.addressing.free_interface(INTERFACE))
        if holder != client:
            await site.hosts[client].add_route(str(network), via=addressing.client_gateway(version))


SYSTEM = Wireguard()
