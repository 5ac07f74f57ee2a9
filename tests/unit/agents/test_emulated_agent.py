"""The agent for aarch64, run by an emulator: it says what it is and what it lacks, and its loads count exactly."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from emulated_host import ARCHITECTURE, EmulatedHost, make_emulated_host
from leadline.agents import Agent, Event, Launch, UnreadObservation, agent_binary, start_instant
from leadline.agents.deployment import Deployment
from leadline.contract.models import (
    Finished,
    ProcessWorkload,
    RrWorkload,
    ServeWorkload,
    Target,
    TcpWorkload,
)
from leadline.trial.workloads import PLAIN_ANSWER

pytestmark = [pytest.mark.agent, pytest.mark.takes(7)]

SERVE = ServeWorkload(bind=["127.0.0.1"], port=0, http_port=None, answer=PLAIN_ANSWER, longest_ms=60_000, most_flows=4)
WITHIN_S = 120


def ignore(host: str, event: Event, line: bytes) -> None:
    """What agents say is read from their tasks."""


@pytest.fixture
def heard() -> list[Event]:
    return []


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> EmulatedHost:
    return make_emulated_host(tmp_path_factory.mktemp("host"))


@pytest_asyncio.fixture
async def emulated(host: EmulatedHost, heard: list[Event]) -> AsyncIterator[Agent]:
    launch = Launch(host.argv, WITHIN_S)
    started = await Agent.start("arm", launch, sink=lambda host, event, _line: heard.append(event))
    yield started
    await started.close()


@pytest_asyncio.fixture
async def own() -> AsyncIterator[Agent]:
    started = await Agent.start("here", Launch((str(agent_binary()),), WITHIN_S), sink=ignore)
    yield started
    await started.close()


async def test_it_says_what_it_is_and_what_it_lacks(emulated: Agent, own: Agent) -> None:
    assert emulated.hello.host.architecture == ARCHITECTURE
    assert emulated.hello.agent_version == own.hello.agent_version
    assert emulated.hello.host.boot_id == own.hello.host.boot_id
    capabilities = {found.name: found for found in emulated.hello.capabilities}
    assert set(capabilities) == {found.name for found in own.hello.capabilities}
    assert not capabilities["io_uring"].available
    assert capabilities["io_uring"].reason == "this kernel has no io_uring"
    assert all(found.reason for found in emulated.hello.capabilities if not found.available)


async def test_its_clock_is_compared(emulated: Agent) -> None:
    now_ns = time.monotonic_ns()
    comparison = await emulated.compare_clocks()
    assert (comparison.same_clock, comparison.offset_ns, comparison.exchanges) == (True, 0, 32)
    assert start_instant({"arm": comparison}, now_ns=now_ns, ahead_ms=1) == {"arm": now_ns + 1_000_000}


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("asks", ["it asks", "it answers"])
async def test_transactions_with_another_architecture_are_all_counted(
    emulated: Agent, own: Agent, asks: str, protocol: str
) -> None:
    client, server = (emulated, own) if asks == "it asks" else (own, emulated)
    rr = RrWorkload(
        target=await serve(server),
        protocol="udp" if protocol == "udp" else "tcp",
        flows=2,
        threads=1,
        duration_ms=60_000,
        number=200,
        warmup_ms=0,
        request_bytes=100,
        response_bytes=1000,
        timeout_ms=20_000,
        interval_ms=1000,
    )
    outcome = (await run_load(client, rr)).outcome
    assert sum(flow.received_units or 0 for flow in outcome.flows) == 200
    assert sum(flow.received_bytes or 0 for flow in outcome.flows) == 20_000, "what the server got"
    assert outcome.errors == {}


@pytest.mark.parametrize("sends", ["it sends", "it receives"])
async def test_bytes_between_architectures_are_all_counted(emulated: Agent, own: Agent, sends: str) -> None:
    client, server = (emulated, own) if sends == "it sends" else (own, emulated)
    tcp = TcpWorkload(
        target=await serve(server),
        direction="up",
        flows=2,
        threads=1,
        duration_ms=500,
        warmup_ms=0,
        block_bytes=65536,
        interval_ms=100,
    )
    outcome = (await run_load(client, tcp)).outcome
    assert len(outcome.flows) == 2
    assert all(flow.sent_bytes and flow.sent_bytes == flow.received_bytes for flow in outcome.flows)
    # The emulation lacks TCP_INFO: what it would say is absent, not 0.
    assert [flow.rtt_mean_us is None for flow in outcome.flows] == [sends == "it sends"] * 2
    assert outcome.errors == {}


async def test_its_host_gets_the_agent_of_its_architecture(host: EmulatedHost) -> None:
    deployment = Deployment({"x86_64": agent_binary(), ARCHITECTURE: host.agent})
    launch = await deployment.launch("arm", host.launcher)
    assert Path(launch.argv[0]).is_relative_to(host.folder / "home")
    agent = await Agent.start("arm", launch, sink=ignore)
    try:
        assert agent.hello.host.architecture == ARCHITECTURE
    finally:
        await agent.close()


async def test_what_it_observes_is_that_of_the_machine(emulated: Agent, heard: list[Event]) -> None:
    assert any("127.0.0.1/8" in interface.addresses for interface in (await emulated.inspect()).interfaces)
    await emulated.observe(None, 50, machine=True, soak=True)
    async with asyncio.timeout(WITHIN_S):
        while not (lines := [event for event in heard if isinstance(event, UnreadObservation)]):
            await emulated.compare_clocks(1)
    sample = lines[0].read()
    machine = sample.machine
    assert machine is not None
    assert len(machine.cpus) == os.cpu_count()
    # The soaker is a process of the same program, which this machine starts only where it knows the emulator (binfmt).
    assert not sample.soaker or len(sample.soaker) == len(os.sched_getaffinity(0))


async def test_programs_of_the_host_run_below_it(emulated: Agent) -> None:
    daemon = ProcessWorkload(
        name="sh", argv=["sh", "-c", "echo ready; exec sleep 600"], env={}, report=["ready"], grace_ms=60_000
    )
    await emulated.prepare("t", "daemon", daemon)
    await emulated.output("t", "daemon", "ready", WITHIN_S)
    await emulated.stop("t", "daemon")
    exited = await emulated.exited("t", "daemon", WITHIN_S)
    assert (exited.signal, exited.expected) == (signal.SIGTERM, True)


async def serve(server: Agent) -> Target:
    prepared = await server.prepare("t/setup", "serve", SERVE)
    assert prepared.port
    return Target(host="127.0.0.1", port=prepared.port, ip_version=None)


async def run_load(client: Agent, load: RrWorkload | TcpWorkload) -> Finished:
    ready = await client.prepare("t/load", "load", load, WITHIN_S)
    await client.begin("t/load", ready.t_ns)
    return await client.finished("t/load", "load", WITHIN_S)
