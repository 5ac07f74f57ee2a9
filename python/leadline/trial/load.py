"""Runs one test: prepares every client's load, starts all at one instant, waits for the end, stops on request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from leadline.agents import Agent, ClockComparison, Event, start_instant
from leadline.analysis import TestSpec
from leadline.analysis.running_intervals import RunningIntervals
from leadline.contract.models import OutputLine
from leadline.errors import AgentLost, LeadlineError, TaskFailed, each_failure
from leadline.trial.event_log import EventLog
from leadline.trial.interrupt import Interrupt
from leadline.trial.interval_follower import IntervalFollower
from leadline.trial.live_metrics import LiveMetrics
from leadline.trial.notifications import ScriptOutput
from leadline.trial.watch import Follower, TargetWatch
from leadline.trial.workloads import LoadWorkload, PhasedWorkload, TaskWorkload, kind_of

TASK = "load"
# After its duration a load drains what is in flight (an agent gives up after 20 s), and waits for the server's report
# (30 s more). Its own error names the server; this limit is for an agent that hangs.
_REPORT_WITHIN_S = 60.0
_PREPARE_S = 30.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Load:
    """A load to run, and the agents that run it."""

    label: str
    """The test's label, as in "c01/1/tcp-up"."""
    test: dict[str, object]
    """The plan's test as data, for the journal."""
    workloads: Mapping[str, LoadWorkload]
    """By client host."""
    watch: TargetWatch | None = None
    """Checks the figures each second, and may end the load."""
    interval_ms: int | None = None
    """Length of the intervals that are reported while the load runs; None for none."""
    starts_ms: Mapping[str, int] = field(default_factory=dict)
    """When each client starts, ms after the first one; at once if it is not in it."""
    search: str | None = None
    """The label of the test whose search this load belongs to; None for a load by itself."""


async def run(
    load: Load,
    agents: Mapping[str, Agent],
    clocks: Mapping[str, ClockComparison],
    event_log: EventLog,
    interrupt: Interrupt,
) -> None:
    """Run the load to its end. Clients that cannot begin are left out and named; the verdict reports them as missing.

    Raises:
        TaskFailed: no client could begin, or one failed.
        AgentLost: an agent is gone.
    """
    try:
        await _run(load, agents, clocks, event_log, interrupt)
    except TaskFailed as failure:
        kinds = {work.kind: kind_of(work) for work in load.workloads.values()}
        failure.hint = failure.hint or next((kind.advice(failure.code) for kind in kinds.values()), None)
        raise


async def _run(
    load: Load,
    agents: Mapping[str, Agent],
    clocks: Mapping[str, ClockComparison],
    event_log: EventLog,
    interrupt: Interrupt,
) -> None:
    with ExitStack() as stack:
        stack.callback(event_log.listen(partial(_pass_on, load.label, event_log)))
        ready = await _prepare(load, agents)
        instants = start_instant({host: clocks[host] for host in ready}, now_ns=time.monotonic_ns())
        first = ready[0]
        start_at_ns = instants[first] - clocks[first].offset_ns
        hosts = list(load.workloads)
        event_log.record(
            "test-begin",
            label=load.label,
            test={**load.test, **kind_of(load.workloads[first]).describe_load(load.workloads[first])},
            hosts=hosts,
            start_at_ns=start_at_ns,
            start_wall_ns=start_at_ns + time.time_ns() - time.monotonic_ns(),
            controller_cpu_s=time.process_time(),
            controller_boot_id=_boot_id(),
            **({} if load.search is None else {"search": load.search}),
        )
        lengths_ms = (
            load.starts_ms.get(host, 0) + kind_of(work).longest_ms(work) for host, work in load.workloads.items()
        )
        longest_s = max(lengths_ms) / 1000
        kind = kind_of(load.workloads[first])
        live = LiveMetrics(load.label, kind, start_at_ns, hosts=len(ready), event_log=event_log, longest_s=longest_s)
        stack.callback(event_log.listen(live.on_event))
        if load.watch is not None:
            offsets_ns = {host: clocks[host].offset_ns for host in ready}
            follow = Follower(
                load.label, TestSpec.read(load.test), offsets_ns, load.watch, interrupt, notify=event_log.notify
            )
            stack.callback(event_log.listen(follow.on_event))
        if load.interval_ms is not None:
            offsets_ns = {host: clocks[host].offset_ns for host in ready}
            spec = TestSpec.read(load.test)
            intervals = RunningIntervals(spec, start_at_ns, load.interval_ms * 1_000_000)
            follower = IntervalFollower(load.label, intervals, start_at_ns, offsets_ns, event_log)
            stack.callback(event_log.listen(follower.on_event))
        stopper = asyncio.create_task(_stop_when_asked(load.label, ready, agents, interrupt))
        stack.callback(stopper.cancel)
        try:
            limit_s = longest_s + _REPORT_WITHIN_S
            await _run_phase(load, 0, instants, agents, limit_s, interrupt=interrupt)
            for phase in range(1, max(len(_phases(work)) for work in load.workloads.values())):
                if interrupt.asked.is_set():
                    break
                ready = await _prepare(load, agents, phase)
                instants = start_instant({host: clocks[host] for host in ready}, now_ns=time.monotonic_ns())
                await _run_phase(load, phase, instants, agents, limit_s, interrupt=interrupt)
        except BaseExceptionGroup as failures:
            raise _first(failures) from failures


