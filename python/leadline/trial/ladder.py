"""A ladder from this host to a server: each layer in turn, over repeats, and the same outside of a tunnel.

Uses the journal entries and the analysis of a run, with a case for each address. A layer that cannot be reached fails
alone, and is not tried again.
"""

from __future__ import annotations

import shlex
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from leadline import __version__
from leadline.agents import Agent, Launch, agent_binary
from leadline.analysis import analyse
from leadline.analysis.model import RunAnalysis, TestResult
from leadline.errors import AgentLost, DatasetError, Interrupted, LeadlineError, TaskFailed
from leadline.plan import BaseTest
from leadline.plan.external_inputs import redacted
from leadline.trial.event_log import EntryList, EventLog, EventSink
from leadline.trial.interrupt import Interrupt
from leadline.trial.load import Load, Part
from leadline.trial.notifications import Observer, TestBegan, TestEnded
from leadline.trial.plan_search import PlanSearch, condition_metrics
from leadline.trial.runner import LoadEnd, Runner, analyse_load, begin_trial, end_trial
from leadline.trial.single import HERE
from leadline.trial.workloads import Server, workload

_OBSERVE_PERIOD_MS = 100
_IP_MTU = {socket.AF_INET: (socket.IPPROTO_IP, 14), socket.AF_INET6: (socket.IPPROTO_IPV6, 24)}
"""IP_MTU and IPV6_MTU of Linux, ip(7) and ipv6(7): the path's MTU, as far as the kernel knows it."""


@dataclass(frozen=True, slots=True)
class Side:
    """One address that a ladder is measured to."""

    case: str
    server: Server
    ip: int
    """IP version of its address."""
    largest_bytes: int | None
    """Largest packet on the path; None if it is not known."""
    overhead_bytes: int | None
    """What each packet gets on the way, as a tunnel's headers; None if it is not known."""
    why_alone: str | None = None


@dataclass(frozen=True, slots=True)
class Climb:
    """A ladder to measure."""

    tests: Sequence[BaseTest]
    """From the bottom up."""
    sides: Sequence[Side]
    """The address itself; then the one outside of the tunnel, if there is one."""
    repeats: int
    argv: Sequence[str]
    logs: Path | None = None
    unreachable: set[str] = field(default_factory=set)
    """Labels of tests, without their repeat, that failed and are not tried again."""

    def manifest(self, run_id: str = "") -> dict[str, Any]:
        """The ladder as a plan with a case for each address."""
        return {
            "schema": "leadline.run/1",
            "run_id": run_id,
            "name": "ladder",
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "version": __version__,
            "command": shlex.join(redacted(self.argv, ())),
            "cases": [self._case(side) for side in self.sides],
        }

    def _case(self, side: Side) -> dict[str, Any]:
        is_first = side is self.sides[0]
        others = [other.case for other in self.sides if other is not side]
        return {
            "id": side.case,
            "parameters": {"to": side.server.host},
            "tests": [{**test.model_dump(), "ip": side.ip} for test in self.tests],
            "ladder": {
                "tests": [test.name for test in self.tests],
                "baseline": others[0] if is_first and others else None,
                "why_alone": side.why_alone,
                "path": side.server.host,
                "largest_bytes": side.largest_bytes,
                "overhead_bytes": side.overhead_bytes,
            },
        }


def path_mtu(host: str, port: int, family: str | None) -> tuple[int, int] | None:
    """The IP version of a host's address, and the path's MTU, as this host's kernel knows it; None if it does not."""
    wanted = {"v4": socket.AF_INET, "v6": socket.AF_INET6}.get(family or "", socket.AF_UNSPEC)
    with suppress(OSError, UnicodeError):
        for found, kind, protocol, _, address in socket.getaddrinfo(host, port, wanted, socket.SOCK_DGRAM):
            with socket.socket(found, kind, protocol) as probe:
                probe.connect(address)
                return (6 if found == socket.AF_INET6 else 4), probe.getsockopt(*_IP_MTU[socket.AddressFamily(found)])
    return None


