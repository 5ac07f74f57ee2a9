"""What a server's process on this host costs while a fleet connects to it: CPU time and resident memory, from /proc.

Reads a few files ten times a second, and writes each reading down as a `server-process` record; judges nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from leadline.errors import InputError
from leadline.trial.event_log import EventLog

_PERIOD_S = 0.1
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a process, all of its threads together."""

    cpu_s: float
    resident_bytes: int


def read(pid: int, proc: Path = _PROC) -> Reading | None:
    """A process as it is now; None where it is gone, or its files are not for us."""
    folder = proc / str(pid)
    try:
        resident = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return Reading(_cpu_s(folder), resident)
    except (OSError, ValueError, IndexError):
        return None


def _cpu_s(folder: Path) -> float:
    """From the scheduler's own clock, in ns; by the timer's tick, a hundredth of a second, where it keeps none."""
    try:
        tasks = [int((task / "schedstat").read_text().split()[0]) for task in (folder / "task").iterdir()]
        if tasks and sum(tasks) > 0:
            return sum(tasks) / 1e9
    except (OSError, ValueError, IndexError):
        pass
    # Behind the name, which may hold blanks and brackets, utime and stime are the 12th and 13th.
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def watched(pid: int | None, event_log: EventLog, label: str) -> Iterator[None]:
    """Write down what the process costs until the block ends; nothing where there is no process.

    Raises:
        InputError: there is no such process, or it may not be read.
    """
    if pid is None:
        yield
        return
    if read(pid) is None:
        raise InputError(f"--server-pid {pid}: there is no such process here", hint="give a process that runs")
    watching = asyncio.ensure_future(_watch(pid, event_log, label))
    # Where there is nothing to write to, the last note tells of it.
    watching.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        yield
    finally:
        watching.cancel()
        _note(pid, event_log, label)


async def _watch(pid: int, event_log: EventLog, label: str) -> None:
    while True:
        _note(pid, event_log, label)
        await asyncio.sleep(_PERIOD_S)


def _note(pid: int, event_log: EventLog, label: str) -> None:
    reading = read(pid)
    if reading is not None:
        event_log.record(
            "server-process",
            label=label,
            t_ns=time.monotonic_ns(),
            cpu_s=reading.cpu_s,
            resident_bytes=reading.resident_bytes,
        )
