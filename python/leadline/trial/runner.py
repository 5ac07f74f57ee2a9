"""Runs loads on agents, and writes the records of what began and how it ended: of trials, and of their loads.

Plans, single measurements, ladders, searches and calibrations measure by it, so that a journal looks the same whatever
wrote it, and an end is never lost: of a failure, of Ctrl-C, of a defect, of a full disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from leadline.agents import Agent, ClockComparison
from leadline.analysis import analyse
from leadline.analysis.model import TestResult
from leadline.errors import Interrupted, LeadlineError, TaskFailed
from leadline.trial import load
from leadline.trial.event_log import EventLog
from leadline.trial.interrupt import Interrupt


@dataclass(frozen=True, slots=True)
class LoadEnd:
    """How a load ended, as its record says."""

    status: str
    """`done`, `failed` or `interrupted`."""
    cause: str | None
    """Why it did not end by itself; None if it did, or if the user stopped it."""
    failure: LeadlineError | None
    """What failed: the load, or the journal, which has no room for the end."""


@dataclass(frozen=True, slots=True)
class Runner:
    """The hosts that loads run on, and where they are recorded."""

    agents: Mapping[str, Agent]
    clocks: Mapping[str, ClockComparison]
    event_log: EventLog
    interrupt: Interrupt
    guard: Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]] = lambda course: course
    """Runs a load unless something else fails: its system under test, one of the hosts."""
    keeps_unbegun: bool = False
    """Whether a load that could not be prepared has a result, which says why."""

    async def run(self, one: load.Load, during: AbstractAsyncContextManager[None] | None = None) -> LoadEnd:
        """Run a load to its end, inside of `during`, and record that end.

        What is not Leadline's own error (a defect, a cancellation) is recorded, and raised.
        """
        ended = LoadEnd("failed", None, None)
        try:
            async with during or nullcontext():
                await self.guard(load.run(one, self.agents, self.clocks, self.event_log, self.interrupt))
            ended = self.ended(None)
        except LeadlineError as failure:
            ended = self.ended(failure)
            await self._stop(one)
            if self.keeps_unbegun and isinstance(failure, TaskFailed):
                self.event_log.record("test-begin", label=one.label, test=one.test, hosts=one.hosts, start_at_ns=None)
        except BaseException as failure:
            if isinstance(failure, asyncio.CancelledError):
                ended = replace(ended, status="interrupted")
            await self._stop(one)
            raise
        finally:
            unwritten = self.event_log.record_end(
                "test-end",
                ended.failure,
                label=one.label,
                status=ended.status,
                error=ended.cause,
                controller_cpu_s=time.process_time(),
            )
        return replace(ended, failure=unwritten)

    def ended(self, failure: LeadlineError | None) -> LoadEnd:
        """How something ended that ended with this failure, or without one."""
        is_stopped = self.interrupt.asked.is_set() if failure is None else isinstance(failure, Interrupted)
        if is_stopped:
            return LoadEnd("interrupted", self.interrupt.why, failure)
        if failure is None:
            return LoadEnd("done", self.interrupt.why, None)
        return LoadEnd("failed", str(failure), failure)

    async def _stop(self, one: load.Load) -> None:
        """End what other hosts still do."""
        await load.stop(one.label, one.all_hosts, self.agents)


def begin_trial(
    event_log: EventLog, case: str, repeat: int, parameters: Mapping[str, Any], sut_title: str | None = None
) -> str:
    """Record that a trial begins; returns its label."""
    label = f"{case}/{repeat}"
    title = {} if sut_title is None else {"sut_title": sut_title}
    event_log.record("trial-begin", trial=label, case=case, repeat=repeat, parameters=dict(parameters), **title)
    return label


def end_trial(
    event_log: EventLog,
    trial: str,
    status: str,
    failure: LeadlineError | None = None,
    *,
    error: LeadlineError | None = None,
) -> LeadlineError | None:
    """Record how a trial ended, and with `error` what kept it from measuring: its loads' own errors are in their
    records. Returns the failure that came before, or that of the disk."""
    problem = None if error is None else {"code": error.code, "message": str(error)}
    return event_log.record_end("trial-end", failure, trial=trial, status=status, error=problem)


def analyse_load(
    manifest: Mapping[str, Any], before: Iterable[Mapping[str, Any]], own: Iterable[Mapping[str, Any]]
) -> TestResult:
    """The result of the latest load of a search, as if it were a test by itself: `before` are the entries before the
    trial's first test, `own` those of this load."""
    alone = ({key: value for key, value in entry.items() if key != "search"} for entry in own)
    done = {"record": "trial-end", "at_ns": time.monotonic_ns(), "status": "done"}
    (trial,) = analyse(manifest, [*before, *alone, done]).trials
    return trial.tests[-1]
