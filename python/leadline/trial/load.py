"""Runs one test: prepares each part of its load, starts all at one instant, waits for the end, stops on request.

Receivers, and reflectors that send back what they receive, are prepared first, and count from then on; they are stopped
when the last generator has ended and what is on its way has had time to arrive.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from zlib import crc32

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
from leadline.trial.workloads import LoadWorkload, PhasedWorkload, Receiver, TaskWorkload, kind_of

TASK = "load"
# After its duration a load drains what is in flight (an agent gives up after 20 s), and waits for the server's report
# (30 s more). Its own error names the server; this limit is for an agent that hangs.
_REPORT_WITHIN_S = 60.0
_PREPARE_S = 30.0
_RUN = secrets.randbits(32)
"""Marks the loads of this process: others may be in the same network at the same time."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Role(StrEnum):
    """What a part of a load does."""

    GENERATOR = "generator"
    RECEIVER = "receiver"
    REFLECTOR = "reflector"


@dataclass(frozen=True, slots=True)
class Part:
    """What one host does in a load."""

    host: str
    work: LoadWorkload
    role: Role = Role.GENERATOR
    task: str = TASK
    """Name of its task; a workload in phases has its own names."""
    later_ms: int = 0
    """When it starts, ms after the load's start."""
    drain_ms: int = 0
    """Of a receiver or a reflector: how long it stays after the last generator has ended."""

    @property
    def phases(self) -> Sequence[Mapping[str, TaskWorkload]]:
        """The tasks of each phase by their names; most loads are one task."""
        return self.work.phases if isinstance(self.work, PhasedWorkload) else ({self.task: self.work},)


def receiving_parts(receivers: Sequence[Receiver], client: str, server: str) -> list[Part]:
    """The parts that receive a load or send it back, on the hosts of its generator and of its server."""
    return [
        Part(
            client if one.is_at_client else server,
            one.work,
            Role.REFLECTOR if one.sends_back else Role.RECEIVER,
            "reflect" if one.sends_back else "receive",
            drain_ms=one.drain_ms,
        )
        for one in receivers
    ]


def generators(workloads: Mapping[str, LoadWorkload], starts_ms: Mapping[str, int] | None = None) -> list[Part]:
    """A generator on each host; those that are not in `starts_ms` start at once."""
    return [Part(host, work, later_ms=(starts_ms or {}).get(host, 0)) for host, work in workloads.items()]


@dataclass(frozen=True, slots=True)
class Load:
    """A load to run."""

    label: str
    """The test's label, as in "c01/1/tcp-up"."""
    test: dict[str, object]
    """The plan's test as data, for the journal."""
    parts: Sequence[Part]
    """At most one of each role on a host."""
    watch: TargetWatch | None = None
    """Checks the figures each second, and may end the load."""
    interval_ms: int | None = None
    """Length of the intervals that are reported while the load runs; None for none."""
    goes_on_without: Callable[[str, LeadlineError], bool] = lambda *_: False
    """Whether the load goes on without a host that fails with this error."""
    search: str | None = None
    """The label of the test whose search this load belongs to; None for a load by itself."""
    shares: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """What each host has of the test's amounts, and its number of clients; empty if each is a client with all of
    them."""
    left_out: Sequence[str] = ()
    """Hosts that have no part, because a total is too small for all."""

    @property
    def generators(self) -> list[Part]:
        """The parts that generate load."""
        return [part for part in self.parts if part.role is Role.GENERATOR]

    @property
    def receivers(self) -> list[Part]:
        """The parts that receive it, or send it back."""
        return [part for part in self.parts if part.role is not Role.GENERATOR]

    @property
    def hosts(self) -> list[str]:
        """The hosts that generate load, which are those that a result is of."""
        return [part.host for part in self.generators]

    @property
    def all_hosts(self) -> list[str]:
        """Every host that takes part, once."""
        return list(dict.fromkeys(part.host for part in self.parts))


