"""Brings a stack up: the last tier first, each when the one behind it listens; then one request through all of them.

Owns the order of steps and the command lines; `haproxy` writes its configuration, `placement` chooses hosts, ports and
CPUs, `readiness` verifies.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from leadline.agents.asyncio_tools import unless
from leadline.errors import SutFailed
from leadline.sut.daemons import Daemon, Daemons
from leadline.sut.model import BringUp, ServedTier, Site
from leadline.sut.pki import issue
from leadline.sut.route import route_and_confirm
from leadline.sut.stack import haproxy
from leadline.sut.stack.counters import statistics_socket
from leadline.sut.stack.parameters import CommandTier, HaproxyTier, NodeTier, RedisTier, StackSut
from leadline.sut.stack.placement import PlacedTier, place_tiers, read_cpu_list
from leadline.sut.stack.readiness import check_answer, wait_for_ports

INSTALL = {
    "haproxy": "apt-get install haproxy",
    "node": "apt-get install nodejs",
    "redis": "apt-get install redis-server",
}
SERVICE = Path(__file__).with_name("bank.js")


async def bring_up(parameters: StackSut, site: Site, daemons: Daemons) -> BringUp:
    """Start all tiers, and verify by a request from each client."""
    route = await route_and_confirm(site)
    placed = await find_places(parameters, site)
    stack = _Stack(parameters, site, placed)
    started: list[Daemon] = []
    for index in reversed(range(len(placed))):
        one = placed[index]
        own = [await _start(daemons, daemon) for daemon in await stack.daemons_of(index)]
        started += own
        ready = wait_for_ports(site.hosts[one.host], one.ports, one.tier.name)
        await unless(_wait_or_show_log(daemons, own[0], ready), daemons.failure(only=own))
    first = placed[0]
    scheme = "https" if parameters.uses_tls else "http"
    url = f"{scheme}://{first.endpoints[0]}{parameters.check}"
    causes = await asyncio.gather(*(check_answer(site, client, url) for client in site.clients))
    failed = next(((client, cause) for client, cause in zip(site.clients, causes, strict=True) if cause), None)
    if failed is not None:
        message = f"the stack does not answer {failed[0]}'s request for {url}: {failed[1]}"
        raise SutFailed(await daemons.with_log_end(started[-1], message))
    return BringUp(
        version=", ".join(await _read_versions(stack)),
        clients=route.clients,
        target=dict(first.addresses),
        processes=tuple(name for one in placed for name in one.processes),
        port=first.ports[0],
        scheme=scheme,
        tiers=tuple(_describe(one) for one in placed),
    )


async def find_places(parameters: StackSut, site: Site) -> list[PlacedTier]:
    """Where each tier is, by the CPUs that programs of the hosts may use."""
    cpus = {}
    for name in ("gateway", "server"):
        status = await site.hosts[name].run("cat", "/proc/self/status")
        cpus[name] = read_cpu_list(status.output)
    return place_tiers(parameters, site, cpus)


def _describe(one: PlacedTier) -> ServedTier:
    tier = one.tier
    threads = None
    if isinstance(tier, HaproxyTier):
        threads = tier.nbthread or tier.cpus
    elif isinstance(tier, NodeTier | RedisTier):
        threads = len(one.ports)
    return ServedTier(tier.name, _get_kind(one), one.host, one.processes, one.cpus, threads)


def _get_kind(one: PlacedTier) -> str:
    return str(one.tier.model_dump()["kind"])


async def _start(daemons: Daemons, daemon: Daemon) -> Daemon:
    await daemons.start(daemon)
    return daemon


async def _wait_or_show_log(daemons: Daemons, daemon: Daemon, ready: Awaitable[None]) -> None:
    """Wait, and name the end of the daemon's log if that fails."""
    try:
        await ready
    except SutFailed as error:
        raise SutFailed(await daemons.with_log_end(daemon, error.message)) from error


