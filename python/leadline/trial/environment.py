"""The environment of a trial: hosts (from the lab or the plan) with one agent each, compared clocks, and a server.

Owns the order of setup and teardown. Knows nothing of systems under test or loads.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import socket
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

from leadline.agents import Agent, ClockComparison, Launch, ReachedHosts, UnreadObservation, agent_binary
from leadline.errors import AgentLost, LeadlineError
from leadline.lab import cpus
from leadline.lab.hosts import Lab
from leadline.lab.topology import Layout
from leadline.plan import Case
from leadline.plan.host_address import HostAddress
from leadline.plan.hosts import GATEWAYS
from leadline.plan.sut import system_of
from leadline.sut.addressing import Addressing
from leadline.sut.model import Site
from leadline.trial.event_log import EventLog
from leadline.trial.links import layout_of, start_emulator
from leadline.trial.losses import HostLosses
from leadline.trial.notifications import HostSilent
from leadline.trial.site import given_site, lab_site, survey_given_hosts
from leadline.trial.wake_up import record_wake_ups, waits_for_idle_cpus
from leadline.trial.workloads import SESSION_PORT, serve_everything

Answer = TypeVar("Answer")
SERVER = "server"
SERVE_TASK = "serve"
# Watching costs about 0.2 % of a core per host and 10 samples a second; many clients on one machine share the cost
# of four hosts, so that watching a hundred does not become a load of its own.
_CLIENTS_AT_FULL_RATE = 4
# Time limit for the last reading of the gateways' counters.
_LAST_LOOK_S = 5.0
# Time limit of the transaction that verifies a client's connection.
_PROBE_MS = 10_000


@dataclass(slots=True)
class Environment:
    """Hosts that are ready to measure. Always close it with `aclose`."""

    case: Case
    label: str
    lab: Lab | None
    agents: dict[str, Agent] = field(default_factory=dict)
    clocks: dict[str, ClockComparison] = field(default_factory=dict)
    server_address: dict[int, str] = field(default_factory=dict)
    key: str | None = field(default=None, repr=False)
    """The key of the server on given hosts: random, for this trial only, stored nowhere."""
    addressing: Addressing | None = None
    """The addresses of a tunnel between given hosts; None where nothing is brought up on them, and in a lab."""
    idle_poll: cpus.IdlePoll | None = None
    """Keeps CPUs from sleeping, if the plan asks for that and the kernel allows it."""
    losses: HostLosses | None = None
    """The client hosts that the trial goes on without; None where it goes on without none."""

    @property
    def clients(self) -> tuple[str, ...]:
        """The hosts that generate load, without those that were lost."""
        lost = self.losses.reasons if self.losses is not None else {}
        return tuple(name for name in self.planned_clients if name not in lost)

    @property
    def planned_clients(self) -> tuple[str, ...]:
        """The hosts that should generate load."""
        return tuple(f"client{number}" for number in range(1, self.case.client_hosts + 1))

    def goes_on_without(self, host: str, error: LeadlineError) -> bool:
        """Whether the trial goes on without this host, which fails with the error."""
        return self.losses is not None and self.losses.accept(host, error)

    @property
    def gateways(self) -> tuple[str, ...]:
        """The hosts of the system under test, the clients' side first."""
        return GATEWAYS[self.case.topology]

    @property
    def emulator(self) -> str | None:
        """The host whose agent impairs the lab's links; None if there is none."""
        return self.lab.layout.emulator if self.lab is not None else None

    def site(self, logs: Path) -> Site:
        """The environment as a system under test sees it."""
        if self.lab is None:
            return given_site(
                self.agents,
                gateway=self.gateways[-1],
                label=self.label,
                clients=self.clients,
                serve_port=SESSION_PORT,
                server_address=self.server_address,
                addressing=self.addressing,
                key=self.key,
            )
        return lab_site(
            self.lab,
            self.agents,
            folder=self.lab.keys,
            label=self.label,
            clients=self.clients,
            serve_port=SESSION_PORT,
            server_address=self.server_address,
            logs=logs,
            fleet=self.case.fleet,
        )

    @property
    def present(self) -> dict[str, Agent]:
        """The agents of the hosts that are not lost."""
        return {name: agent for name, agent in self.agents.items() if agent.lost is None}

    async def ask_each(self, ask: Callable[[Agent], Awaitable[Answer]]) -> dict[str, Answer]:
        """What each host answers, side by side; without those that the trial goes on without."""

        async def answer(name: str, agent: Agent) -> Answer | None:
            try:
                return await ask(agent)
            except AgentLost as error:
                if not self.goes_on_without(name, error):
                    raise
                return None

        found = await asyncio.gather(*(answer(name, agent) for name, agent in self.agents.items()))
        return {name: one for name, one in zip(self.agents, found, strict=True) if one is not None}

    async def failure(self) -> Exception:
        """Wait until an agent is lost that the trial does not go on without, and return the error; waits forever
        otherwise."""
        watches = {asyncio.create_task(agent.failure()): name for name, agent in self.agents.items()}
        waiting = set(watches)
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for watch in done:
                    error = watch.result()
                    if not isinstance(error, LeadlineError) or not self.goes_on_without(watches[watch], error):
                        return error
            await asyncio.get_running_loop().create_future()
            raise AssertionError("nothing sets it")
        finally:
            for watch in watches:
                watch.cancel()

    async def sync_agents(self) -> None:
        """Wait for one answer of every agent: all its earlier events have been processed then.

        Raises:
            AgentLost: one is gone.
        """
        await asyncio.gather(*(agent.compare_clocks(1) for agent in self.present.values()))

    async def aclose(self) -> None:
        """End every agent, then remove the lab; errors are raised after everything was tried. May be called again."""
        if self.idle_poll is not None:
            self.idle_poll.close()
        await asyncio.gather(*(agent.close() for agent in self.agents.values()), return_exceptions=True)
        if self.lab is not None:
            await asyncio.to_thread(self.lab.close)


