"""Runs a capacity search on a real server: first without a rate, then trials at the rates that `mlr_search`
chooses.

Owns the records of each trial and the verdict on the search. A `SearchTarget` is the load whose rate is searched; its
kind of test provides it. `rate_search` has the course of a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from leadline.analysis import machine_rules
from leadline.analysis.capacity import Conditions
from leadline.analysis.model import Ceiling, Metric, Reason, TestResult, Validity, Verdict
from leadline.analysis.search_findings import Trial
from leadline.analysis.searches import (
    FEW_SAMPLES,
    FEW_SAMPLES_TEXT,
    FOUND_PER_S,
    FURTHER_PER_S,
    disturbed_trials,
    doubt_by_ending,
)
from leadline.errors import Interrupted, LeadlineError
from leadline.plan import BaseTest
from leadline.quantities import rate_in_full
from leadline.trial.capacity_search import Ending, SearchResult
from leadline.trial.event_log import EntryList, EventLog, EventSink
from leadline.trial.interrupt import Interrupt
from leadline.trial.notifications import Observer
from leadline.trial.rate_search import RateSearch, RateTarget
from leadline.trial.single import Single, measure
from leadline.trial.workloads import LoadWorkload

Watching = Callable[[], AbstractContextManager[tuple[Observer, ...]]]
"""Callbacks while one trial runs."""


class SearchTarget(RateTarget, Protocol):
    """A load whose highest rate is searched, and its conditions."""

    @property
    def conditions(self) -> Conditions:
        """The conditions at a rate."""

    @property
    def test(self) -> BaseTest:
        """The test whose rate is searched."""

    @property
    def workload(self) -> LoadWorkload:
        """Its load, without a rate."""

    @property
    def argv(self) -> Sequence[str]:
        """The command line of the search."""

    def with_ceiling(self, ceiling: Ceiling | None) -> SearchTarget:
        """Return the target with this ceiling of the generator; None if it is unknown."""

    @property
    def reference(self) -> str:
        """The name of the figure for the load without a rate, such as `closed_loop_per_s`."""

    def single(self, case: str, rate_per_s: float | None, steady_s: float | None) -> Single:
        """One measurement at a rate for this time, or without a rate; a separate case."""

    def rest_s(self, result: TestResult) -> float:
        """The pause that the server needs before the next trial."""

    def validity(self, found: SearchResult, trials: Sequence[Trial], error: str | None) -> Validity:
        """The verdict on the whole search; `error` is set if a trial was aborted."""


def search_manifest(search_target: SearchTarget, run_id: str) -> dict[str, Any]:
    """The search as a run's manifest. Its cases are not known yet; the journal has them."""
    conditions = search_target.conditions
    single = Single(search_target.test, search_target.workload, search_target.argv, asked=conditions.metrics)
    return {**single.manifest(run_id), "cases": []}