_STOPPED = "stopped"
"""The agent's code of a task that was stopped before its start."""


def _phases(work: LoadWorkload) -> Sequence[Mapping[str, TaskWorkload]]:
    """The tasks of each phase by their names; most loads are one task."""
    return work.phases if isinstance(work, PhasedWorkload) else ({TASK: work},)


async def _run_phase(
    load: Load,
    phase: int,
    instants: Mapping[str, int],
    agents: Mapping[str, Agent],
    limit_s: float,
    *,
    interrupt: Interrupt,
) -> None:
    """Begin the prepared tasks of each host at its instant, and wait for their ends."""
    async with asyncio.TaskGroup() as group:
        for host, at_ns in instants.items():
            later_ns = load.starts_ms.get(host, 0) * 1_000_000 if phase == 0 else 0
            await agents[host].begin(load.label, at_ns + later_ns)
        for host in instants:
            for task in _phases(load.workloads[host])[phase]:
                group.create_task(_finished(agents[host], load.label, task, limit_s, interrupt))


async def _finished(agent: Agent, label: str, task: str, limit_s: float, interrupt: Interrupt) -> None:
    """Wait for the end of a task. One that was stopped before its start has measured nothing, which is no failure: the
    others may have."""
    try:
        await agent.finished(label, task, limit_s)
    except TaskFailed as failure:
        if failure.code != _STOPPED or not interrupt.asked.is_set():
            raise


def _boot_id() -> str | None:
    """Which machine this process runs on, as agents say of theirs."""
    with suppress(OSError):
        return _BOOT_ID.read_text(encoding="ascii").strip()
    return None


async def stop(label: str, hosts: Sequence[str], agents: Mapping[str, Agent]) -> None:
    """Ask the loads to end, except those whose agent is gone."""
    for host in hosts:
        with suppress(AgentLost):
            await agents[host].stop(label)


async def _prepare(load: Load, agents: Mapping[str, Agent], phase: int = 0) -> list[str]:
    """Prepare the tasks of a phase; returns the hosts that are ready."""

    async def prepare(host: str, work: LoadWorkload) -> None:
        timeout_s = _PREPARE_S + kind_of(work).preparation_s(work)
        for task, part in _phases(work)[phase].items():
            await agents[host].prepare(load.label, task, part, timeout_s=timeout_s)

    hosts = list(load.workloads)
    prepared = await asyncio.gather(
        *(prepare(host, work) for host, work in load.workloads.items()), return_exceptions=True
    )
    failures = [found for found in prepared if isinstance(found, BaseException)]
    unexpected = [failure for failure in failures if not isinstance(failure, TaskFailed)]
    if unexpected:
        raise unexpected[0]
    ready = [host for host, found in zip(hosts, prepared, strict=True) if not isinstance(found, BaseException)]
    if not ready:
        raise failures[0]
    return ready


def _pass_on(label: str, event_log: EventLog, host: str, event: Event) -> None:
    """Pass on the output of a script, including output during preparation."""
    if isinstance(event, OutputLine) and (event.trial, event.task) == (label, TASK):
        event_log.notify(ScriptOutput(label, event.line))


async def _stop_when_asked(label: str, hosts: Sequence[str], agents: Mapping[str, Agent], interrupt: Interrupt) -> None:
    await interrupt.asked.wait()
    await stop(label, hosts, agents)


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The failure to show: one of Leadline's own before a cancellation."""
    found = list(each_failure(failures))
    return next((failure for failure in found if isinstance(failure, LeadlineError)), found[0])
