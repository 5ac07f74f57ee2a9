"""Observes one host until it is asked to end, or while a command runs on it.

The command of this host is a child of this process with its own streams; that of another host is a child of the agent
there, and its output comes as events.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

from leadline.agents import Agent, Event, ReachedHosts, UnreadObservation
from leadline.analysis.host_usage import CommandCost, HostUsage, between
from leadline.contract.models import (
    Capability,
    HostFacts,
    ObservationEvent,
    OutputLine,
    ProcessSample,
    ProcessWorkload,
)
from leadline.errors import InputError, TaskFailed
from leadline.plan.host_address import HostAddress
from leadline.trial.interrupt import Interrupt, stop_when_asked

_TRIAL, _TASK, _LAST = "observe", "command", "observe/end"
_STDERR = 2
_GRACE_S = 2.0
"""Time that an interrupted command may take: a terminal's Ctrl-C reaches it, too."""


@dataclass(frozen=True, slots=True)
class Observing:
    """What to observe, and for how long."""

    host: HostAddress
    interval_ms: int
    duration_s: float | None = None
    """None: until the end is asked for."""
    command: Sequence[str] = ()
    pids: Sequence[int] = ()
    programs: Sequence[str] = ()
    soak: bool = False
    quiet: bool = False
    """Whether stdout is for a document alone."""


@dataclass(slots=True)
class Observed:
    """What was observed."""

    facts: HostFacts
    soaker: Capability | None
    """Whether the soaker takes nothing from others on this host."""
    intervals: list[HostUsage] = field(default_factory=list)
    total: HostUsage | None = None
    command: CommandCost | None = None
    interrupted: bool = False
    absent_programs: tuple[str, ...] = ()
    """Programs to observe of which no sample had a process."""
    build_profile: str | None = None
    """The Cargo profile that built the agent; None if it is unknown."""


async def observe_host(wanted: Observing, interrupt: Interrupt, on_interval: Callable[[HostUsage], None]) -> Observed:
    """Observe until the duration or the command ends, or the end is asked for; each interval goes to `on_interval`.

    Raises:
        InputError: the command cannot be started, or a process does not exist.
        LeadlineError: the host's agent cannot be started, or is lost.
    """
    samples: asyncio.Queue[ObservationEvent] = asyncio.Queue()

    def on_event(_host: str, event: Event, _line: bytes) -> None:
        if isinstance(event, UnreadObservation):
            samples.put_nowait(event.read())
        elif isinstance(event, OutputLine):
            print(event.line, file=sys.stderr if wanted.quiet else sys.stdout, flush=True)

    name = "this host" if wanted.host.is_local else wanted.host.host
    async with aclosing(ReachedHosts()) as reached:
        launches = await reached.launches({name: wanted.host})
        agent = await Agent.start(name, launches[name], sink=on_event)
        try:
            soaker = next((one for one in agent.hello.capabilities if one.name == "soaker"), None)
            observed = Observed(agent.hello.host, soaker, build_profile=agent.hello.build_profile)
            source = _Source(agent, wanted, samples)
            await source.order(_TRIAL)
            await _follow(source, interrupt, on_interval, observed)
            return observed
        finally:
            await agent.close()


@dataclass(frozen=True, slots=True)
class _Source:
    """The samples of one agent."""

    agent: Agent
    wanted: Observing
    samples: asyncio.Queue[ObservationEvent]

    async def order(self, label: str) -> None:
        """Ask for samples of this label: the first one comes at once, and is a full one."""
        wanted = self.wanted
        await self.agent.observe(
            label, wanted.interval_ms, True, pids=wanted.pids, programs=wanted.programs, soak=wanted.soak
        )

    async def next(self) -> ObservationEvent:
        """The next sample.

        Raises:
            AgentLost: the agent is gone.
        """
        found = await self.next_or_end(asyncio.get_running_loop().create_future())
        assert found is not None, "nothing else ends this wait"
        return found

    async def last(self) -> ObservationEvent:
        """A sample of this moment, after which no more are needed."""
        await self.order(_LAST)
        while (sample := await self.next()).trial != _LAST:
            pass
        return sample

    async def next_or_end(self, over: asyncio.Future[None]) -> ObservationEvent | None:
        """The next sample; None once the end has come.

        Raises:
            AgentLost: the agent is gone.
        """
        taking, lost = asyncio.create_task(self.samples.get()), asyncio.create_task(self.agent.failure())
        waits: list[asyncio.Future[Any]] = [taking, lost, over]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if taking.done():
                return taking.result()
            if lost.done():
                raise lost.result()
            return None
        finally:
            taking.cancel()
            lost.cancel()