@dataclass(frozen=True, slots=True)
class FurtherAnswer:
    """The answer of the same trials for weaker conditions."""

    conditions: str
    rate: Metric
    validity: Validity
    ending: Ending


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a search."""

    found: SearchResult
    first: TestResult
    """The load without a rate, before the first trial."""
    reference: Metric
    """The rate that it reached."""
    reference_name: str
    trials: tuple[Trial, ...]
    validity: Validity
    error: str | None
    """The error that ended the search early, if any."""
    unwritten: LeadlineError | None = None
    """The error that kept the end of the search out of the journal."""
    further: tuple[FurtherAnswer, ...] = ()
    """The answers for further conditions."""

    @property
    def metrics(self) -> dict[str, Metric]:
        """The rate found, with its bounds, and the rate reached without a rate."""
        further = {FURTHER_PER_S: self.further[0].rate} if self.further else {}
        rate = _rate_of(self.found, self.validity)
        return {FOUND_PER_S: rate, **further, self.reference_name: self.reference}


@dataclass(slots=True)
class Search:
    """One search, from its first trial to its last."""

    search_target: SearchTarget
    interrupt: Interrupt
    sink: EventSink | None
    """Where all samples are stored, if they are kept."""
    logs: Path | None = None
    """See `Single.logs`."""
    on_trial: Callable[[Trial], None] = lambda _: None
    """Called after each trial."""
    watching: Watching = lambda: nullcontext(())
    _begun: int = 0
    _rest_s: float = 0.0

    async def run(self) -> Answer:
        """Search until the bounds are close, the budget is used up, or the user interrupts.

        Raises:
            LeadlineError: the load without a rate failed or reached nothing, so there is nothing to search.
        """
        event_log = EventLog(self.sink if self.sink is not None else EntryList([]))
        event_log.record("run-begin", find_rate=self.search_target.conditions.text)
        try:
            answer = await self._search()
        except BaseException:
            event_log.record_end("run-end", None, status="failed")
            raise
        known = answer.found
        bounds = {"low_per_s": known.low_per_s, "high_per_s": known.high_per_s}
        unwritten = event_log.record_end("found-rate", None, ending=known.ending.value, **bounds)
        status = {Ending.INTERRUPTED: "interrupted", Ending.FAILED: "failed"}.get(known.ending, "done")
        return replace(answer, unwritten=event_log.record_end("run-end", unwritten, status=status))

    async def _search(self) -> Answer:
        target = self.search_target
        search = RateSearch(target, self._measure, self.interrupt, self.on_trial)
        found, error = await search.run(), None if search.error is None else str(search.error)
        assert search.first is not None, "a search begins with the load without a rate"
        judged = target.validity(found, search.trials, error)
        validity = replace(judged, notes=(*machine_rules.notes(), *judged.notes))
        reference = Metric(search.reached_per_s, "1/s")
        trials = tuple(search.trials)
        answer = Answer(found, search.first, reference, target.reference, trials, validity, error)
        return replace(answer, further=tuple(self._further(found, trials, error)))

    def _further(self, found: SearchResult, trials: Sequence[Trial], error: str | None) -> Iterator[FurtherAnswer]:
        target = self.search_target
        for number, (asked, one) in enumerate(zip(target.conditions.further, found.further, strict=False)):
            own = [trial.further[number] for trial in trials]
            validity = target.validity(one, own, error)
            yield FurtherAnswer(asked.text, _rate_of(one, validity), validity, one.ending)

    async def _measure(self, rate_per_s: float | None, steady_s: float | None) -> TestResult:
        """One measurement; it is a case of its own in the folder."""
        if self._begun:
            await self.interrupt.pause(self._rest_s)
            if self.interrupt.asked.is_set():
                raise Interrupted("stopped by the user")
        self._begun += 1
        single = replace(self.search_target.single(f"c{self._begun:02}", rate_per_s, steady_s), logs=self.logs)
        entries: list[dict[str, Any]] = []
        with self.watching() as observers:
            result = await measure(single, entries, self.sink, self.interrupt, observers)
        self._rest_s = self.search_target.rest_s(result)
        return result


def _rate_of(found: SearchResult, validity: Validity) -> Metric:
    """The rate found, with its bounds and the doubts of its verdict."""
    verdict = validity.verdict
    rate = Metric(found.low_per_s, "1/s", found.low_per_s, found.high_per_s)
    doubts = [] if verdict is Verdict.VALID else [(verdict, reason.code) for reason in validity.reasons]
    return doubt_by_ending(rate, found.ending.value, doubts)


def verdict_of(found: SearchResult, trials: Sequence[Trial], error: str | None) -> Validity:
    """The verdict: the bound that is missing, and the reason."""
    match found.ending:
        case Ending.FOUND | Ending.NONE_HELD:
            disturbed = disturbed_trials(trials, found.high_per_s)
            return Validity(Verdict.VALID) if disturbed is None else Validity(Verdict.DISTURBED, (disturbed,))
        case Ending.GENERATOR_LIMITED:
            known = found.low_per_s or 0.0
            lowest = min(
                trial.rate_per_s
                for trial in trials
                if trial.generator_limited and not trial.holds and trial.rate_per_s > known
            )
            text = (
                f"from {rate_in_full(lowest)} on the generator was at its limit or late: the server's limit is unknown"
            )
            if found.high_per_s is not None:
                text = (
                    f"at {rate_in_full(lowest)} the generator was at its limit or late, at "
                    f"{rate_in_full(found.high_per_s)} the server failed: the server's limit between the "
                    "bounds is unknown"
                )
            return Validity(Verdict.GENERATOR_LIMITED, (Reason("generator-limited-trials", text),))
        case Ending.FEW_SAMPLES | Ending.ALL_HELD:
            text = "the highest rate tried holds: a multiple of the rate that the load reaches without a rate"
            reason = Reason("highest-rate-held", text)
            if found.ending is Ending.FEW_SAMPLES:
                reason = Reason(FEW_SAMPLES, FEW_SAMPLES_TEXT)
            return Validity(Verdict.UNDETERMINED, (reason,))
        case Ending.BUDGET:
            text = "the trials disagreed until the time budget was used up: the bounds are the last ones"
            return Validity(Verdict.INCOMPLETE, (Reason("search-budget", text),))
        case Ending.INTERRUPTED:
            return Validity(Verdict.INCOMPLETE, (Reason("ended-early", "the search was interrupted"),))
        case Ending.FAILED:
            return Validity(Verdict.INCOMPLETE, (Reason("ended-early", f"a trial failed: {error}"),))
