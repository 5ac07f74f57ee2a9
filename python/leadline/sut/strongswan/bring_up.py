"""Brings strongSwan up: keys for this run, a daemon on the gateway, a daemon for each client.

Owns the order of steps; `config` writes the files, `log` reads the logs, `client_bringup` verifies the clients. Each
daemon has a private folder with its files and its control socket, and runs in it.
"""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

from leadline.agents.host_ops import HostOps
from leadline.dataset.private_files import private_folder
from leadline.errors import MissingBinary, NoClientConnected, SutFailed
from leadline.plan.need import STRONGSWAN_INSTALL
from leadline.sut.addressing import Addressing, TunnelClient, gateway_address, outer_address
from leadline.sut.client_bringup import ClientPlan, Hooks, connect, unless_dead
from leadline.sut.daemons import Daemon, Daemons
from leadline.sut.expectation import Expectation
from leadline.sut.forwarding import forward
from leadline.sut.model import BringUp, FleetAccess, Site
from leadline.sut.pki import Identity, Pki, issue
from leadline.sut.strongswan import config, data_plane, log
from leadline.sut.strongswan.config import End
from leadline.sut.strongswan.parameters import DataPlane, StrongswanSut

GATEWAY_NAME, CLIENT_NAME = "strongswan-gateway", "strongswan-client"
FLEET_CLIENT = "client{n}"
"""The name of a fleet's client: its number takes the place of {n}."""
_GATEWAY_WITHIN_S = 15.0


async def bring_up(parameters: StrongswanSut, site: Site, daemons: Daemons) -> BringUp:
    """Make the keys, start the gateway's daemon, then all clients' at the same time."""
    gateway = site.hosts[site.addressing.gateway]
    programs = await _programs(gateway, parameters)
    plane = await data_plane.choose(parameters, gateway)
    await forward(site)
    if site.fleet is not None:
        return await _for_fleet(_Daemons(parameters, plane, site, programs, None), daemons, site.fleet)
    server, clients = await _write_files(parameters, plane, site, programs)
    await _start(parameters, plane, daemons, server)
    hooks = Hooks(
        explain=lambda plan: _explain(daemons, server, plan),
        symptom=lambda plan: log.symptom(daemons.reported(plan.daemon)),
        configure=lambda plan: _route_site(site, plan),
    )
    own = await gateway.run(programs.swanctl, "--version")
    version = data_plane.version(own.output, plane, gateway.facts.kernel)
    try:
        states = await unless_dead(daemons, server, connect(site, daemons, clients, hooks))
    except NoClientConnected as error:
        error.version = version
        raise
    return BringUp(
        version,
        states,
        dict(site.server_address),
        (GATEWAY_NAME, CLIENT_NAME),
        name=data_plane.NAMES[plane],
        title=data_plane.TITLES[plane],
        cpu_attribution=data_plane.ATTRIBUTION[plane],
    )


async def _for_fleet(written: _Daemons, daemons: Daemons, count: int) -> BringUp:
    """Start the gateway's daemon alone. The tests measure whether the fleet's clients can connect."""
    parameters, plane, site = written.parameters, written.plane, written.site
    addressing, secret = site.addressing, secrets.token_urlsafe(24)
    ends = config.fleet_ends(parameters, count, secret)
    gateway = End(
        addressing.gateway, outer_address(addressing, parameters.ip), tuple(addressing.server_lan.values()), None
    )
    pki = _issue(parameters, site, [])
    text = config.gateway_config(parameters, gateway, ends, addressing.pool, site_to_site=False)
    identity = pki.server if pki is not None else None
    server = await replace(written, pki=pki).write(GATEWAY_NAME, addressing.gateway, text, identity)
    await _start(parameters, plane, daemons, server)
    client = End(FLEET_CLIENT, config.ANYONE, (), secret)
    authority = () if pki is None else ((f"x509ca/{config.AUTHORITY}", pki.authority.read_text(encoding="ascii")),)
    host = site.hosts[addressing.gateway]
    own = await host.run(written.programs.swanctl, "--version")
    access = FleetAccess(
        connection=config.client_config(parameters, client, gateway, addressing.pool),
        connection_files=authority,
        pools=tuple(str(pool) for pool in addressing.pool.values()),
        routes=tuple(str(network) for network in addressing.server_lan.values()),
        echo=site.server_address.get(4) or next(iter(site.server_address.values())),
    )
    return BringUp(
        data_plane.version(own.output, plane, host.facts.kernel),
        [],
        dict(site.server_address),
        (GATEWAY_NAME,),
        access,
        name=data_plane.NAMES[plane],
        title=data_plane.TITLES[plane],
        cpu_attribution=data_plane.ATTRIBUTION[plane],
    )


