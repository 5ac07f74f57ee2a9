"""One test: every client's load prepared, started at one instant, followed to its end, and stopped when asked to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from leadline.contract.models import Progress
from leadline.errors import AgentLost, LeadlineError, TaskFailed
from leadline.fleet import Agent, ClockComparison, Event, start_instant
from leadline.trial.interrupt import Interrupt
from leadline.trial.ledger import Ledger
from leadline.trial.notices import LiveFigures
from leadline.trial.workloads import LoadWorkload

TASK = "load"
# After its duration a load still drains what is under way (the agents give up after 5 s) and reports.
_REPORT_WITHIN_S = 30.0
_LIVE_PERIOD_S = 0.5


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be run, and by whom."""

    label: str
    """The test's, as in "c01/1/tcp-up"."""
    test: dict[str, object]
    """The plan's test as data, for the journal."""
    workloads: Mapping[str, LoadWorkload]
    """By client host."""


async def run(
    load: Load,
    agents: Mapping[str, Agent],
    clocks: Mapping[str, ClockComparison],
    ledger: Ledger,
    interrupt: Interrupt,
) -> None:
    """Run it to its end. Clients that cannot begin are left out and named; the verdict tells that they are missing.

    Raises:
        TaskFailed: no client could begin, or one broke off.
        AgentLost: an agent went away.
    """
    ready = await _prepare(load, agents)
    instants = start_instant({host: clocks[host] for host in ready}, now_ns=time.monotonic_ns())
    first = ready[0]
    start_at_ns = instants[first] - clocks[first].offset_ns
    ledger.record("test-begin", label=load.label, test=load.test, hosts=list(load.workloads), start_at_ns=start_at_ns)
    live = _Live(load.label, start_at_ns, ledger)
    end_listening = ledger.listen(live.hear)
    stopper = asyncio.create_task(_stop_when_asked(load.label, ready, agents, interrupt))
    try:
        async with asyncio.TaskGroup() as group:
            for host in ready:
                await agents[host].begin(load.label, instants[host])
            limit_s = max(work.duration_ms for work in load.workloads.values()) / 1000 + _REPORT_WITHIN_S
            for host in ready:
                group.create_task(agents[host].finished(load.label, TASK, limit_s))
    except BaseExceptionGroup as failures:
        raise _first(failures) from failures
    finally:
        stopper.cancel()
        end_listening()


async def stop(label: str, hosts: Sequence[str], agents: Mapping[str, Agent]) -> None:
    """Ask the loads to end; those whose agent has gone need not be asked."""
    for host in hosts:
        with suppress(AgentLost):
            await agents[host].stop(label)


async def _prepare(load: Load, agents: Mapping[str, Agent]) -> list[str]:
    hosts = list(load.workloads)
    prepared = await asyncio.gather(
        *(agents[host].prepare(load.label, TASK, load.workloads[host], timeout_s=30) for host in hosts),
        return_exceptions=True,
    )
    failures = [found for found in prepared if isinstance(found, BaseException)]
    unexpected = [failure for failure in failures if not isinstance(failure, TaskFailed)]
    if unexpected:
        raise unexpected[0]
    ready = [host for host, found in zip(hosts, prepared, strict=True) if not isinstance(found, BaseException)]
    if not ready:
        raise failures[0]
    return ready


async def _stop_when_asked(label: str, hosts: Sequence[str], agents: Mapping[str, Agent], interrupt: Interrupt) -> None:
    await interrupt.asked.wait()
    await stop(label, hosts, agents)


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The failure that a reader should see: ours before a cancellation."""
    flat: list[BaseException] = []
    stack: list[BaseException] = [failures]
    while stack:
        item = stack.pop(0)
        if isinstance(item, BaseExceptionGroup):
            stack.extend(item.exceptions)
        else:
            flat.append(item)
    return next((failure for failure in flat if isinstance(failure, LeadlineError)), flat[0])


class _Live:
    """Rates over all clients since the last figures, from the counters that come anyway."""

    def __init__(self, label: str, start_at_ns: int, ledger: Ledger) -> None:
        self._label = label
        self._start_at_ns = start_at_ns
        self._ledger = ledger
        self._latest: dict[tuple[str, int, str], tuple[int, int]] = {}
        self._told_s = 0.0
        self._before: tuple[int, int] = (0, 0)

    def hear(self, host: str, event: Event) -> None:
        """Take a progress event; tells the figures twice a second."""
        if not isinstance(event, Progress) or event.trial != self._label:
            return
        for flow in event.flows:
            self._latest[host, flow.flow, event.side] = (flow.received_bytes, flow.received_units or 0)
        elapsed_s = (time.monotonic_ns() - self._start_at_ns) / 1e9
        since_s = elapsed_s - self._told_s
        if since_s < _LIVE_PERIOD_S:
            return
        # A flow's bytes are received on one side only, requests' answers on the client's.
        totals = [0, 0]
        for host_name, flow_number in {key[:2] for key in self._latest}:
            sides = [self._latest.get((host_name, flow_number, side), (0, 0)) for side in ("local", "peer")]
            totals[0] += max(side[0] for side in sides)
            totals[1] += max(side[1] for side in sides)
        bits = (totals[0] - self._before[0]) * 8 / since_s
        units = (totals[1] - self._before[1]) / since_s
        self._before, self._told_s = (totals[0], totals[1]), elapsed_s
        self._ledger.tell(LiveFigures(self._label, elapsed_s, bits, units if totals[1] else None))
