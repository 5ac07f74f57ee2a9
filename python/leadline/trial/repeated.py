"""Repeats one measurement from this host until its figures are known well enough, for the single-test commands.

Owns when to stop: `analysis.precision` decides on the interval, the goal has the least and the largest number. A repeat
that something else disturbed does not count, and is made up for by another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from leadline.analysis.metrics import Histograms
from leadline.analysis.model import TestResult
from leadline.analysis.precision import half_widths, is_precise
from leadline.dataset import Entry
from leadline.errors import LeadlineError
from leadline.plan.repeats import PrecisionGoal
from leadline.plan.targets import Target
from leadline.statistics import stopping_confidence
from leadline.trial.event_log import EntryList, EventLog, EventSink
from leadline.trial.interrupt import Interrupt
from leadline.trial.notifications import Observer
from leadline.trial.single import Single, measure_repeat


@dataclass(frozen=True, slots=True)
class Repeats:
    """The repeats of one measurement, in order."""

    results: tuple[TestResult, ...]
    is_precise: bool
    """Whether the goal was reached."""
    half_widths: dict[str, float | None]
    """Half of the interval by the mean, of the leading figure and those of the targets."""
    error: LeadlineError | None = None
    """The error that ended a later repeat, and with it the repeating."""
    second_tool: tuple[Entry, ...] = ()
    """The journal's records of a second tool that repeated each of them."""
    histograms: Mapping[tuple[str, int, str], Histograms] = field(default_factory=dict)
    """Those of each repeat, by case, repeat and test."""
    unwritten: LeadlineError | None = None
    """The error that kept the end of the run out of the journal."""


async def measure_repeats(
    single: Single,
    goal: PrecisionGoal,
    sink: EventSink | None,
    interrupt: Interrupt,
    *,
    observers: tuple[Observer, ...] = (),
    targets: Sequence[Target] = (),
    on_repeat: Callable[[Sequence[TestResult], dict[str, float | None]], None] = lambda *_: None,
) -> Repeats:
    """Repeat the measurement; `on_repeat` is called after each with all results and how well they are known.

    Raises:
        LeadlineError: the first one could not begin, or failed.
    """
    results: list[TestResult] = []
    second_tool: list[Entry] = []
    histograms: dict[tuple[str, int, str], Histograms] = {}
    precise, widths, failure = False, dict[str, float | None](), None
    while not precise and len(results) < goal.most and not interrupt.asked.is_set():
        entries: list[Entry] = []
        one = replace(single, repeat=len(results) + 1, alone=False)
        try:
            result, own = await measure_repeat(one, entries, sink, interrupt, observers)
        except LeadlineError as error:
            failure = error
            break
        results.append(result)
        if own is not None:
            histograms[result.case, result.repeat, result.test] = own
        second_tool += [entry for entry in entries if entry.get("record") == "cross-check"]
        precise = is_precise(
            results,
            least=goal.least,
            most=goal.most,
            until=goal.width,
            named={single.test.name: list(single.asked)},
            targets=targets,
            confidence=goal.confidence,
        )
        widths = half_widths(results, single.asked, stopping_confidence(goal.confidence, goal.least, goal.most))
        on_repeat(results, widths)
    status = "failed" if failure else "interrupted" if interrupt.asked.is_set() else "done"
    unwritten = EventLog(EntryList([], sink)).record_end("run-end", None, status=status)
    if failure is not None and not results:
        raise failure
    return Repeats(tuple(results), precise, widths, failure, tuple(second_tool), histograms, unwritten)