async def build(
    case: Case, label: str, event_log: EventLog, *, logs: Path, reached: ReachedHosts, tolerate: float = 0.0
) -> Environment:
    """Set up hosts, agents, clocks and the server; leaves nothing behind if it fails. `logs`: see `Agent.start`. Given
    hosts are reached by `reached`, which outlives the trial. `tolerate` is the share of clients that may be missing.

    Raises:
        LeadlineError: what could not be set up.
    """
    env = Environment(case, label, None)
    if tolerate:
        env.losses = HostLosses(env.clients, tolerate, label, event_log)
    try:
        named = case.hosts.named(case.topology) if case.hosts is not None else {}
        if case.hosts is None:
            layout = await layout_of(case)
            own = _own_cpus(case, layout)
            env.lab = await asyncio.to_thread(Lab.build, layout, label, own)
            launches = _lab_launches(env.lab)
            env.server_address = _server_addresses(env.lab)
        else:
            env.key = b64encode(secrets.token_bytes(32)).decode()
            launches = await reached.launches(named, env.goes_on_without)
            env.server_address = await asyncio.to_thread(_given_addresses, named[SERVER], launches[SERVER].address)
        await _start_agents(env, launches, event_log, logs)
        await _compare_clocks(env, event_log)
        if env.lab is not None:
            _use_cpus(env, env.lab, event_log)
        if env.emulator is not None:
            await start_emulator(case, label, env.agents[env.emulator], event_log)
        addresses = await env.ask_each(_own_addresses)
        if case.hosts is not None:
            _check_addresses({name: named[name] for name in addresses}, addresses)
            is_brought_up = system_of(case.sut).comes_up_on_given_hosts
            gateways = _on_one_stack(env, addresses)
            event_log.record("given-hosts", trial=label, gateways=gateways, brought_up=is_brought_up)
            if is_brought_up:
                env.addressing = await survey_given_hosts(case, env.present, env.clients, label)
        bind = _bind(env, addresses[SERVER])
        longest_ms = max(test.longest_ms for test in case.tests) + _PROBE_MS
        https = any(test.needs_https for test in case.tests)
        serving = serve_everything(bind, longest_ms, https=https, key=env.key)
        await env.agents[SERVER].prepare(f"{label}/setup", SERVE_TASK, serving)
        if waits_for_idle_cpus(test.kind for test in case.tests):
            await record_wake_ups(env.present, event_log)
    except BaseException:
        await env.aclose()
        raise
    return env


def _own_cpus(case: Case, layout: Layout) -> dict[str, tuple[int, ...]]:
    """The CPUs of the hosts that do not run on all of them."""
    if case.gateway_cpus is not None:
        return cpus.with_gateway_cpus(layout, case.gateway_cpus, cpus.allowed())
    return cpus.split(layout, cpus.allowed()) if case.split_cpus else {}


def _use_cpus(env: Environment, lab: Lab, event_log: EventLog) -> None:
    """Keep CPUs from sleeping if the case asks for that, and record how the lab uses the CPUs of this machine."""
    refused = None
    if env.case.idle_poll:
        try:
            env.idle_poll = cpus.IdlePoll()
        except OSError as error:
            refused = f"{cpus.LATENCY_DEVICE}: {error.strerror}"
    if env.case.idle_poll or lab.cpus:
        own = {host: list(numbers) for host, numbers in lab.cpus.items()}
        polling = None if not env.case.idle_poll else {"held": refused is None, "reason": refused}
        event_log.record("lab-cpus", trial=env.label, hosts=list(lab.hosts), cpus=own, idle_poll=polling)


def _given_addresses(server: HostAddress, known: str | None) -> dict[int, str]:
    """The addresses of a given server for clients, by IP version; `known` is that of what launches its agent. The plan
    has checked that a local server has local clients."""
    if server.addresses:
        return {ip_address(address).version: address for address in server.addresses}
    if known is not None:
        return {ip_address(known).version: known}
    if server.is_local:
        return {4: "127.0.0.1", 6: "::1"}
    try:
        found = socket.getaddrinfo(server.host, None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):
        # The name may exist only in the SSH configuration, and may be invalid in DNS; the clients may still resolve it.
        return dict.fromkeys((4, 6), server.host)
    families = {socket.AF_INET: 4, socket.AF_INET6: 6}
    return {families[family]: str(address[0]) for family, *_, address in reversed(found) if family in families}


