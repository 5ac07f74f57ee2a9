"""Records the cost of a server's process on this host while a fleet connects: CPU time and resident memory.

Writes a `server-process` record ten times a second. `agents.process_usage` reads /proc.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from leadline.agents.process_usage import process_usage
from leadline.errors import InputError
from leadline.trial.event_log import EventLog

_PERIOD_S = 0.1


@contextmanager
def watched(pid: int | None, event_log: EventLog, label: str) -> Iterator[None]:
    """Record the cost of the process until the block ends; does nothing without a process.

    Raises:
        InputError: there is no such process, or reading it is not allowed.
    """
    if pid is None:
        yield
        return
    if process_usage(pid) is None:
        raise InputError(f"--server-pid {pid}: there is no such process here", hint="give the id of a running process")
    watching = asyncio.ensure_future(_watch(pid, event_log, label))
    # If the journal cannot be written, the last note says so.
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
    usage = process_usage(pid)
    if usage is not None:
        event_log.record(
            "server-process",
            label=label,
            t_ns=time.monotonic_ns(),
            cpu_s=usage.cpu_s,
            resident_bytes=usage.resident_bytes,
        )
