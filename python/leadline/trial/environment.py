"""Where a trial happens: hosts with an agent each, made by the lab or given by the plan, compared clocks, a server.

Owns the order of setting up and of giving back. Knows nothing of systems under test or loads.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import socket
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from leadline.agents import Agent, ClockComparison, Event, Launch, agent_binary, launch_on
from leadline.contract.models import Observation
from leadline.errors import LeadlineError
from leadline.lab import topology
from leadline.lab.hosts import Lab
from leadline.plan import Case
from leadline.plan.hosts import GATEWAYS, HostAddress
from leadline.sut.model import Site
from leadline.trial.event_log import EventLog
from leadline.trial.site import given_site, lab_site
from leadline.trial.workloads import SESSION_PORT, serve_everything

SERVER = "server"
SERVE_TASK = "serve"
# Watching costs about 0.2 % of a core per host and 10 samples a second; many clients on one machine share what four
# would use, so that watching a hundred does not become a load of its own.
_CLIENTS_AT_FULL_RATE = 4
# How long the last reading of the gateways' counters may be on its way.
_LAST_LOOK_S = 5.0
# Time limit of the transaction that proves a client connected.
_PROBE_MS = 10_000


@dataclass(slots=True)
class Environment:
    """Hosts that are ready to measure. `aclose` it whatever happens."""

    case: Case
    label: str
    lab: Lab | None
    agents: dict[str, Agent] = field(default_factory=dict)
    clocks: dict[str, ClockComparison] = field(default_factory=dict)
    server_address: dict[int, str] = field(default_factory=dict)
    key: str | None = field(default=None, repr=False)
    """What the server of given hosts asks for: random, of this trial alone, and kept nowhere."""

    @property
    def clients(self) -> tuple[str, ...]:
        """The hosts that send the load."""
        return tuple(f"client{number}" for number in range(1, self.case.clients + 1))

    @property
    def gateways(self) -> tuple[str, ...]:
        """The hosts that the system under test runs on, the clients' side first."""
        return GATEWAYS[self.case.topology]

    def site(self, folder: Path, logs: Path) -> Site:
        """The environment as a system under test sees it."""
        if self.lab is None:
            return given_site(
                self.agents,
                gateway=self.gateways[-1],
                folder=folder,
                label=self.label,
                clients=self.clients,
                serve_port=SESSION_PORT,
                server_address=self.server_address,
            )
        return lab_site(
            self.lab,
            self.agents,
            folder=folder,
            label=self.label,
            clients=self.clients,
            serve_port=SESSION_PORT,
            server_address=self.server_address,
            logs=logs,
            fleet=self.case.fleet,
        )

    async def failure(self) -> Exception:
        """Wait until an agent is lost, and say so; waits for ever while all is well."""
        watches = [asyncio.create_task(agent.failure()) for agent in self.agents.values()]
        try:
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
            return next(iter(done)).result()
        finally:
            for watch in watches:
                watch.cancel()

    async def sync_agents(self) -> None:
        """Hear from every agent once: what they said before has been taken in by then.

        Raises:
            AgentLost: one is gone.
        """
        await asyncio.gather(*(agent.compare_clocks(1) for agent in self.agents.values()))

    async def aclose(self) -> None:
        """End every agent, then remove the lab; what fails is raised after all was tried. May be called again."""
        await asyncio.gather(*(agent.close() for agent in self.agents.values()), return_exceptions=True)
        if self.lab is not None:
            await asyncio.to_thread(self.lab.close)


async def build(case: Case, label: str, event_log: EventLog, logs: Path) -> Environment:
    """Hosts, agents, clocks, and the server answering; nothing is left behind when it fails. `logs`: see `Agent.start`.

    Raises:
        LeadlineError: what could not be set up, by name.
    """
    env = Environment(case, label, None)
    try:
        named = case.hosts.named(case.topology) if case.hosts is not None else {}
        if case.hosts is None:
            env.lab = await asyncio.to_thread(Lab.build, _layout(case), label)
            launches = _lab_launches(env.lab)
            env.server_address = _server_addresses(env.lab)
        else:
            env.key = b64encode(secrets.token_bytes(32)).decode()
            launches = {name: launch_on(address) for name, address in named.items()}
            env.server_address = await asyncio.to_thread(_given_addresses, named[SERVER])
        await _start_agents(env, launches, event_log, logs)
        await _compare_clocks(env, event_log)
        own = {name: await _own_addresses(agent) for name, agent in env.agents.items()}
        if case.hosts is not None:
            _check_addresses(named, own)
            event_log.record("given-hosts", trial=label, gateways=_on_one_stack(env, own))
        bind = _bind(env, own[SERVER])
        longest_ms = max(test.longest_ms for test in case.tests) + _PROBE_MS
        https = any(test.needs_https for test in case.tests)
        serving = serve_everything(bind, longest_ms, https=https, key=env.key)
        await env.agents[SERVER].prepare(f"{label}/setup", SERVE_TASK, serving)
    except BaseException:
        await env.aclose()
        raise
    return env


def _given_addresses(server: HostAddress) -> dict[int, str]:
    """Where clients reach a given server, by IP version; that a local one has local clients, the plan has checked."""
    if server.addresses:
        return {ip_address(address).version: address for address in server.addresses}
    if server.local:
        return {4: "127.0.0.1", 6: "::1"}
    try:
        found = socket.getaddrinfo(server.host, None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):
        # A name of the SSH configuration alone, which need not even be possible in DNS: the clients may still know it.
        return dict.fromkeys((4, 6), server.host)
    families = {socket.AF_INET: 4, socket.AF_INET6: 6}
    return {families[family]: str(address[0]) for family, *_, address in reversed(found) if family in families}