@dataclass(frozen=True, slots=True)
class _Stack:
    """The tiers of one trial, with what their command lines need."""

    parameters: StackSut
    site: Site
    placed: Sequence[PlacedTier]

    async def daemons_of(self, index: int) -> list[Daemon]:
        """The processes of a tier; writes its files.

        Raises:
            MissingBinary: its program is missing.
        """
        one = self.placed[index]
        behind = self.placed[index + 1] if index + 1 < len(self.placed) else None
        match one.tier:
            case HaproxyTier() as tier:
                assert behind is not None
                commands = [await self._prepare_haproxy(one, tier, behind)]
            case NodeTier() as tier:
                assert behind is not None
                commands = await self._prepare_node(one, tier, behind)
            case RedisTier() as tier:
                commands = [self._make_redis_command(one, tier)]
            case CommandTier() as tier:
                commands = [await self._prepare_command(one, tier, behind)]
            case _:
                raise AssertionError(one.tier)
        program = await self._find_program(one, commands[0][0])
        return [
            Daemon(
                name=name,
                argv=(*self._limit_cpus(one), program, *argv[1:]),
                log=self.site.log_file(name, one.host),
                report=(),
                host=one.host,
            )
            for name, argv in zip(one.processes, commands, strict=True)
        ]

    async def _find_program(self, one: PlacedTier, name: str) -> str:
        path = await self.site.hosts[one.host].find_program(name)
        if path is None:
            hint = INSTALL.get(_get_kind(one), f"the tier '{one.tier.name}' needs it")
            raise self.site.hosts[one.host].missing(name, hint)
        return path

    @staticmethod
    def _limit_cpus(one: PlacedTier) -> tuple[str, ...]:
        return ("taskset", "--cpu-list", ",".join(map(str, one.cpus))) if one.cpus else ()

    async def _prepare_haproxy(self, one: PlacedTier, tier: HaproxyTier, behind: PlacedTier) -> tuple[str, ...]:
        host, folder = self.site.hosts[one.host], self.site.files("stack")
        certificate = None
        if tier.tls != "off":
            with self.site.own_files(f"stack-{tier.name}") as own:
                pki = issue(own, one.host, [], now=datetime.datetime.now(datetime.UTC), keys=tier.certificate)
                both = pki.server.certificate.read_bytes() + pki.server.key.read_bytes()
            certificate = str(await host.write_file(folder / f"{tier.name}.pem", both))
        paths = haproxy.HaproxyPaths(str(statistics_socket(self.site, tier.name)), certificate)
        port = one.ports[0]
        binds = [
            f"[{address}]:{port}" if version == 6 else f"{address}:{port}" for version, address in one.addresses.items()
        ]
        text = haproxy.write_config(tier, binds, behind.endpoints, paths)
        config = await host.write_file(folder / f"{tier.name}.cfg", text)
        return (tier.binary, "-db", "-f", str(config))

    async def _prepare_node(self, one: PlacedTier, tier: NodeTier, behind: PlacedTier) -> list[tuple[str, ...]]:
        service = SERVICE
        if not self.site.shared_files:
            service = await self.site.hosts[one.host].write_file(
                self.site.files("stack") / SERVICE.name, SERVICE.read_bytes()
            )
        redis = (behind.address, str(behind.ports[0]))
        common = (*redis, str(tier.keep_alive_timeout_ms), str(tier.accounts))
        return [
            (tier.binary, str(service), one.address, str(port), *common, *(["create"] if number == 0 else []))
            for number, port in enumerate(one.ports)
        ]

    @staticmethod
    def _make_redis_command(one: PlacedTier, tier: RedisTier) -> tuple[str, ...]:
        where = ("--bind", one.address, "--port", str(one.ports[0]), "--protected-mode", "no")
        return (tier.binary, *where, "--save", "", "--appendonly", "no", "--io-threads", str(tier.io_threads))

    async def _prepare_command(self, one: PlacedTier, tier: CommandTier, behind: PlacedTier | None) -> tuple[str, ...]:
        host, folder = self.site.hosts[one.host], self.site.files(f"stack-{tier.name}")
        words = {
            "port": str(one.ports[0]),
            "address": one.address,
            "folder": str(folder),
            **({} if behind is None else {"next": behind.endpoints[0]}),
        }
        for name, text in tier.files.items():
            await host.write_file(folder / name, _fill_in(text, words))
        return tuple(_fill_in(word, words) for word in tier.argv)


def _fill_in(text: str, words: Mapping[str, str]) -> str:
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return text


async def _read_versions(stack: _Stack) -> list[str]:
    """The versions of the daemons, as they say them."""
    found = []
    for one in stack.placed:
        host, tier = stack.site.hosts[one.host], one.tier
        if isinstance(tier, HaproxyTier):
            shown = (await host.run(tier.binary, "-v")).output.split()
            found.append(f"HAProxy {shown[2]}" if len(shown) > 2 else "HAProxy")
        elif isinstance(tier, NodeTier):
            found.append(f"Node.js {(await host.run(tier.binary, '--version')).output.strip().removeprefix('v')}")
        elif isinstance(tier, RedisTier):
            shown = (await host.run(tier.binary, "--version")).output.split("v=", 1)
            found.append(f"Redis {shown[1].split()[0]}" if len(shown) > 1 else "Redis")
        elif isinstance(tier, CommandTier):
            found.append(Path(tier.argv[0]).name)
    return list(dict.fromkeys(found))
