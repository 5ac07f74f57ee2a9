"""How clients are counted, with agents that answer what a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sites import POOL, SERVER_LAN, site_of

from leadline.contract.models import (
    Exited,
    InterfaceView,
    NetworkView,
    OutputLine,
    Prepared,
    RouteView,
    RrWorkload,
)
from leadline.errors import AgentLost, NoClientConnected, SutFailed, TaskFailed
from leadline.sut import client_bringup
from leadline.sut.client_bringup import ClientPlan, Hooks, connect, unless_dead
from leadline.sut.daemons import Daemon, Daemons
from leadline.sut.expectation import Expectation
from leadline.sut.model import Site


@dataclass
class FakeAgent:
    """Answers like an agent whose client came up, unless told otherwise."""

    host: str
    address: str = "10.83.0.2"
    ready_ns: int = 250_000_000
    silent: bool = False
    dead: int | None = None
    answers_after: int = 1
    refuses: str | None = None
    stopped: list[str] = field(default_factory=list)
    probes: int = 0
    end: asyncio.Event = field(default_factory=asyncio.Event)
    said: tuple[str, ...] = ()

    async def prepare(self, trial: str, task: str, workload: Any, timeout_s: float = 0) -> Prepared:
        if self.refuses:
            raise TaskFailed(self.host, task, "not_found", self.refuses)
        if isinstance(workload, RrWorkload):
            self.probes += 1
            if self.probes < self.answers_after:
                raise TaskFailed(self.host, task, "timeout", "waited in vain")
        return Prepared(trial=trial, task=task, t_ns=50_000_000, pid=1)

    async def begin(self, trial: str, at_ns: int) -> None: ...

    async def stop(self, trial: str, task: str) -> None:
        self.stopped.append(task)
        self.end.set()

    async def finished(self, trial: str, task: str, timeout_s: float) -> Any:
        flows = [SimpleNamespace(received_units=1)]
        return SimpleNamespace(outcome=SimpleNamespace(flows=flows, errors={}))

    async def exited(self, trial: str, task: str, timeout_s: float | None = None) -> Exited:
        await self.end.wait()
        return Exited(trial=trial, task=task, t_ns=1, code=self.dead, signal=None, expected=self.dead is None)

    async def output(self, trial: str, task: str, containing: str | tuple[str, ...], timeout_s: float) -> OutputLine:
        if self.dead is not None:
            raise TaskFailed(self.host, task, "exited", f"it exited with {self.dead}")
        if self.silent:
            raise TaskFailed(self.host, task, "timeout", "waited in vain")
        texts = (containing,) if isinstance(containing, str) else containing
        line = next((line for line in self.said if any(text in line for text in texts)), texts[0])
        return OutputLine(trial=trial, task=task, t_ns=self.ready_ns, line=line)

    def lines(self, trial: str, task: str) -> tuple[OutputLine, ...]:
        return tuple(OutputLine(trial=trial, task=task, t_ns=self.ready_ns, line=line) for line in self.said)

    async def inspect(self) -> NetworkView:
        routes = [RouteView(destination=str(net), gateway=None, interface="tun0") for net in SERVER_LAN.values()]
        held = [f"{self.address}/16", f"fd83::{self.address.rpartition('.')[2]}/64"]
        return NetworkView(interfaces=[InterfaceView(name="tun0", up=True, mtu=1500, addresses=held)], routes=routes)


def setting(tmp_path: Path, *agents: FakeAgent) -> tuple[Site, Daemons, list[ClientPlan]]:
    by_host: Any = {agent.host: agent for agent in agents}
    site = site_of(by_host, tmp_path, list(by_host))
    expected = Expectation("tun0", POOL, tuple(SERVER_LAN.values()))
    plans = [
        ClientPlan(host, Daemon("client", ("vpn",), tmp_path / f"{host}.log", ("up",), host), "up", expected)
        for host in by_host
    ]
    return site, Daemons(site), plans


HOOKS = Hooks()
up: Callable[..., Any] = connect


async def test_connected_with_the_time_by_the_hosts_clock(tmp_path: Path) -> None:
    configured: list[str] = []

    async def configure(plan: ClientPlan) -> None:
        configured.append(plan.client)

    site, daemons, plans = setting(tmp_path, FakeAgent("client1"))
    hooks = Hooks(configure=configure)
    [state] = await up(site, daemons, plans, hooks)
    assert (state.host, state.state, state.time_s, state.missing) == ("client1", "connected", 0.2, ())
    assert configured == ["client1"]


async def test_each_client_counts_for_itself(tmp_path: Path) -> None:
    agents = [
        FakeAgent("client1", "10.83.0.2"),
        FakeAgent("client2", "192.0.2.3"),
        FakeAgent("client3", "10.83.0.4", silent=True),
        FakeAgent("client4", "10.83.0.5", dead=1),
        FakeAgent("client5", "10.83.0.6", refuses="no such file"),
        FakeAgent("client6", "10.83.0.2"),
        FakeAgent("client7", "10.83.0.8", answers_after=99),
        FakeAgent("client8", "10.83.0.9", answers_after=3),
    ]
    agents[3].end.set()
    site, daemons, plans = setting(tmp_path, *agents)
    hooks = Hooks(explain=lambda plan: "the pool is empty" if plan.client == "client2" else None)
    states = await up(site, daemons, plans, hooks)
    assert [(state.state, state.missing, state.cause) for state in states] == [
        ("connected", (), None),
        ("partial", ("ipv4 address",), "the pool is empty"),
        ("failed", (), "no answer in 60 s"),
        ("failed", (), "client on client4: it exited with 1"),
        ("failed", (), "client on client5: no such file"),
        ("partial", ("unique address",), "client1 has the same address, 10.83.0.2"),
        ("partial", ("traffic",), "over IPv4 to 10.82.0.2: no answer"),
        ("connected", (), None),
    ]
    assert agents[2].stopped == ["client"]
    assert agents[0].stopped == []
    assert [agent.probes for agent in agents] == [1, 0, 0, 0, 0, 0, 3, 3]


async def test_client_that_stops_trying_is_partial_if_the_gateway_accepted_it(tmp_path: Path) -> None:
    agents = [
        FakeAgent("client1"),
        FakeAgent("client2", said=("gave up",)),
        FakeAgent("client3", "10.83.0.4", said=("accepted", "gave up")),
        FakeAgent("client4", "192.0.2.3", said=("accepted", "gave up")),
    ]
    site, daemons, plans = setting(tmp_path, *agents)
    plans = [replace(plan, refused="gave up", accepted="accepted") for plan in plans]
    hooks = Hooks(explain=lambda plan: "there is no common cipher")
    states = await up(site, daemons, plans, hooks)
    assert [(state.state, state.missing) for state in states] == [
        ("connected", ()),
        ("failed", ()),
        ("partial", ("traffic",)),
        ("partial", ("ipv4 address",)),
    ]
    assert {state.cause for state in states[1:]} == {"there is no common cipher"}
    assert [agent.stopped for agent in agents] == [[], ["client"], [], []], "a refused client goes on trying"


async def test_symptom_stands_where_no_cause_becomes_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_bringup, "_LOOK_AGAIN_S", 0.0)
    site, daemons, plans = setting(tmp_path, FakeAgent("client1"), FakeAgent("client2", said=("gave up",)))
    plans = [replace(plan, refused="gave up") for plan in plans]
    hooks = Hooks(explain=lambda plan: None, symptom=lambda plan: "the gateway refused it")
    states = await up(site, daemons, plans, hooks)
    assert [(state.state, state.cause) for state in states] == [
        ("connected", None),
        ("failed", "the gateway refused it"),
    ]


async def test_cause_that_the_gateway_logs_after_its_client_is_awaited(tmp_path: Path) -> None:
    """The gateway's output comes by another agent: it is there at the third look alone."""
    site, daemons, plans = setting(tmp_path, FakeAgent("client1", "10.83.0.2"), FakeAgent("client2", "192.0.2.3"))
    causes = iter([None, None, "the pool is empty"])
    states = await up(site, daemons, plans, Hooks(explain=lambda plan: next(causes)))
    assert [(state.state, state.cause) for state in states] == [("connected", None), ("partial", "the pool is empty")]


