"""The conversation with an agent, against one that plays a part (`scripted_agent.py`)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from leadline.agents import Agent, Event, Launch, UnreadObservation, channel
from leadline.agents import agent as agent_module
from leadline.contract.models import Exited, ProcessWorkload, ServeWorkload
from leadline.errors import AgentLost, MissingBinary, TaskFailed
from leadline.trial.workloads import PLAIN_ANSWER

SCRIPT = Path(__file__).with_name("scripted_agent.py")
SERVE = ServeWorkload(bind=["127.0.0.1"], port=0, http_port=None, answer=PLAIN_ANSWER, longest_ms=1000, most_flows=1)
DAEMON = ProcessWorkload(name="d", argv=["true"], cwd=None, env={}, log=None, report=["x"], grace_ms=10)
Play = Callable[..., Awaitable[Agent]]


def launch(part: str, hello_within_s: float = 30.0) -> Launch:
    return Launch((sys.executable, "-I", str(SCRIPT), part), hello_within_s)


@pytest.fixture
def heard() -> list[tuple[str, Event]]:
    return []


@pytest_asyncio.fixture
async def play(heard: list[tuple[str, Event]]) -> AsyncIterator[Play]:
    agents: list[Agent] = []

    async def start(part: str, **options: float) -> Agent:
        agent = await Agent.start(
            "gateway", launch(part, **options), sink=lambda host, event, _line: heard.append((host, event))
        )
        agents.append(agent)
        return agent

    yield start
    await asyncio.gather(*(agent.close() for agent in agents))


async def test_every_event_after_the_greeting_reaches_the_sink(play: Play, heard: list[tuple[str, Event]]) -> None:
    agent = await play("obedient")
    assert agent.hello.agent_version == "0.1.0"
    assert agent.lost is None
    ready = await agent.prepare("t", "serve", SERVE)
    assert ready.port == 5201
    assert [event.type for host, event in heard if host == "gateway" and event.type != "heartbeat"] == [
        "hello",
        "prepared",
    ]


async def test_a_measuring_task_from_prepare_to_its_figures(play: Play) -> None:
    agent = await play("obedient")
    await agent.prepare("t", "load", SERVE)
    await agent.begin("t", 1)
    finished = await agent.finished("t", "load", timeout_s=30)
    assert finished.outcome.generator.wall_s == 1.0
    assert await agent.finished("t", "load", timeout_s=0) is finished


async def test_an_output_line_is_found_even_when_it_was_said_before(play: Play) -> None:
    agent = await play("obedient")
    await agent.prepare("t", "daemon", DAEMON)
    assert (await agent.output("t", "daemon", "Completed", 30)).line == "two: Completed"
    assert (await agent.output("t", "daemon", ["none", "up"], 30)).line == "one: up"
    assert [line.line for line in agent.lines("t", "daemon")] == ["one: up", "two: Completed"]
    assert agent.lines("t", "unheard of") == ()
    await agent.stop("t", "daemon")
    assert (await agent.exited("t", "daemon")).signal == 15


async def test_waiting_for_a_line_ends_with_the_process(play: Play) -> None:
    agent = await play("obedient")
    await agent.prepare("t", "crash", DAEMON)
    with pytest.raises(TaskFailed, match="crash on gateway: it exited with 1: FATAL no such cipher") as caught:
        await agent.output("t", "crash", "Completed", 30)
    assert caught.value.code == "exited"


async def test_a_failed_task_keeps_its_code(play: Play) -> None:
    agent = await play("obedient")
    with pytest.raises(TaskFailed, match="port 5201 is taken") as caught:
        await agent.prepare("t", "taken", SERVE)
    assert caught.value.code == "address_in_use"


async def test_no_answer_in_time_is_a_failure_of_the_task(play: Play) -> None:
    agent = await play("obedient")
    with pytest.raises(TaskFailed, match=r"waited 0\.01 s") as caught:
        await agent.prepare("t", "slow", SERVE, timeout_s=0.01)
    assert caught.value.code == "timeout"


async def test_a_failure_of_a_trial_reaches_each_of_its_tasks(play: Play) -> None:
    agent = await play("complaining")
    with pytest.raises(TaskFailed, match="no t") as caught:
        await agent.prepare("t", "load", SERVE)
    assert caught.value.code == "unknown_trial"


async def test_agent_that_lacks_a_command_is_lost_at_once(play: Play) -> None:
    agent = await play("older")
    with pytest.raises(AgentLost) as caught:
        await agent.prepare("t", "load", SERVE, 600)
    assert "agent 0.1.0 does not understand a command (not a command: unknown field" in caught.value.reason
    assert "install the agent that belongs to this leadline" in caught.value.reason


async def test_preparing_again_forgets_the_earlier_end(play: Play) -> None:
    agent = await play("obedient")
    await agent.prepare("t", "crash", DAEMON)
    await agent.exited("t", "crash")
    await agent.prepare("t", "crash", DAEMON)
    assert (await agent.exited("t", "crash")).code == 1


async def test_inspect_and_clocks(play: Play) -> None:
    agent = await play("obedient")
    view = await agent.inspect()
    assert view.routes[0].interface == "wan"
    comparison = await agent.compare_clocks(exchanges=8)
    assert comparison.exchanges == 8
    # Its stamps were taken on this clock between ours, and 5 µs added.
    assert comparison.offset_ns - comparison.bound_ns <= 6_000
    assert comparison.offset_ns + comparison.bound_ns >= 5_000


async def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    (tmp_path / "agent").write_text("no program")
    (tmp_path / "agent").chmod(0o755)
    with pytest.raises(AgentLost, match=r"agent on gateway is lost: .*/agent cannot be started: Exec format error"):
        await Agent.start("gateway", Launch((str(tmp_path / "agent"),)), sink=lambda *_: None)


async def test_failure_waits_for_the_loss(play: Play) -> None:
    agent = await play("obedient")
    failure = asyncio.create_task(agent.failure())
    agent._channel.kill()
    assert await failure is agent.lost
    assert await agent.failure() is agent.lost


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("stillborn", "exited with 3; its last stderr lines: no such namespace | sorry"),
        ("rude", "`heartbeat` came before `hello`"),
        ("newer", "speaks protocol 9, this is leadline"),
        ("changed", "agent 0.1.0 speaks protocol 2 (hello.mood: Extra inputs are not permitted), this is leadline"),
    ],
)
async def test_bad_greeting_is_named_as_the_cause(play: Play, part: str, reason: str) -> None:
    with pytest.raises(AgentLost) as caught:
        await play(part)
    assert caught.value.host == "gateway"
    assert reason in caught.value.reason


async def test_agent_without_greeting_is_lost(play: Play) -> None:
    with pytest.raises(AgentLost, match=r"sent no hello within 0\.1 s"):
        await play("mute", hello_within_s=0.1)


async def test_missing_agent_binary_is_named() -> None:
    with pytest.raises(MissingBinary, match="/nonexistent/leadline-agent is not installed"):
        await Agent.start("gateway", Launch(("/nonexistent/leadline-agent",)), sink=lambda *_: None)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("mortal", "ended by SIGKILL; its last stderr lines: out of memory"),
        ("babbling", "not in the contract: Invalid JSON"),
    ],
)
async def test_a_loss_reaches_all_who_wait_and_all_who_come_later(play: Play, part: str, reason: str) -> None:
    agent = await play(part)
    waiting = [
        asyncio.create_task(work)
        for work in (agent.prepare("t", "a", SERVE, 30), agent.inspect(30), agent.exited("t", "b"))
    ]
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, AgentLost)
        assert reason in result.reason
    assert agent.lost is not None
    with pytest.raises(AgentLost):
        await agent.begin("t", 1)


async def test_observations_before_a_garbled_one_reach_the_sink_and_none_after_it(
    play: Play, heard: list[tuple[str, Event]]
) -> None:
    agent = await play("garbling")
    with pytest.raises(AgentLost, match="not in the contract: Invalid JSON"):
        await agent.inspect(30)
    await agent.close()
    first, second = [event for _, event in heard if isinstance(event, UnreadObservation)]
    assert first.read() == second.read()


async def test_lines_before_the_loss_are_still_returned(play: Play) -> None:
    agent = await play("obedient")
    await agent.prepare("t", "crash", DAEMON)
    exited = await agent.exited("t", "crash")
    agent._lose("test")
    assert await agent.exited("t", "crash") is exited


async def test_a_line_without_end_is_bounded(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "LINE_LIMIT_BYTES", 4096)
    agent = await play("endless")
    with pytest.raises(AgentLost, match="longer than 4096 bytes"):
        await agent.inspect(30)


async def test_an_agent_without_heartbeat_is_lost(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "SILENCE_S", 0.05)
    monkeypatch.setattr(agent_module, "WATCH_PERIOD_S", 0.01)
    agent = await play("speechless")
    with pytest.raises(AgentLost, match="no heartbeat"):
        await agent.exited("t", "x")


async def test_our_own_standstill_is_not_taken_for_its_silence(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = await play("obedient")
    loop = asyncio.get_running_loop()
    time_s = loop.time
    # The loop wakes up later than it wanted to by far more than an agent may be silent for.
    monkeypatch.setattr(loop, "time", lambda: time_s() + 10 * agent_module.SILENCE_S)
    await agent.inspect()
    await agent.inspect()
    assert agent.lost is None


async def test_a_sink_that_fails_ends_every_wait_with_its_own_error() -> None:
    def full(_host: str, event: Event, _line: bytes) -> None:
        if event.type == "prepared":
            raise OSError(28, "No space left on device")

    agent = await Agent.start("gateway", launch("obedient"), sink=full)
    try:
        with pytest.raises(OSError, match="No space left"):
            await agent.prepare("t", "serve", SERVE)
        assert agent.lost is None
    finally:
        await agent.close()


async def test_closing_hears_it_out_and_may_be_repeated(
    play: Play, heard: list[tuple[str, Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "GRACE_S", 60.0)
    agent = await play("obedient")
    await agent.close()
    # Its heartbeats go on until its process has ended.
    assert isinstance([event for _, event in heard if event.type != "heartbeat"][-1], Exited)
    await agent.close()
    assert agent.lost is None
    with pytest.raises(AgentLost, match="closed"):
        await agent.inspect()


async def test_close_kills_an_agent_that_does_not_end(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "GRACE_S", 0.02)
    agent = await play("stubborn")
    await agent.close()
    assert agent._channel.ended