async def run(
    load: Load,
    agents: Mapping[str, Agent],
    clocks: Mapping[str, ClockComparison],
    event_log: EventLog,
    interrupt: Interrupt,
) -> None:
    """Run the load to its end. Clients that cannot begin are left out and named; the verdict reports them as missing.
    So are hosts that are lost, if the load goes on without them.

    Raises:
        TaskFailed: no client could begin, or one failed.
        AgentLost: an agent is gone.
    """
    try:
        await _run(load, agents, clocks, event_log, interrupt)
    except TaskFailed as failure:
        kinds = {part.work.kind: kind_of(part.work) for part in load.parts}
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
        await _prepare_receivers(load, agents, clocks)
        ready = await _prepare(load, agents)
        taking_part = list(dict.fromkeys(part.host for part in (*ready, *load.receivers)))
        instants = start_instant({host: clocks[host] for host in taking_part}, now_ns=time.monotonic_ns())
        start_at_ns = instants[taking_part[0]] - clocks[taking_part[0]].offset_ns
        _record_begin(load, start_at_ns, event_log)
        longest_s = max(part.later_ms + kind_of(part.work).longest_ms(part.work) for part in load.generators) / 1000
        offsets_ns = {part.host: clocks[part.host].offset_ns for part in ready}
        for follow in _followers(
            load, start_at_ns, longest_s, offsets_ns=offsets_ns, event_log=event_log, interrupt=interrupt
        ):
            stack.callback(event_log.listen(follow))
        stopper = asyncio.create_task(_stop_when_asked(load, agents, interrupt))
        stack.callback(stopper.cancel)
        try:
            limit_s = longest_s + _REPORT_WITHIN_S
            await _run_first_phase(load, ready, instants, agents, limit_s=limit_s, interrupt=interrupt)
            for phase in range(1, max(len(part.phases) for part in load.generators)):
                if interrupt.asked.is_set():
                    break
                ready = await _prepare(load, agents, phase)
                instants = start_instant({part.host: clocks[part.host] for part in ready}, now_ns=time.monotonic_ns())
                await _begin(load, instants, agents)
                await _await_ends(load, ready, agents, limit_s=limit_s, interrupt=interrupt, phase=phase)
        except BaseExceptionGroup as failures:
            raise _first(failures) from failures


def _record_begin(load: Load, start_at_ns: int, event_log: EventLog) -> None:
    """Record that a load begins; its other parts too, if it has any: a result is of the hosts that generate."""
    first = load.generators[0].work
    roles = {"receivers": Role.RECEIVER, "reflectors": Role.REFLECTOR}
    others = {
        name: found
        for name, role in roles.items()
        if (found := [{"host": part.host, "task": part.task} for part in load.parts if part.role is role])
    }
    event_log.record(
        "test-begin",
        label=load.label,
        test={**load.test, **kind_of(first).describe_load(first)},
        hosts=load.hosts,
        start_at_ns=start_at_ns,
        start_wall_ns=start_at_ns + time.time_ns() - time.monotonic_ns(),
        controller_cpu_s=time.process_time(),
        controller_boot_id=_boot_id(),
        **({} if load.search is None else {"search": load.search}),
        **({"shares": {host: dict(share) for host, share in load.shares.items()}} if load.shares else {}),
        **({"left_out": list(load.left_out)} if load.left_out else {}),
        **others,
    )


def _followers(
    load: Load,
    start_at_ns: int,
    longest_s: float,
    *,
    offsets_ns: Mapping[str, int],
    event_log: EventLog,
    interrupt: Interrupt,
) -> Iterator[Callable[[str, Event], None]]:
    """What follows the events of a load while it runs: live figures, targets that may end it, intervals."""
    kind = kind_of(load.generators[0].work)
    hosts = len(offsets_ns)
    yield LiveMetrics(load.label, kind, start_at_ns, hosts=hosts, event_log=event_log, longest_s=longest_s).on_event
    if load.watch is not None:
        spec = TestSpec.read(load.test)
        yield Follower(load.label, spec, offsets_ns, load.watch, interrupt, notify=event_log.notify).on_event
    if load.interval_ms is not None:
        intervals = RunningIntervals(TestSpec.read(load.test), start_at_ns, load.interval_ms * 1_000_000)
        # A receiver is the other side of what is sent; a reflector counts what a receiver counts too.
        sides = {(part.host, part.task): "peer" if part.role is Role.RECEIVER else None for part in load.receivers}
        yield IntervalFollower(load.label, intervals, start_at_ns, offsets_ns, event_log, sides=sides).on_event


_STOPPED = "stopped"
"""The agent's code of a task that was stopped before its start."""


async def _run_first_phase(
    load: Load,
    ready: Sequence[Part],
    instants: Mapping[str, int],
    agents: Mapping[str, Agent],
    *,
    limit_s: float,
    interrupt: Interrupt,
) -> None:
    """Begin everything at one instant, and wait for the generators, then for the receivers. A receiver that fails
    meanwhile fails the load: nothing counts any more."""
    later_ns = {part.host: part.later_ms * 1_000_000 for part in ready}
    await _begin(load, {host: at_ns + later_ns.get(host, 0) for host, at_ns in instants.items()}, agents)
    async with asyncio.TaskGroup() as group:
        drain_s = max((part.drain_ms for part in load.receivers), default=0) / 1000
        receiver_limit_s = limit_s + drain_s + _REPORT_WITHIN_S
        ends = group.create_task(
            _await_ends(load, load.receivers, agents, limit_s=receiver_limit_s, interrupt=interrupt)
        )
        await _await_ends(load, ready, agents, limit_s=limit_s, interrupt=interrupt)
        if load.receivers:
            await asyncio.sleep(drain_s)
            for part in load.receivers:
                with suppress(AgentLost):
                    await agents[part.host].stop(load.label, part.task)
        await ends


