"""Brings OpenVPN up: keys for this run, a server on the gateway, a process for each client.

Owns the order of steps; `config` writes the files, `log` reads the logs, `client_bringup` verifies the clients.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path

from leadline.errors import EnvironmentLimit, NoClientConnected, SutFailed
from leadline.plan import ovpn
from leadline.sut.addressing import outer_address
from leadline.sut.client_bringup import ClientPlan, Hooks, connect, unless_dead
from leadline.sut.daemons import Daemon, Daemons
from leadline.sut.expectation import Expectation
from leadline.sut.forwarding import forward, route_back
from leadline.sut.model import BringUp, FleetAccess, Site
from leadline.sut.openvpn import log
from leadline.sut.openvpn import program as programs
from leadline.sut.openvpn.config import (
    INTERFACE,
    Keys,
    Networks,
    client_config,
    client_directory_entry,
    route_networks,
    server_config,
)
from leadline.sut.openvpn.parameters import OpenvpnClient, OpenvpnSut
from leadline.sut.openvpn.program import OpenvpnProgram
from leadline.sut.pki import Pki, issue

SERVER_NAME, CLIENT_NAME = "openvpn-server", "openvpn-client"
_SERVER_WITHIN_S = 15.0
# OpenVPN reports ready when its device is ready; other clients report it before.
_SETTLES_S = 2.0


async def bring_up(parameters: OpenvpnSut, site: Site, daemons: Daemons) -> BringUp:
    """Make the keys, start the server, then all clients at the same time."""
    if 4 not in site.addressing.pool:
        raise EnvironmentLimit("OpenVPN gives its clients IPv4 addresses, and the hosts have none")
    found = await _find_programs(parameters, site)
    program = found[site.addressing.gateway]
    await forward(site)
    await route_back(site, site.addressing.pool)
    with site.own_files("openvpn") as folder:
        server, clients, access = await _write_files(parameters, site, found, folder)
    await daemons.start(server)
    try:
        await daemons.wait_for_output(server, log.READY, _SERVER_WITHIN_S)
    except SutFailed as error:
        raise await _named(daemons, server, error) from error
    if site.fleet is not None:
        # The tests measure whether its clients can connect; no OpenVPN process is started for them.
        return BringUp(program.version, [], dict(site.server_address), (SERVER_NAME,), access)
    hooks = Hooks(
        explain=lambda plan: _explain(daemons, server, plan),
        configure=lambda plan: _route_site(site, plan),
    )
    version = program.version
    if parameters.client is not None:
        first = site.hosts[site.addressing.clients[0].host]
        version = f"{version}; clients: {await programs.describe_client(first, parameters.client.command[0])}"
    elif others := [one.version for one in found.values() if one.version != version]:
        version = f"{version}; clients: {others[0]}"
    try:
        states = await unless_dead(daemons, server, connect(site, daemons, clients, hooks))
    except NoClientConnected as error:
        error.version = version
        raise
    return BringUp(version, states, dict(site.server_address), (SERVER_NAME, CLIENT_NAME))


async def _find_programs(parameters: OpenvpnSut, site: Site) -> dict[str, OpenvpnProgram]:
    """OpenVPN's program on the gateway and on each client. Hosts that share this machine's files have the same one.

    Raises:
        MissingBinary: a host lacks it.
        SutFailed: it is another program.
    """
    addressing = site.addressing
    gateway = await programs.find(site.hosts[addressing.gateway], parameters.binary)
    ends = [end.host for end in addressing.clients] if site.fleet is None else []
    if site.shared_files or parameters.client is not None:
        return dict.fromkeys((addressing.gateway, *ends), gateway)
    return {addressing.gateway: gateway} | {
        host: await programs.find(site.hosts[host], parameters.binary) for host in ends
    }


async def _write_files(
    parameters: OpenvpnSut, site: Site, found: Mapping[str, OpenvpnProgram], folder: Path
) -> tuple[Daemon, list[ClientPlan], FleetAccess | None]:
    """The keys and configurations of all ends; nothing is running yet. `folder` is the controller's, for the keys."""
    addressing, on_hosts = site.addressing, site.files("openvpn")
    gateway, program = site.hosts[addressing.gateway], found[addressing.gateway]
    hosts = [end.host for end in addressing.clients]
    pki = issue(folder / "pki", addressing.gateway, hosts, now=datetime.datetime.now(datetime.UTC))
    control, controls = _control_keys(parameters, program, folder, hosts)
    pushed = [
        network
        for network in route_networks(parameters, tuple(addressing.server_lan.values()))
        if network.version in addressing.versions
    ]
    behind = tuple(addressing.client_lan.values()) if addressing.site_to_site else ()
    networks = Networks(addressing.pool, pushed, behind)
    if addressing.site_to_site:
        await gateway.write_file(site.files("openvpn/ccd") / hosts[0], client_directory_entry(networks))
    outer, interface = outer_address(addressing, parameters.ip), addressing.free_interface(INTERFACE)
    text = server_config(
        parameters,
        program,
        Keys(pki.authority, pki.server, control),
        networks,
        listen=outer,
        clients=site.fleet or len(hosts),
        folder=on_hosts,
        interface=interface,
    )
    server = await _daemon(site, program, addressing.gateway, SERVER_NAME, text)
    if site.fleet is not None:
        carrier = hosts[0]
        keys = Keys(pki.authority, pki.clients[carrier], controls[carrier])
        text = client_config(parameters, program, keys, remote=outer)
        return server, [], _fleet_access(text, pki, networks)
    expected = Expectation(interface, addressing.pool, tuple(pushed))
    plans = []
    for end in addressing.clients:
        keys = Keys(pki.authority, pki.clients[end.host], controls[end.host])
        text = client_config(parameters, found[end.host], keys, remote=outer, interface=interface)
        for network in pushed:
            # The daemon's own route would be refused beside one that a given host has already.
            await site.hosts[end.host].remove_route(str(network))
        if parameters.client is None:
            daemon = await _daemon(site, found[end.host], end.host, CLIENT_NAME, text)
            plans.append(ClientPlan(end.client, daemon, log.READY, expected))
        else:
            daemon = await _foreign(site, parameters.client, end.host, text)
            plans.append(ClientPlan(end.client, daemon, parameters.client.ready, expected, settles_s=_SETTLES_S))
    return server, plans, None