async def _own_addresses(agent: Agent) -> frozenset[str]:
    view = await agent.inspect()
    return frozenset(address.partition("/")[0] for interface in view.interfaces for address in interface.addresses)


def _check_addresses(named: Mapping[str, HostAddress], own: Mapping[str, frozenset[str]]) -> None:
    """Check that clients and gateways have the addresses that the plan gives them; otherwise they are other hosts.

    The server is not checked: its address may be a translated one.

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
                hint=f"fix hosts.{name.rstrip('0123456789')}: its ssh or its address belongs to another host",
            )


def _on_one_stack(env: Environment, own: Mapping[str, frozenset[str]]) -> dict[str, list[str]]:
    """Each gateway, with the clients and servers on the same interfaces: all their traffic is counted there,
    whichever path it takes."""
    ends = (*env.clients, SERVER)

    def same(one: str, other: str) -> bool:
        boots = [env.agents[name].hello.host.boot_id for name in (one, other)]
        return boots[0] == boots[1] and own[one] == own[other]

    return {gateway: [end for end in ends if same(gateway, end)] for gateway in env.gateways}


def _bind(env: Environment, own: frozenset[str]) -> list[str]:
    """The addresses that the server binds to: those that the clients use; all if the clients use another one
    (NAT)."""
    return sorted(set(env.server_address.values()) & own) or ["0.0.0.0", "::"]


async def observe(env: Environment, trial: str | None, period_ms: int, event_log: EventLog) -> None:
    """Observe every host from now on, with samples labelled `trial`; hosts on one machine share one reading of it."""
    seen_boots: set[str | None] = set()
    crowd = math.ceil(len(env.clients) / _CLIENTS_AT_FULL_RATE) if env.lab is not None else 1
    # Gateways first: if hosts share a machine, the measured host reports its CPUs.
    emulator = (env.emulator,) if env.emulator is not None else ()

    async def order(name: str, period: int, machine: bool) -> None:
        try:
            await env.agents[name].observe(trial, period, machine)
        except AgentLost as error:
            if not env.goes_on_without(name, error):
                raise

    orders = []
    for name in (*env.gateways, SERVER, *env.clients, *emulator):
        boot = env.agents[name].hello.host.boot_id
        period = period_ms * crowd if name in env.clients else period_ms
        orders.append(order(name, period, boot is None or boot not in seen_boots))
        seen_boots.add(boot)
        event_log.record("observe", host=name, trial=trial, period_ms=period)
    # Together: a host whose connection is slow does not hold up the others.
    await asyncio.gather(*orders)


async def observe_afterwards(env: Environment, trial: str, period_ms: int, event_log: EventLog) -> None:
    """Observe on under another label, so that the time after a test does not count as the test's. Given hosts are not
    taken down: the gateways' counters there are read once more.
    """
    if env.lab is None:
        await observe_once_more(env, trial, period_ms, event_log)
    else:
        await observe(env, trial, period_ms, event_log)


async def observe_once_more(env: Environment, trial: str, period_ms: int, event_log: EventLog) -> None:
    """Read every gateway's counters after a test's end; a gateway that does not answer in time is skipped."""
    waiting = set(env.gateways)
    heard = asyncio.Event()

    def on_observation(host: str, observation: UnreadObservation) -> None:
        if observation.read().trial == trial:
            waiting.discard(host)
        if not waiting:
            heard.set()

    end = event_log.listen_to_observations(on_observation)
    try:
        await observe(env, trial, period_ms, event_log)
        with suppress(TimeoutError):
            await asyncio.wait_for(heard.wait(), _LAST_LOOK_S)
    finally:
        end()


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
    kept = {name for test in env.case.tests for name in test.kept_names}

    def tell_silence(host: str, silent_s: float) -> None:
        event_log.notify(HostSilent(host, silent_s))

    async def start(name: str, launch: Launch) -> None:
        try:
            env.agents[name] = await Agent.start(
                name, launch, sink=event_log.on_event, logs=logs, kept=kept, on_silence=tell_silence
            )
        except AgentLost as error:
            if not env.goes_on_without(name, error):
                raise

    async with asyncio.TaskGroup() as group:
        for name, launch in launches.items():
            group.create_task(start(name, launch))


async def _compare_clocks(env: Environment, event_log: EventLog) -> None:
    async def compare(name: str, agent: Agent) -> None:
        try:
            env.clocks[name] = found = await agent.compare_clocks()
        except AgentLost as error:
            if not env.goes_on_without(name, error):
                raise
            return
        event_log.record("clock", host=name, offset_ns=found.offset_ns, bound_ns=found.bound_ns)

    async with asyncio.TaskGroup() as group:
        for name, agent in env.agents.items():
            group.create_task(compare(name, agent))
