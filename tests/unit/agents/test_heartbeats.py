"""Heartbeats to an agent: a remote one gets them from its greeting on, one of this machine none."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from leadline.agents import Agent, Launch, channel
from leadline.agents import agent as agent_module
from leadline.agents.launchers.processes import HERE, Exec, Here
from leadline.agents.launchers.ssh import SshHost

SCRIPT = Path(__file__).with_name("scripted_agent.py")
HEARTBEAT = b'{"type":"heartbeat"}'


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The commands, which do not reach the agent; a heartbeat is sent as soon as the one before."""
    lines: list[bytes] = []

    async def take(_: channel.Channel, line: bytes) -> None:
        lines.append(line.strip())

    monkeypatch.setattr(channel.Channel, "send", take)
    monkeypatch.setattr(agent_module, "HEARTBEAT_PERIOD_S", 0.0)
    return lines


@pytest.mark.parametrize("is_remote", [True, False])
async def test_only_remote_agents_get_heartbeats(sent: list[bytes], is_remote: bool) -> None:
    launch = Launch((sys.executable, "-I", str(SCRIPT), "obedient"), 60.0, Here(is_remote))
    agent = await Agent.start("gateway", launch, sink=lambda *_: None)
    for _ in range(100):
        await asyncio.sleep(0)
    await agent.close()
    beats = sent.count(HEARTBEAT)
    assert (beats > 3) is is_remote and (beats > 0) is is_remote
    sent.clear()
    await asyncio.sleep(0)
    assert sent == [], "it is closed"


def test_other_hosts_are_remote_and_this_machine_is_not() -> None:
    assert SshHost("gateway", ()).is_remote
    assert Exec(("nsenter",)).is_remote
    assert not HERE.is_remote