async def _own_addresses(agent: Agent) -> frozenset[str]:
    view = await agent.inspect()
    return frozenset(address.partition("/")[0] for interface in view.interfaces for address in interface.addresses)


def _check_addresses(named: Mapping[str, HostAddress], own: Mapping[str, frozenset[str]]) -> None:
    """A client or a gateway that lacks the address that the plan gives it is not the host that the plan means.

    The server is not asked: its address may be a translated one.

    Raises:
        LeadlineError: the first such host.
    """
    for name, host in named.items():
        wanted = {str(ip_address(address)) for address in host.addresses} if name != SERVER else set()
        missing = wanted - {str(ip_address(address.partition("%")[0])) for address in own[name]}
        if missing:
            has = ", ".join(sorted(own[name])) or "none"
            raise LeadlineError(
                f"{name} has no address {sorted(missing)[0]}; its addresses: {has}",
                hint=f"mend hosts.{name.rstrip('0123456789')}: its ssh or its address is another host's",
            )


def _on_one_stack(env: Environment, own: Mapping[str, frozenset[str]]) -> dict[str, list[str]]:
    """Each gateway, and the clients and server whose interfaces are its own: their traffic is all counted there,
    whichever way it goes."""
    ends = (*env.clients, SERVER)

    def same(one: str, other: str) -> bool:
        boots = [env.agents[name].hello.host.boot_id for name in (one, other)]
        return boots[0] == boots[1] and own[one] == own[other]

    return {gateway: [end for end in ends if same(gateway, end)] for gateway in env.gateways}


def _bind(env: Environment, own: frozenset[str]) -> list[str]:
    """The addresses that the clients use and the server has; every one only where it is reached by another (NAT)."""
    return sorted(set(env.server_address.values()) & own) or ["0.0.0.0", "::"]


async def observe(env: Environment, trial: str | None, period_ms: int, event_log: EventLog) -> None:
    """Watch every host from now on, its samples labelled `trial`; what hosts on one machine share is read once."""
    seen_boots: set[str | None] = set()
    crowd = math.ceil(len(env.clients) / _CLIENTS_AT_FULL_RATE) if env.lab is not None else 1
    # Gateways first: where hosts share a machine, the host under measurement reports its CPUs.
    for name in (*env.gateways, SERVER, *env.clients):
        agent = env.agents[name]
        boot = agent.hello.host.boot_id
        period = period_ms * crowd if name in env.clients else period_ms
        await agent.observe(trial, period, boot is None or boot not in seen_boots)
        seen_boots.add(boot)
        event_log.record("observe", host=name, trial=trial, period_ms=period)


async def observe_afterwards(env: Environment, trial: str, period_ms: int, event_log: EventLog) -> None:
    """Watch on under another label, so that what comes after a test does not count as its own. What stands on given
    hosts is not taken down: there the gateways' counters are read once more.
    """
    if env.lab is None:
        await observe_once_more(env, trial, period_ms, event_log)
    else:
        await observe(env, trial, period_ms, event_log)


async def observe_once_more(env: Environment, trial: str, period_ms: int, event_log: EventLog) -> None:
    """Have every gateway's counters read after a test's end; one that does not answer in time is not waited for."""
    waiting = set(env.gateways)
    heard = asyncio.Event()

    def on_event(host: str, event: Event) -> None:
        if isinstance(event, Observation) and event.trial == trial:
            waiting.discard(host)
        if not waiting:
            heard.set()

    end = event_log.listen(on_event)
    try:
        await observe(env, trial, period_ms, event_log)
        with suppress(TimeoutError):
            await asyncio.wait_for(heard.wait(), _LAST_LOOK_S)
    finally:
        end()


def _layout(case: Case) -> topology.Layout:
    link = case.link
    if link is None:
        raise LeadlineError(f"case {case.id} has neither links nor hosts")
    spec = topology.LinkSpec(
        rate_bps=link.rate_bps,
        mtu=link.mtu_bytes,
        loss=link.loss,
        drop_every=link.drop_every,
        drop_udp_every=link.drop_udp_every,
        delay_ms=link.delay_us / 1000 if link.delay_us else None,
    )
    if case.topology == "site-to-site":
        return topology.site_to_site(spec)
    return topology.remote_access(case.clients, spec)


def _lab_launches(lab: Lab) -> dict[str, Launch]:
    agent = str(agent_binary())
    launches = {}
    for name, host in lab.hosts.items():
        cgroup = ("--cgroup", str(host.cgroup)) if host.cgroup else ()
        launches[name] = Launch((*lab.launch_prefix(name), agent, *cgroup))
    return launches


def _server_addresses(lab: Lab) -> dict[int, str]:
    addresses: Mapping[str, Mapping[int, str]] = lab.hosts[SERVER].addresses
    return {version: address for found in addresses.values() for version, address in found.items()}


async def _start_agents(env: Environment, launches: Mapping[str, Launch], event_log: EventLog, logs: Path) -> None:
    async def start(name: str, launch: Launch) -> None:
        env.agents[name] = await Agent.start(name, launch, sink=event_log.on_event, logs=logs)

    async with asyncio.TaskGroup() as group:
        for name, launch in launches.items():
            group.create_task(start(name, launch))


async def _compare_clocks(env: Environment, event_log: EventLog) -> None:
    async def compare(name: str, agent: Agent) -> None:
        env.clocks[name] = found = await agent.compare_clocks()
        event_log.record("clock", host=name, offset_ns=found.offset_ns, bound_ns=found.bound_ns)

    async with asyncio.TaskGroup() as group:
        for name, agent in env.agents.items():
            group.create_task(compare(name, agent))
