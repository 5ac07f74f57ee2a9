"""Compares the hosts' clocks with the controller's before, during and after each test, and records what was found.

Hosts that read this machine's own clock are not asked: their offset is exactly 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress

from leadline.agents import Agent, ClockComparison
from leadline.errors import AgentError
from leadline.trial.event_log import EventLog

PERIOD_S = 5.0
"""Between two checks during a test: a drift of 100 ppm moves a clock by half a millisecond in that time."""
_EXCHANGES, _EXCHANGES_MEANWHILE = 16, 4
"""A check meanwhile is short: its exchanges wake a host that measures."""


@asynccontextmanager
async def clocks_checked(
    label: str, agents: Mapping[str, Agent], clocks: MutableMapping[str, ClockComparison], event_log: EventLog
) -> AsyncIterator[None]:
    """Compare the clocks before what is done inside, every few seconds meanwhile, and after it. `clocks` gets those of
    before; instants are mapped by them. A lost host is passed over: what is done inside notices it by itself."""
    others = [host for host, clock in clocks.items() if not clock.same_clock and agents[host].lost is None]
    if not others:
        yield
        return

    async def check(host: str, exchanges: int) -> ClockComparison | None:
        # A host that stalled between its two stamps may prove nothing.
        with suppress(AgentError, ValueError):
            found = await agents[host].compare_clocks(exchanges)
            event_log.record("clock-check", label=label, host=host, offset_ns=found.offset_ns, bound_ns=found.bound_ns)
            return found
        return None

    async def check_all(exchanges: int) -> dict[str, ClockComparison]:
        found = await asyncio.gather(*(check(host, exchanges) for host in others))
        return {host: clock for host, clock in zip(others, found, strict=True) if clock is not None}

    async def check_meanwhile() -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            await check_all(_EXCHANGES_MEANWHILE)

    for host, clock in (await check_all(_EXCHANGES)).items():
        clocks[host] = clock
        event_log.record("clock", host=host, offset_ns=clock.offset_ns, bound_ns=clock.bound_ns)
    meanwhile = asyncio.create_task(check_meanwhile())
    try:
        yield
    finally:
        meanwhile.cancel()
        with suppress(asyncio.CancelledError):
            await meanwhile
    # Not after a failure or Ctrl-C, which may wait for a silent host.
    await check_all(_EXCHANGES)