async def _start(parameters: StrongswanSut, plane: DataPlane, daemons: Daemons, server: Daemon) -> None:
    """Start the gateway's daemon, and wait until it is ready.

    Raises:
        SutFailed: it does not start, with its cause.
        MissingBinary: it lacks a plugin.
    """
    await daemons.start(server)
    try:
        await daemons.wait_for_output(server, log.READY, _GATEWAY_WITHIN_S, refused=log.REFUSED)
    except SutFailed as error:
        raise await _named(daemons, server, error) from error
    _check_plugins(daemons, server, config.plugins(parameters, plane))


@dataclass(frozen=True, slots=True)
class _Programs:
    """The paths of the programs."""

    daemon: str
    swanctl: str
    env: str


async def _programs(host: HostOps, parameters: StrongswanSut) -> _Programs:
    """The programs on a host.

    Raises:
        MissingBinary: one is missing.
    """
    found = []
    for name in (parameters.binary, parameters.swanctl, "env"):
        path = await host.find_program(name)
        if path is None:
            raise MissingBinary(name, hint=STRONGSWAN_INSTALL)
        found.append(path)
    return _Programs(*found)


@dataclass(frozen=True, slots=True)
class _Daemons:
    """Writes the files of daemons."""

    parameters: StrongswanSut
    plane: DataPlane
    site: Site
    programs: _Programs
    pki: Pki | None

    async def write(self, name: str, host: str, text: str, identity: Identity | None) -> Daemon:
        """Write the files of a host's daemon; `text` is its swanctl.conf."""
        folder = private_folder(self.site.files("strongswan") / host)
        connects = host != self.site.addressing.gateway
        own = config.daemon_config(self.parameters, self.plane, swanctl=self.programs.swanctl, connects=connects)
        certificates = _certificates(self.pki, identity)
        files: dict[str, bytes | str] = {"strongswan.conf": own, "swanctl.conf": text, **certificates}
        for path, content in files.items():
            private_folder((folder / path).parent)
            await self.site.hosts[host].write_file(folder / path, content)
        argv = config.daemon_argv(self.programs.daemon, self.programs.env, folder)
        return Daemon(name, argv, self.site.log_file("strongswan", host), log.REPORT, host)


async def _write_files(
    parameters: StrongswanSut, plane: DataPlane, site: Site, programs: _Programs
) -> tuple[Daemon, list[ClientPlan]]:
    """The keys and configurations of all ends; nothing is running yet."""
    addressing = site.addressing
    ends = {end.host: end for end in addressing.clients}
    pki = _issue(parameters, site, list(ends))
    server = End(
        addressing.gateway, outer_address(addressing, parameters.ip), tuple(addressing.server_lan.values()), None
    )
    clients = {name: _client_end(parameters, addressing, end) for name, end in ends.items()}
    pools = {} if addressing.site_to_site else addressing.pool

    daemon = _Daemons(parameters, plane, site, programs, pki).write
    text = config.gateway_config(
        parameters, server, list(clients.values()), pools, site_to_site=addressing.site_to_site
    )
    gateway = await daemon(GATEWAY_NAME, addressing.gateway, text, pki.server if pki is not None else None)
    expected = _expectation(plane, addressing, pools)
    plans = []
    for name, end in ends.items():
        text = config.client_config(parameters, clients[name], server, pools)
        # With EAP, clients have no certificate.
        has_own = pki is not None and parameters.method != "eap-mschapv2"
        started = await daemon(CLIENT_NAME, name, text, pki.clients[name] if pki is not None and has_own else None)
        plans.append(ClientPlan(end.client, started, log.READY, expected, refused=log.REFUSED, accepted=log.IKE_IS_UP))
    return gateway, plans