async def _follow(
    source: _Source, interrupt: Interrupt, on_interval: Callable[[HostUsage], None], observed: Observed
) -> None:
    wanted = source.wanted
    first = before = await source.next()
    _check_pids(wanted.pids, first, source.agent.name)
    seen: dict[int, tuple[int, ProcessSample]] = {}
    command = asyncio.create_task(_run(source.agent, wanted, interrupt)) if wanted.command else None
    over = asyncio.create_task(_wait_for_end(wanted, interrupt, command))
    try:
        while before.trial != _LAST:
            for process in before.processes:
                seen.setdefault(int(process.pid), (before.t_ns, process))
            sample = await source.next_or_end(over)
            if sample is None:
                if command is not None:
                    command.result()
                sample = await source.last()
            usage = between(before, sample, began_ns=first.t_ns)
            if usage is not None:
                observed.intervals.append(usage)
                on_interval(usage)
            before = sample
        observed.command = await command if command is not None else None
    finally:
        over.cancel()
        if command is not None:
            command.cancel()
    names = {process.name for process in (*(process for _, process in seen.values()), *before.processes)}
    observed.absent_programs = tuple(name for name in dict.fromkeys(wanted.programs) if name not in names)
    observed.total = between(first, before, began_ns=first.t_ns, processes=seen)
    observed.interrupted = interrupt.asked.is_set()


def _check_pids(pids: Sequence[int], sample: ObservationEvent, host: str) -> None:
    """Raise InputError if one of the processes does not exist."""
    there = {int(process.pid) for process in sample.processes}
    missing = [pid for pid in pids if pid not in there]
    if missing:
        raise InputError(f"--pid {missing[0]}: {host} has no such process")


async def _wait_for_end(wanted: Observing, interrupt: Interrupt, command: asyncio.Task[CommandCost] | None) -> None:
    """Wait for the end of the command; without one, for the end of the time or the request to end."""
    if command is not None:
        await asyncio.wait([command])
        return
    with suppress(TimeoutError):
        await asyncio.wait_for(interrupt.asked.wait(), wanted.duration_s)


async def _run(agent: Agent, wanted: Observing, interrupt: Interrupt) -> CommandCost:
    if wanted.host.is_local:
        return await _run_here(tuple(wanted.command), interrupt, quiet=wanted.quiet)
    return await _run_there(agent, tuple(wanted.command), interrupt)


async def _run_here(argv: tuple[str, ...], interrupt: Interrupt, *, quiet: bool) -> CommandCost:
    # Until it runs its program, a child has the memory of its parent, which counts in its largest one.
    own_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    began_s = time.monotonic()
    try:
        process = subprocess.Popen(argv, stdout=_STDERR if quiet else None)  # noqa: ASYNC220 - it only starts it
    except OSError as error:
        raise InputError(f"{argv[0]}: it cannot be started: {error.strerror}") from error
    stopper = asyncio.create_task(_end_late(process, interrupt))
    try:
        _, status, usage = await asyncio.to_thread(os.wait4, process.pid, 0)
    finally:
        stopper.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    return CommandCost(
        argv=argv,
        code=process.returncode if process.returncode >= 0 else None,
        signal=-process.returncode if process.returncode < 0 else None,
        elapsed_s=time.monotonic() - began_s,
        user_s=usage.ru_utime,
        system_s=usage.ru_stime,
        max_resident_bytes=most if (most := usage.ru_maxrss * 1024) > own_bytes else None,
    )


async def _end_late(process: subprocess.Popen[bytes], interrupt: Interrupt) -> None:
    await interrupt.asked.wait()
    await asyncio.sleep(_GRACE_S)
    process.terminate()


async def _run_there(agent: Agent, argv: tuple[str, ...], interrupt: Interrupt) -> CommandCost:
    # A text that every line contains: all of its output is passed on.
    work = ProcessWorkload(
        name=_TASK, argv=list(argv), cwd=None, env={}, log=None, report=[""], grace_ms=round(_GRACE_S * 1000)
    )
    try:
        started = await agent.prepare(_TRIAL, _TASK, work)
    except TaskFailed as error:
        raise InputError(f"{argv[0]}: it cannot be started on {agent.name}: {error}") from error
    stopper = asyncio.create_task(stop_when_asked(interrupt, agent, _TRIAL, _TASK))
    try:
        ended = await agent.exited(_TRIAL, _TASK)
    finally:
        stopper.cancel()
    used = ended.usage
    return CommandCost(
        argv=argv,
        code=ended.code,
        signal=ended.signal,
        elapsed_s=(ended.t_ns - started.t_ns) / 1e9,
        user_s=used.user_s if used else None,
        system_s=used.system_s if used else None,
        max_resident_bytes=used.max_resident_bytes if used else None,
    )