async def climb(
    what: Climb,
    entries: list[dict[str, Any]],
    sink: EventSink | None,
    interrupt: Interrupt,
    observers: tuple[Observer, ...],
) -> tuple[RunAnalysis, LeadlineError | None]:
    """Measure every layer on every side, the sides in turn. Returns the findings, which are partial after an interrupt
    or an error, and the error that ended it early: this host's agent is lost, or the disk is full.

    Raises:
        LeadlineError: this host's agent could not be started.
    """
    event_log = EventLog(EntryList(entries, sink), observers)
    agent = await Agent.start(HERE, Launch((str(agent_binary()),)), sink=event_log.on_event, logs=what.logs)
    failure: LeadlineError | None = None
    try:
        clock = await agent.compare_clocks()
        event_log.record("clock", host=HERE, offset_ns=clock.offset_ns, bound_ns=clock.bound_ns)
        here = _Here(agent, Runner({HERE: agent}, {HERE: clock}, event_log, interrupt, keeps_unbegun=True), entries)
        for repeat in range(1, what.repeats + 1):
            # Each repeat begins with the other side, so that a drift of the hosts favours none.
            sides = what.sides if repeat % 2 else what.sides[::-1]
            for side in sides:
                if not interrupt.asked.is_set():
                    await _trial(what, side, repeat, here)
    except LeadlineError as error:
        failure = error
    finally:
        await agent.close()
    status = "failed" if failure else "interrupted" if interrupt.asked.is_set() else "done"
    failure = event_log.record_end("run-end", failure, status=status)
    return analyse(what.manifest(), entries), failure


@dataclass(frozen=True, slots=True)
class _Here:
    """This host's agent, and what runs, records and stops its loads."""

    agent: Agent
    runner: Runner
    entries: Sequence[dict[str, Any]]
    """The journal so far."""


async def _trial(what: Climb, side: Side, repeat: int, here: _Here) -> None:
    """Measure every layer on one side once, and record the end.

    Raises:
        LeadlineError: this host's agent is gone, or the disk is full.
    """
    event_log, interrupt = here.runner.event_log, here.runner.interrupt
    label = begin_trial(event_log, side.case, repeat, {"to": side.server.host})
    failure: LeadlineError | None = None
    try:
        for test in what.tests:
            if not (interrupt.asked.is_set() or f"{side.case}/{test.name}" in what.unreachable):
                await _test(what, side, f"{label}/{test.name}", test, here)
    except LeadlineError as error:
        failure = error
    failure = end_trial(event_log, label, here.runner.ended(failure).status, failure)
    if failure is not None:
        raise failure


async def _test(what: Climb, side: Side, name: str, test: BaseTest, here: _Here) -> None:
    """Run one test. Its failure is recorded, and the others go on.

    Raises:
        LeadlineError: this host's agent is gone, or the disk is full.
    """
    event_log = here.runner.event_log
    event_log.notify(TestBegan(name, test.name, test.kind, test.expected_ms / 1000))
    if test.searched is None:
        ended = await _load(Load(name, test.model_dump(), [Part(HERE, workload(test, side.server))]), here)
    else:
        ended = here.runner.ended(await _search(what, side, name, test, here))
    if ended.failure is not None:
        what.unreachable.add(f"{side.case}/{test.name}")
    event_log.notify(TestEnded(name, test.name, ended.status, ended.cause))


async def _load(one: Load, here: _Here) -> LoadEnd:
    """Run one load to its end; its task may fail.

    Raises:
        LeadlineError: this host's agent is gone, or the disk is full.
    """
    await here.agent.observe(one.label, _OBSERVE_PERIOD_MS, True)
    ended = await here.runner.run(one)
    if ended.failure is not None and not isinstance(ended.failure, TaskFailed):
        raise ended.failure
    return ended


async def _search(what: Climb, side: Side, name: str, test: BaseTest, here: _Here) -> LeadlineError | None:
    """Search for the test's highest rate, a load for each rate; returns its failure.

    Raises:
        LeadlineError: this host's agent is gone, or the disk is full.
    """
    begins = [n for n, entry in enumerate(here.entries) if entry.get("record") == "trial-begin"]
    before = [*here.entries[: begins[0]], here.entries[begins[-1]]]
    manifest = {**what.manifest(), "asked": condition_metrics(test)}

    async def measure(at_rate: BaseTest, number: int) -> TestResult:
        label, begin = f"{name}.{number}", len(here.entries)
        one = Load(label, at_rate.model_dump(), [Part(HERE, workload(at_rate, side.server))], search=name)
        ended = await _load(one, here)
        if ended.failure is not None:
            raise ended.failure
        return analyse_load(manifest, before, here.entries[begin:])

    try:
        await PlanSearch(name, test, measure, here.runner.interrupt).run(here.runner.event_log)
    except Interrupted:
        return None
    except (AgentLost, DatasetError):
        raise
    except LeadlineError as error:
        return error
    return None