async def test_failure_of_all_clients_keeps_their_states(tmp_path: Path) -> None:
    site, daemons, plans = setting(tmp_path, FakeAgent("client1", silent=True), FakeAgent("client2", silent=True))
    with pytest.raises(NoClientConnected, match="none of 2 clients is connected: client1 failed: no answer") as caught:
        await up(site, daemons, plans, HOOKS)
    assert [state.state for state in caught.value.clients] == ["failed", "failed"]


async def test_a_client_program_that_fails_is_quoted(tmp_path: Path) -> None:
    site, daemons, plans = setting(tmp_path, FakeAgent("client1"), *(FakeAgent(f"client{n}", dead=2) for n in (2, 3)))
    said = ["starting", "panic: unknown proto \x1b[31mudp4", "", "goroutine 1 [running]:", "main.main()", "\t/x.go:30"]
    plans[1].daemon.log.write_text("\n".join(said))
    plans[2].daemon.log.write_text("bad flag\nusage: vpn FILE\n")
    states = await up(site, daemons, plans, HOOKS)
    assert [state.cause for state in states[1:]] == [
        "client on client2: it exited with 2; it said: panic: unknown proto [31mudp4",
        "client on client3: it exited with 2; it said: usage: vpn FILE",
    ]


async def test_what_is_missing_without_a_cause_ends_the_message(tmp_path: Path) -> None:
    site, daemons, plans = setting(tmp_path, FakeAgent("client1", "192.0.2.3"))
    with pytest.raises(NoClientConnected) as caught:
        await up(site, daemons, plans, HOOKS)
    assert str(caught.value) == "none of 1 clients is connected: client1 partial, ipv4 address missing"


