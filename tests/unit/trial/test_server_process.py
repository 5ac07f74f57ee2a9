"""A server's process is observed by the agent from before a load until after it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from leadline.agents import Agent, Launch, agent_binary
from leadline.errors import InputError
from leadline.trial.event_log import EntryList, EventLog
from leadline.trial.server_process import observed, require_process

_AT_THE_ENDS_ALONE_MS = 3_600_000


def _readings(entries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for entry in entries:
        for process in entry.get("event", {}).get("processes", ()):
            if process["pid"] == os.getpid():
                yield process


@pytest.mark.agent
async def test_process_is_sampled_before_and_after_the_load() -> None:
    entries: list[dict[str, Any]] = []
    event_log = EventLog(EntryList(entries))
    agent = await Agent.start("here", Launch((str(agent_binary()),)), sink=event_log.on_event)
    try:
        async with observed(agent, os.getpid(), event_log, "c01/1/tunnel", _AT_THE_ENDS_ALONE_MS):
            sum(range(200_000))
    finally:
        await agent.close()
    [noted] = [entry for entry in entries if entry.get("record") == "server-process"]
    assert (noted["label"], noted["pid"]) == ("c01/1/tunnel", os.getpid())
    found = list(_readings(entries))
    assert len(found) == 2
    for before, after in pairwise(found):
        assert before["user_s"] + before["system_s"] <= after["user_s"] + after["system_s"]
        assert after["resident_bytes"] > 0


def test_missing_process_is_refused() -> None:
    require_process(None)
    require_process(os.getpid())
    with pytest.raises(InputError, match="no such process"):
        require_process(2**22 + 1)
