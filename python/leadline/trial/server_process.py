"""Has a server's process on this host observed while a load runs: by the agent, as it observes everything else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from leadline.agents import Agent, UnreadObservation
from leadline.errors import InputError
from leadline.trial.event_log import EventLog


def require_process(pid: int | None) -> None:
    """Raise InputError if there is no such process on this host."""
    if pid is not None and not Path("/proc", str(pid)).exists():
        raise InputError(f"--server-pid {pid}: there is no such process here", hint="give the id of a running process")


@asynccontextmanager
async def observed(
    agent: Agent, pid: int | None, event_log: EventLog, label: str, period_ms: int
) -> AsyncIterator[None]:
    """Sample the host, and with it the process if there is one, from before the block until after it.

    Raises:
        AgentLost: the agent is gone.
    """
    if pid is None:
        await agent.observe(label, period_ms, True)
        yield
        return
    order = partial(agent.observe, label, period_ms, True, pids=(pid,))
    await _sampled(order, agent, event_log)
    try:
        yield
    finally:
        # The test has begun by now, so the journal's reader knows whose server it is.
        event_log.record("server-process", label=label, pid=pid)
    # What the process did last is in a sample that is taken after it.
    await _sampled(order, agent, event_log)


async def _sampled(order: Callable[[], Awaitable[None]], agent: Agent, event_log: EventLog) -> None:
    """Give the order, and wait until a sample was taken after it, or the agent is lost."""
    ordered_ns, sampled = time.monotonic_ns(), asyncio.Event()

    def note(_host: str, observation: UnreadObservation) -> None:
        if observation.read().t_ns >= ordered_ns:
            sampled.set()

    end = event_log.listen_to_observations(note)
    waits = {asyncio.create_task(sampled.wait()), asyncio.create_task(agent.failure())}
    try:
        await order()
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        end()
        for wait in waits:
            wait.cancel()
