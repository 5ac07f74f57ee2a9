"""Where a trial happens: hosts with an agent each, made by the lab or given by the plan, compared clocks, a server.

Owns the order of setting up and of giving back. Knows nothing of systems under test or loads.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from leadline.errors import InputError, LeadlineError
from leadline.fleet import Agent, ClockComparison, Launch, agent_binary, launch_on
from leadline.lab import topology
from leadline.lab.hosts import Lab
from leadline.plan import Case, HttpTest
from leadline.plan.hosts import GATEWAYS, HostAddress
from leadline.sut import Site
from leadline.trial.ledger import Ledger
from leadline.trial.workloads import SESSION_PORT, serve_everything

SERVER = "server"
SERVE_TASK = "serve"
# Watching costs about 0.2 % of a core per host and 10 samples a second; many clients on one machine share what four
# would use, so that watching a hundred does not become a load of its own.
_CLIENTS_AT_FULL_RATE = 4
# The transaction that proves a client connected may take so long.
_PROBE_MS = 10_000


@dataclass(slots=True)
class Place:
    """Hosts that are ready to measure. `aclose` it whatever happens."""

    case: Case
    label: str
    lab: Lab | None
    agents: dict[str, Agent] = field(default_factory=dict)
    clocks: dict[str, ClockComparison] = field(default_factory=dict)
    server_address: dict[int, str] = field(default_factory=dict)

    @property
    def clients(self) -> tuple[str, ...]:
        """The hosts that send the load."""
        return tuple(f"client{number}" for number in range(1, self.case.clients + 1))

    @property
    def gateways(self) -> tuple[str, ...]:
        """The hosts that the system under test runs on, the clients' side first."""
        return GATEWAYS[self.case.topology]

    def site(self, folder: Path, logs: Path) -> Site:
        """The place as a system under test sees it; only a lab has one."""
        if self.lab is None:
            raise InputError("given hosts are measured as they are", hint="use sut: {kind: route} with hosts")
        return Site(
            lab=self.lab,
            agents=self.agents,
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

    async def roll_call(self) -> None:
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


async def build(case: Case, label: str, ledger: Ledger) -> Place:
    """Hosts, agents, clocks, and the server answering; nothing is left behind when it fails.

    Raises:
        LeadlineError: what could not be had, by name.
    """
    place = Place(case, label, None)
    try:
        if case.hosts is None:
            place.lab = await asyncio.to_thread(Lab.build, _layout(case), label)
            launches = _lab_launches(place.lab)
            place.server_address = _server_addresses(place.lab)
        else:
            named = case.hosts.named(case.topology)
            launches = {name: launch_on(address) for name, address in named.items()}
            place.server_address = await asyncio.to_thread(_given_addresses, named)
        await _start_agents(place, launches, ledger)
        await _compare_clocks(place, ledger)
        bind = await _bind(place)
        longest_ms = max(test.longest_ms for test in case.tests) + _PROBE_MS
        https = any(isinstance(test, HttpTest) and test.scheme == "https" for test in case.tests)
        serving = serve_everything(bind, longest_ms, https=https)
        await place.agents[SERVER].prepare(f"{label}/setup", SERVE_TASK, serving)
    except BaseException:
        await place.aclose()
        raise
    return place


def _given_addresses(named: Mapping[str, HostAddress]) -> dict[int, str]:
    """Where clients reach a given server, by IP version; that a local one has local clients, the plan has checked."""
    server = named[SERVER]
    if server.local:
        return {4: "127.0.0.1", 6: "::1"}
    try:
        found = socket.getaddrinfo(server.host, None, type=socket.SOCK_STREAM)
    except socket.gaierror:
        # A name of the SSH configuration alone: the clients may still know it.
        return dict.fromkeys((4, 6), server.host)
    families = {socket.AF_INET: 4, socket.AF_INET6: 6}
    return {families[family]: str(address[0]) for family, *_, address in reversed(found) if family in families}


async def _bind(place: Place) -> list[str]:
    """The addresses that the clients use and the server has; every one only where it is reached by another (NAT)."""
    wanted = set(place.server_address.values())
    view = await place.agents[SERVER].inspect()
    own = {address.partition("/")[0] for interface in view.interfaces for address in interface.addresses}
    return sorted(wanted & own) or ["0.0.0.0", "::"]


async def observe(place: Place, trial: str | None, period_ms: int, ledger: Ledger) -> None:
    """Watch every host from now on, its samples labelled `trial`; what hosts on one machine share is read once."""
    seen_boots: set[str | None] = set()
    crowd = math.ceil(len(place.clients) / _CLIENTS_AT_FULL_RATE) if place.lab is not None else 1
    # Gateways first: where hosts share a machine, its CPUs are told by the host that the measurement is about.
    for name in (*place.gateways, SERVER, *place.clients):
        agent = place.agents[name]
        boot = agent.hello.host.boot_id
        period = period_ms * crowd if name in place.clients else period_ms
        await agent.observe(trial, period, boot is None or boot not in seen_boots)
        seen_boots.add(boot)
        ledger.record("observe", host=name, trial=trial, period_ms=period)


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


async def _start_agents(place: Place, launches: Mapping[str, Launch], ledger: Ledger) -> None:
    async def start(name: str, launch: Launch) -> None:
        place.agents[name] = await Agent.start(name, launch, sink=ledger.hear)

    async with asyncio.TaskGroup() as group:
        for name, launch in launches.items():
            group.create_task(start(name, launch))


async def _compare_clocks(place: Place, ledger: Ledger) -> None:
    async def compare(name: str, agent: Agent) -> None:
        place.clocks[name] = found = await agent.compare_clocks()
        ledger.record("clock", host=name, offset_ns=found.offset_ns, bound_ns=found.bound_ns)

    async with asyncio.TaskGroup() as group:
        for name, agent in place.agents.items():
            group.create_task(compare(name, agent))
