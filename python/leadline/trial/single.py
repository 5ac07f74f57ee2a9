"""One measurement from this host against an existing server, for the single-test commands.

Uses the same journal entries and the same analysis as a run; the user may have them kept in a run folder.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from leadline import __version__
from leadline.agents import Agent, Event, Launch, agent_binary
from leadline.agents.local_ops import LocalOps
from leadline.analysis.metrics import Histograms
from leadline.analysis.model import Ceiling, TestResult
from leadline.analysis.rules import threads_had_spare_time
from leadline.analysis.run import result_with_histograms
from leadline.contract.models import SampleBatch, Samples
from leadline.errors import LeadlineError
from leadline.plan import BaseTest
from leadline.plan.external_inputs import redacted
from leadline.plan.repeats import PrecisionGoal
from leadline.trial import server_process
from leadline.trial.event_log import EntryList, EventLog, EventSink
from leadline.trial.interrupt import Interrupt
from leadline.trial.load import Load, Part, receiving_parts
from leadline.trial.notifications import Observer, TestBegan, TestEnded
from leadline.trial.runner import LoadEnd, Runner, begin_trial, end_trial
from leadline.trial.second_tools import ToolHosts, ToolRun, repeat_with
from leadline.trial.wake_up import record_wake_ups, waits_for_idle_cpus
from leadline.trial.watch import TargetWatch
from leadline.trial.workloads import LoadWorkload, Receiver

_OBSERVE_PERIOD_MS = 100
HERE = "this host"


@dataclass(frozen=True, slots=True)
class Single:
    """One measurement to run."""

    test: BaseTest
    workload: LoadWorkload
    argv: Sequence[str]
    watch: TargetWatch | None = None
    """Checks that may end it early."""
    ceiling: Ceiling | None = None
    """The generator's ceiling, if it was measured before."""
    find_ceiling: Callable[[], Awaitable[Ceiling | None]] | None = None
    """Measures the ceiling after the load, if the verdict needs it: the generating threads had no time to spare."""
    case: str = "c01"
    """Its case in the run folder; each of several measurements in one folder has its own."""
    repeat: int = 1
    """Which repeat of its case it is, from 1."""
    precision: PrecisionGoal | None = None
    """How well its figures are to be known, if it is repeated until they are."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The parameters in which its case differs from the run's others."""
    alone: bool = True
    """Whether the run ends with this measurement."""
    server_pid: int | None = None
    """Process of a server on this host whose cost is recorded."""
    interval_ms: int | None = None
    """Length of the intervals that are reported while it runs; None for none."""
    logs: Path | None = None
    """Folder for the agent's log; without one, what `LEADLINE_LOG` asks for goes to stderr."""
    asked: Sequence[str] = ()
    """Metrics in addition to those of its kind: percentiles."""
    on_samples: Callable[[SampleBatch], None] | None = None
    """Takes the single requests, where the workload asks for them."""
    second_tool: ToolRun | None = None
    """A second tool's command lines; it repeats the measurement when that has ended."""
    receivers: Sequence[Receiver] = ()
    """What receives what the workload sends, on this host too."""
    within: Sequence[str] = ()
    """A command that runs another one, the agent, within a network of its own; none for this host's."""

    def manifest(self, run_id: str = "") -> dict[str, Any]:
        """The measurement as a plan of one case, without its secrets."""
        secrets = self.test.secrets
        return {
            **({} if self.precision is None else {"precision": asdict(self.precision)}),
            "schema": "leadline.run/1",
            "run_id": run_id,
            "name": self.test.name,
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "version": __version__,
            "command": shlex.join(redacted(self.argv, secrets, self.test.kept_names)),
            "asked": list(self.asked),
            "cases": [{"id": self.case, "parameters": dict(self.parameters), "tests": [self.test.model_dump()]}],
        }


async def measure(
    single: Single,
    entries: list[dict[str, Any]],
    sink: EventSink | None,
    interrupt: Interrupt,
    observers: tuple[Observer, ...],
) -> TestResult:
    """Run the measurement; entries go to `entries`, and to `sink` if there is one.

    Raises:
        LeadlineError: it could not begin, failed, or the disk is full; an interrupted one returns what it has.
    """
    return (await measure_repeat(single, entries, sink, interrupt, observers))[0]


