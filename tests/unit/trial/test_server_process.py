"""What /proc says of a server: read from this process and from files made here; written down while a test runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from leadline.errors import InputError
from leadline.trial.event_log import EntryList, EventLog
from leadline.trial.server_process import read, watched


def made(folder: Path, schedstat: str | None = None) -> Path:
    own = folder / "7"
    for thread in ("7", "8"):
        (own / "task" / thread).mkdir(parents=True)
        if schedstat is not None:
            (own / "task" / thread / "schedstat").write_text(schedstat)
    (own / "statm").write_text("100 25 3 1 0 9 0\n")
    fields = " ".join(["S", *["0"] * 10, "150", "50", *["0"] * 30])
    (own / "stat").write_text(f"7 (a ) name) {fields}\n")
    return folder


def test_all_threads_count_by_the_schedulers_clock(tmp_path: Path) -> None:
    reading = read(7, made(tmp_path, "1500000000 10 3\n"))
    assert reading is not None
    assert reading.cpu_s == 3.0
    assert reading.resident_bytes == 25 * os.sysconf("SC_PAGE_SIZE")


def test_ticks_stand_in_where_the_scheduler_keeps_no_clock(tmp_path: Path) -> None:
    reading = read(7, made(tmp_path))
    assert reading is not None
    assert reading.cpu_s == 200 / os.sysconf("SC_CLK_TCK"), "a name may hold brackets and blanks"


def test_a_process_that_is_gone_is_not_known(tmp_path: Path) -> None:
    assert read(8, tmp_path) is None
    own = read(os.getpid())
    assert own is not None and own.cpu_s > 0 and own.resident_bytes > 0


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