def _client_end(parameters: StrongswanSut, addressing: Addressing, end: TunnelClient) -> End:
    secret = secrets.token_urlsafe(24) if parameters.method in ("psk", "eap-mschapv2") else None
    behind = tuple(addressing.client_lan.values()) if end.behind else ()
    return End(end.host, end.outer[parameters.ip], behind, secret)


def _issue(parameters: StrongswanSut, site: Site, clients: list[str]) -> Pki | None:
    """The certificates, if some end has one."""
    if parameters.method == "psk":
        return None
    folder, now = site.files("strongswan") / "pki", datetime.datetime.now(datetime.UTC)
    return issue(
        folder, site.addressing.gateway, clients, now=now, keys="rsa" if parameters.method == "rsa" else "ecdsa"
    )


def _certificates(pki: Pki | None, identity: Identity | None) -> dict[str, bytes]:
    """The files of one end, by their paths beside swanctl.conf."""
    if pki is None:
        return {}
    files = {f"x509ca/{config.AUTHORITY}": pki.authority.read_bytes()}
    if identity is not None:
        files[f"x509/{config.CERTIFICATE}"] = identity.certificate.read_bytes()
        files[f"private/{config.KEY}"] = identity.key.read_bytes()
    return files


def _expectation(plane: DataPlane, addressing: Addressing, pools: Mapping[int, object]) -> Expectation:
    """What each client has. With ESP in the kernel, policies select the packets; a route of its own exists only with
    kernel-libipsec."""
    own = {version: network for version, network in addressing.pool.items() if version in pools}
    if plane == "kernel":
        return Expectation(None, own, ())
    return Expectation(config.LIBIPSEC_INTERFACE, own, tuple(addressing.server_lan.values()))


async def _route_site(site: Site, plan: ClientPlan) -> None:
    """charon sets the routes of its own host; a client behind it needs a route to its gateway."""
    if plan.daemon.host == plan.client:
        return
    for version, network in site.addressing.server_lan.items():
        near = gateway_address(site.addressing.client_lan[version])
        await site.hosts[plan.client].add_route(str(network), via=near)


def _explain(daemons: Daemons, server: Daemon, plan: ClientPlan) -> str | None:
    """The cause that the gateway logged for this client, or that the client logged of itself. A client that was refused
    does not know why; the gateway's line is awaited."""
    own = daemons.reported(plan.daemon)
    refused = log.symptom(own)
    return log.gateway_cause(daemons.reported(server), plan.daemon.host, refused) or log.own_cause(own)


def _check_plugins(daemons: Daemons, server: Daemon, wanted: tuple[str, ...]) -> None:
    """Debian has some plugins in packages of their own, and charon goes on without those that it lacks.

    Raises:
        MissingBinary: a plugin is missing.
    """
    missing = log.missing_plugins(daemons.reported(server), wanted)
    if missing:
        raise MissingBinary(f"strongSwan's plugin {missing[0]}", hint=STRONGSWAN_INSTALL)


async def _named(daemons: Daemons, server: Daemon, error: SutFailed) -> SutFailed:
    """The error of a daemon that did not start, with its cause in front if the log has one."""
    cause = log.own_cause(daemons.reported(server))
    if cause is None:
        return error
    return SutFailed(await daemons.with_log_end(server, f"{server.name} on {server.host}: {cause}"))