async def test_a_lost_agent_ends_it_all(tmp_path: Path) -> None:
    class Lost(FakeAgent):
        async def inspect(self) -> NetworkView:
            raise AgentLost(self.host, "gone")

    site, daemons, plans = setting(tmp_path, FakeAgent("client1"), Lost("client2", "10.83.0.3"))
    with pytest.raises(AgentLost, match="client2"):
        await up(site, daemons, plans, HOOKS)


async def test_a_gateway_that_dies_meanwhile_is_the_cause(tmp_path: Path) -> None:
    gateway = FakeAgent("gateway", dead=1)
    _, daemons, [plan] = setting(tmp_path, gateway)
    plan.daemon.log.write_text("one\n\ntwo\nthree\nfour\nfive\n")
    await daemons.start(plan.daemon)
    gateway.end.set()
    never = asyncio.Event()
    with pytest.raises(SutFailed, match=r"client on gateway exited with 1; its log ends: two \| three \| four \| five"):
        await unless_dead(daemons, plan.daemon, never.wait())


async def test_a_log_line_that_the_message_quotes_is_not_repeated(tmp_path: Path) -> None:
    _, daemons, [plan] = setting(tmp_path, FakeAgent("gateway"))
    await daemons.start(plan.daemon)
    plan.daemon.log.write_text("reads its options\nOptions error: no such cipher\nuse --help\n")
    said = await daemons.with_log_end(plan.daemon, "it refuses its options: Options error: no such cipher")
    assert said.count("no such cipher") == 1
    assert said.endswith("no such cipher; its log ends: reads its options | use --help")
    plan.daemon.log.write_text("Options error: no such cipher\n")
    assert await daemons.with_log_end(plan.daemon, "Options error: no such cipher") == "Options error: no such cipher"


async def test_work_ends_as_itself_while_the_gateway_lives(tmp_path: Path) -> None:
    _, daemons, [plan] = setting(tmp_path, FakeAgent("gateway"))
    await daemons.start(plan.daemon)
    assert await unless_dead(daemons, plan.daemon, asyncio.sleep(0, "done")) == "done"

    async def fails() -> None:
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        await unless_dead(daemons, plan.daemon, fails())


async def test_stopping_is_idempotent_and_outlives_lost_agents(tmp_path: Path) -> None:
    class Lost(FakeAgent):
        async def stop(self, trial: str, task: str) -> None:
            raise AgentLost(self.host, "gone")

    fine = FakeAgent("client1")
    _, daemons, plans = setting(tmp_path, fine, Lost("client2"))
    for plan in plans:
        await daemons.start(plan.daemon)
    await daemons.stop_all()
    await daemons.stop_all()
    assert fine.stopped == ["client"]