async def _begin(load: Load, instants: Mapping[str, int], agents: Mapping[str, Agent]) -> None:
    """Begin the prepared tasks of each host at its instant; a slow connection does not hold up the others."""

    async def begin(host: str, at_ns: int) -> None:
        try:
            await agents[host].begin(load.label, at_ns)
        except AgentLost as lost:
            if not load.goes_on_without(host, lost):
                raise

    await asyncio.gather(*(begin(host, at_ns) for host, at_ns in instants.items()))


async def _await_ends(
    load: Load,
    parts: Sequence[Part],
    agents: Mapping[str, Agent],
    *,
    limit_s: float,
    interrupt: Interrupt,
    phase: int = 0,
) -> None:
    """Wait for the ends of these parts' tasks in a phase."""
    async with asyncio.TaskGroup() as group:
        for part in parts:
            for task in part.phases[phase]:
                group.create_task(_finished(load, agents[part.host], task, limit_s, interrupt))


async def _finished(load: Load, agent: Agent, task: str, limit_s: float, interrupt: Interrupt) -> None:
    """Wait for the end of a task. One that was stopped before its start has measured nothing, which is no failure: the
    others may have."""
    try:
        await agent.finished(load.label, task, limit_s)
    except AgentLost as lost:
        if not load.goes_on_without(agent.name, lost):
            raise
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


async def _prepare_receivers(load: Load, agents: Mapping[str, Agent], clocks: Mapping[str, ClockComparison]) -> None:
    """Prepare every receiver: a generator may need one at its far end, and a load without one of them is another."""
    generator_ns = clocks[load.generators[0].host].offset_ns
    for part in load.receivers:
        aligned = kind_of(part.work).aligned(part.work, generator_ns - clocks[part.host].offset_ns)
        await _prepare_part(load, replace(part, work=aligned), agents)


async def _prepare_part(load: Load, part: Part, agents: Mapping[str, Agent], phase: int = 0) -> None:
    timeout_s = _PREPARE_S + kind_of(part.work).preparation_s(part.work)
    for task, work in part.phases[phase].items():
        marked = kind_of(part.work).marked(work, crc32(load.label.encode()) ^ _RUN)
        await agents[part.host].prepare(load.label, task, marked, timeout_s=timeout_s)


async def _prepare(load: Load, agents: Mapping[str, Agent], phase: int = 0) -> list[Part]:
    """Prepare the generators' tasks of a phase; returns the generators that are ready."""
    parts = load.generators
    prepared = await asyncio.gather(
        *(_prepare_part(load, part, agents, phase) for part in parts), return_exceptions=True
    )
    failures = [found for found in prepared if isinstance(found, BaseException)]
    lost = {
        id(found)
        for part, found in zip(parts, prepared, strict=True)
        if isinstance(found, AgentLost) and load.goes_on_without(part.host, found)
    }
    unexpected = [found for found in failures if not isinstance(found, TaskFailed) and id(found) not in lost]
    if unexpected:
        raise unexpected[0]
    ready = [part for part, found in zip(parts, prepared, strict=True) if not isinstance(found, BaseException)]
    if not ready:
        raise failures[0]
    return ready


def _pass_on(label: str, event_log: EventLog, host: str, event: Event) -> None:
    """Pass on the output of a script, including output during preparation."""
    if isinstance(event, OutputLine) and (event.trial, event.task) == (label, TASK):
        event_log.notify(ScriptOutput(label, event.line))


async def _stop_when_asked(load: Load, agents: Mapping[str, Agent], interrupt: Interrupt) -> None:
    """Stop what generates. Receivers go on until that has ended: what is on its way is not lost."""
    await interrupt.asked.wait()
    if not load.receivers:
        await stop(load.label, load.hosts, agents)
        return
    for part in load.generators:
        with suppress(AgentLost):
            await agents[part.host].stop(load.label, part.task)


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The failure to show: one of Leadline's own before a cancellation."""
    found = list(each_failure(failures))
    return next((failure for failure in found if isinstance(failure, LeadlineError)), found[0])
