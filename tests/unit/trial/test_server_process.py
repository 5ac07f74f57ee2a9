"""What a server's process uses is written down while a test runs."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from leadline.errors import InputError
from leadline.trial.event_log import EntryList, EventLog
from leadline.trial.server_process import watched


async def test_readings_are_written_down_from_first_to_last() -> None:
    entries: list[dict[str, Any]] = []
    with watched(os.getpid(), EventLog(EntryList(entries)), "c01/1/tunnel"):
        await asyncio.sleep(0)
        sum(range(200_000))
    await asyncio.sleep(0)
    assert {entry["record"] for entry in entries} == {"server-process"}
    assert len(entries) == 2
    assert entries[0]["t_ns"] < entries[1]["t_ns"] and entries[0]["cpu_s"] <= entries[1]["cpu_s"]
    assert entries[0]["label"] == "c01/1/tunnel"


async def test_no_process_writes_nothing_and_a_wrong_one_is_refused() -> None:
    entries: list[dict[str, Any]] = []
    with watched(None, EventLog(EntryList(entries)), "x"):
        pass
    assert entries == []
    with pytest.raises(InputError, match="no such process"), watched(2**22 + 1, EventLog(EntryList(entries)), "x"):
        pass