def _control_keys(
    parameters: OpenvpnSut, program: OpenvpnProgram, folder: Path, hosts: list[str]
) -> tuple[Path | None, dict[str, Path | None]]:
    match parameters.control:
        case "none":
            return None, dict.fromkeys(hosts)
        case "tls-crypt-v2":
            if not program.knows("tls-crypt-v2"):
                raise SutFailed(f"{program.path} has no tls-crypt-v2, which OpenVPN has since 2.5")
            server, clients = programs.wrapped_keys(folder, hosts)
            return server, dict(clients)
        case _:
            shared = programs.static_key(folder)
            return shared, dict.fromkeys(hosts, shared)


def _fleet_access(config: str, pki: Pki, networks: Networks) -> FleetAccess:
    """The profile with its files inline, the CA, and the configuration that the server gives to each client."""
    return FleetAccess(
        _whole(config).text,
        pki.authority.read_text(encoding="ascii"),
        pki.authority_key_pem,
        pools=tuple(str(network) for network in networks.pool.values()),
        routes=tuple(str(network) for network in networks.pushed),
    )


async def _daemon(site: Site, program: OpenvpnProgram, host: str, name: str, config: str) -> Daemon:
    text = config if site.shared_files else _whole(config, of_server=name == SERVER_NAME).text
    file = await site.hosts[host].write_file(site.files("openvpn") / f"{host}.conf", text)
    argv = (program.path, "--config", str(file))
    return Daemon(name, argv, site.log_file("openvpn", host), log.REPORT, host)


async def _foreign(site: Site, client: OpenvpnClient, host: str, config: str) -> Daemon:
    """Another implementation: its configuration is one file, without options that it does not know.

    Raises:
        MissingBinary: its program is missing here.
    """
    program = await site.hosts[host].find_program(client.command[0])
    if program is None:
        raise site.hosts[host].missing(client.command[0], "install it, or choose other cases with --only")
    lines = [line for line in config.splitlines() if line.split(maxsplit=1)[0] not in client.without]
    file = await site.hosts[host].write_file(site.files("openvpn") / f"{host}.conf", _whole("\n".join(lines)).text)
    argv = (program, *(word.replace("{config}", str(file)) for word in client.command[1:]))
    return Daemon(CLIENT_NAME, argv, site.log_file("openvpn", host), (*log.REPORT, client.ready), host)


def _whole(config: str, *, of_server: bool = False) -> ovpn.Profile:
    """A configuration with its files inline."""
    return ovpn.whole(config, lambda name: Path(name).read_text(encoding="ascii"), of_server=of_server)


async def _route_site(site: Site, plan: ClientPlan) -> None:
    """The daemon sets the routes of its own host; a client behind it needs a route to its gateway."""
    if plan.daemon.host == plan.client:
        return
    for version, network in site.addressing.server_lan.items():
        await site.hosts[plan.client].add_route(str(network), via=site.addressing.client_gateway(version))


def _explain(daemons: Daemons, server: Daemon, plan: ClientPlan) -> str | None:
    """The cause that the server logged for this client, else the one that the client logged.

    A client without an answer cannot know the cause; then the server's general refusals count.
    """
    said, own = daemons.reported(server), daemons.reported(plan.daemon)
    refusals = [line for line in said if log.refuses_unnamed(line)]
    if refusals and log.unanswered(own):
        own = refusals
    return log.cause(log.of_client(said, plan.daemon.host)) or log.cause(own)


async def _named(daemons: Daemons, server: Daemon, error: SutFailed) -> SutFailed:
    """The error of a server that did not start, with its cause in front if the log has one."""
    cause = log.cause(daemons.reported(server))
    if cause is None:
        return error
    return SutFailed(await daemons.with_log_end(server, f"{server.name} on {server.host}: {cause}"))