async def measure_repeat(
    single: Single,
    entries: list[dict[str, Any]],
    sink: EventSink | None,
    interrupt: Interrupt,
    observers: tuple[Observer, ...],
) -> tuple[TestResult, Histograms | None]:
    """Run the measurement, as `measure`; its histograms too, which repeats merge."""
    server_process.require_process(single.server_pid)
    event_log = EventLog(EntryList(entries, sink), observers)
    if single.on_samples is not None:
        event_log.listen(partial(_pass_on, single.on_samples))
    trial = begin_trial(event_log, single.case, single.repeat, single.parameters)
    _record_ceiling(single.ceiling, event_log)
    ended = await _run_load(single, trial, event_log, interrupt)
    if single.find_ceiling is not None and ended.status == "done" and _was_busy(entries):
        _record_ceiling(await single.find_ceiling(), event_log)
    failure = end_trial(event_log, trial, ended.status, ended.failure)
    if single.alone:
        failure = event_log.record_end("run-end", failure, status=ended.status)
    if failure is not None:
        raise failure
    return result_with_histograms(single.manifest(), entries)


async def _run_load(single: Single, trial: str, event_log: EventLog, interrupt: Interrupt) -> LoadEnd:
    """Run the load on an agent of its own, and what repeats it; returns how that ended.

    Raises:
        LeadlineError: the agent could not be started.
    """
    test, launch = single.test, Launch((*single.within, str(agent_binary())))
    name = f"{trial}/{test.name}"
    agent = await Agent.start(HERE, launch, sink=event_log.on_event, logs=single.logs, kept=test.kept_names)
    runner = Runner({HERE: agent}, {}, event_log, interrupt)
    try:
        clock = await agent.compare_clocks()
        event_log.record("clock", host=HERE, offset_ns=clock.offset_ns, bound_ns=clock.bound_ns)
        runner = replace(runner, clocks={HERE: clock})
        if waits_for_idle_cpus([test.kind]):
            await record_wake_ups({HERE: agent}, event_log)
        event_log.notify(TestBegan(name, test.name, test.kind, test.expected_ms / 1000))
        one = Load(name, test.model_dump(), _parts(single), single.watch, single.interval_ms)
        during = server_process.observed(agent, single.server_pid, event_log, name, _OBSERVE_PERIOD_MS)
        ended = await runner.run(one, during)
        event_log.notify(TestEnded(name, test.name, ended.status, ended.cause))
        if single.second_tool is not None and ended.status == "done":
            await _repeat(single, single.second_tool, agent, event_log, interrupt)
            return runner.ended(None)
        return ended
    except LeadlineError as failure:
        return runner.ended(failure)
    finally:
        await agent.close()


def _parts(single: Single) -> list[Part]:
    return [Part(HERE, single.workload), *receiving_parts(single.receivers, HERE, HERE)]


def _record_ceiling(ceiling: Ceiling | None, event_log: EventLog) -> None:
    if ceiling is not None:
        event_log.record("ceiling", host=HERE, per_s=ceiling.per_s, extrapolated=ceiling.extrapolated)


def _was_busy(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a generating thread had no time to spare: without that no rate counts as near a ceiling."""
    events = (entry.get("event", {}) for entry in entries)
    return not threads_had_spare_time(event["outcome"] for event in events if event.get("type") == "finished")


def analysed(single: Single, entries: Sequence[Mapping[str, Any]]) -> TestResult:
    """The figures of a measurement that has ended, also of one that failed in the middle."""
    return result_with_histograms(single.manifest(), entries)[0]


def has_figures(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a load moved anything that was counted."""
    rows = (row for entry in entries for row in entry.get("event", {}).get("flows", ()))
    return any(row.get("sent_bytes") or row.get("received_bytes") for row in rows)


def _pass_on(on_samples: Callable[[SampleBatch], None], _host: str, event: Event) -> None:
    if isinstance(event, Samples):
        on_samples(event.samples)


async def _repeat(single: Single, tool: ToolRun, agent: Agent, event_log: EventLog, interrupt: Interrupt) -> None:
    """Repeat the measurement with the second tool, and record what it measured. Ctrl-C ends it without a figure."""
    name = f"{single.case}/{single.repeat}/{single.test.name}"
    label = f"{name}.cross-check"
    await agent.observe(label, _OBSERVE_PERIOD_MS, True)
    event_log.notify(TestBegan(label, f"{single.test.name} by {tool.tool}", single.test.kind, tool.duration_s))
    here = LocalOps(agent, label)
    with TemporaryDirectory(prefix="leadline-") as folder:
        logs = single.logs or Path(folder)
        hosts = ToolHosts({HERE: here}, here, lambda process, _: logs / f"{process}.log")
        working = asyncio.ensure_future(repeat_with({HERE: tool}, hosts, f"{single.case}/{single.repeat}"))
        asked = asyncio.ensure_future(interrupt.asked.wait())
        try:
            await asyncio.wait({working, asked}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result().record(single.test, name, event_log)
        finally:
            working.cancel()
            asked.cancel()
            await asyncio.gather(working, asked, return_exceptions=True)
