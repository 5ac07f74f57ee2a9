"""The same conversation with the agent itself, over loopback."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from leadline.agents import Agent, Event, Launch, agent_binary, start_instant
from leadline.contract.models import ProcessWorkload, RrWorkload, ServeWorkload, Target
from leadline.errors import AgentLost, MissingBinary, TaskFailed
from leadline.trial.workloads import PLAIN_ANSWER

pytestmark = pytest.mark.agent

SERVE = ServeWorkload(bind=["127.0.0.1"], port=0, http_port=None, answer=PLAIN_ANSWER, longest_ms=60_000, most_flows=4)


@pytest.fixture
def heard() -> list[Event]:
    return []


@pytest_asyncio.fixture
async def agent(heard: list[Event]) -> AsyncIterator[Agent]:
    try:
        binary = agent_binary()
    except MissingBinary as error:
        pytest.skip(str(error))
    started = await Agent.start("here", Launch((str(binary),), 30), sink=lambda host, event, _line: heard.append(event))
    yield started
    await started.close()


def process(*argv: str, report: str = "ready") -> ProcessWorkload:
    return ProcessWorkload(
        name=argv[0], argv=list(argv), cwd=None, env={"LEADLINE": "1"}, log=None, report=[report], grace_ms=60_000
    )


async def test_local_agent_shares_the_clock(agent: Agent) -> None:
    assert agent.hello.host.boot_id
    before_ns = time.monotonic_ns()
    comparison = await agent.compare_clocks()
    assert (comparison.same_clock, comparison.offset_ns, comparison.exchanges) == (True, 0, 32)
    assert start_instant({"here": comparison}, now_ns=before_ns, ahead_ms=1) == {"here": before_ns + 1_000_000}


async def test_wake_ups_of_an_idle_cpu_are_measured(agent: Agent) -> None:
    run_before_other_work(agent.hello.pid)
    found = await agent.measure_wake_up(30)
    if found is None:
        pytest.skip("this machine is too busy")
    assert 20 <= found.samples <= 200
    assert 0 < found.thread_p50_us <= found.thread_p99_us and 0 <= found.timer_p50_us <= found.timer_p99_us
    assert {cpu.root for cpu in found.cpus} <= os.sched_getaffinity(agent.hello.pid)


def run_before_other_work(pid: int) -> None:
    """Raise the priority of a process's threads and of those that they start: beside other work there may be too few
    wake-ups. Only root may."""
    with suppress(PermissionError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), -20)


async def test_a_transaction_with_its_own_server(agent: Agent) -> None:
    serve = await agent.prepare("t/setup", "serve", SERVE)
    assert serve.port
    rr = RrWorkload(
        target=Target(host="127.0.0.1", port=serve.port, ip_version=None),
        protocol="tcp",
        flows=1,
        threads=1,
        duration_ms=20_000,
        number=5,
        warmup_ms=0,
        request_bytes=1,
        response_bytes=1,
        timeout_ms=20_000,
        bind=None,
        interval_ms=100,
    )
    ready = await agent.prepare("t/rr", "rr", rr)
    await agent.begin("t/rr", ready.t_ns)
    finished = await agent.finished("t/rr", "rr", 30)
    assert [flow.received_units for flow in finished.outcome.flows] == [5]
    assert finished.outcome.errors == {}


async def test_a_process_from_its_first_line_to_its_end(agent: Agent, heard: list[Event]) -> None:
    started = await agent.prepare("t", "daemon", process("sh", "-c", "echo no; echo ready $LEADLINE; exec sleep 600"))
    line = await agent.output("t", "daemon", "ready", 30)
    assert line.line == "ready 1"
    assert line.t_ns >= started.t_ns
    await agent.stop("t", "daemon")
    exited = await agent.exited("t", "daemon", 30)
    assert (exited.signal, exited.expected) == (signal.SIGTERM, True)
    assert exited in heard


async def test_a_process_that_ends_unasked(agent: Agent) -> None:
    await agent.prepare("t", "daemon", process("sh", "-c", "echo broken; exit 7", report="broken"))
    exited = await agent.exited("t", "daemon", 30)
    assert (exited.code, exited.expected) == (7, False)
    with pytest.raises(TaskFailed, match="it exited with 7: broken"):
        await agent.output("t", "daemon", "ready", 30)


async def test_missing_daemon_program_fails_its_task(agent: Agent) -> None:
    with pytest.raises(TaskFailed, match="/nonexistent/daemon"):
        await agent.prepare("t", "daemon", process("/nonexistent/daemon"))


async def test_a_port_that_is_taken(agent: Agent) -> None:
    first = await agent.prepare("t", "first", SERVE)
    with pytest.raises(TaskFailed) as caught:
        await agent.prepare("t", "second", SERVE.model_copy(update={"port": first.port}))
    assert caught.value.code == "address_in_use"


async def test_inspect_sees_loopback(agent: Agent) -> None:
    view = await agent.inspect()
    loopback = next(interface for interface in view.interfaces if interface.name == "lo")
    assert "127.0.0.1/8" in loopback.addresses


async def test_a_killed_agent_is_lost_and_takes_its_process_along(agent: Agent) -> None:
    daemon = await agent.prepare("t", "daemon", process("sh", "-c", "echo ready; exec sleep 600"))
    await agent.output("t", "daemon", "ready", 30)
    assert daemon.pid is not None
    child = os.pidfd_open(daemon.pid)
    try:
        waiting = asyncio.create_task(agent.exited("t", "daemon"))
        os.kill(agent.hello.pid, signal.SIGKILL)
        with pytest.raises(AgentLost, match="SIGKILL"):
            await waiting
        async with asyncio.timeout(30):
            await _readable(child)
    finally:
        os.close(child)


async def test_closing_ends_what_it_started(agent: Agent, heard: list[Event]) -> None:
    daemon = await agent.prepare("t", "daemon", process("sh", "-c", "echo ready; exec sleep 600"))
    await agent.output("t", "daemon", "ready", 30)
    assert daemon.pid is not None
    child = os.pidfd_open(daemon.pid)
    try:
        await agent.close()
        assert agent._channel.ended
        async with asyncio.timeout(30):
            await _readable(child)
    finally:
        os.close(child)
    # An agent that took too long to close has no last words.
    assert all(event.expected for event in heard if event.type == "exited")


async def _readable(descriptor: int) -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, done.set)
    try:
        await done.wait()
    finally:
        loop.remove_reader(descriptor)
