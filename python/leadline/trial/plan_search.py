"""Runs the search of a plan's test: loads at the rates that `mlr_search` chooses, in the environment of its trial.

Owns the order of the loads and the record of what was found. The search is synchronous: it runs in its own thread and
passes each load to the event loop, which talks to the agents. Read docs/search.md first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from leadline.analysis.capacity import Conditions
from leadline.analysis.model import TestResult
from leadline.analysis.search_findings import Trial
from leadline.errors import Interrupted, LeadlineError
from leadline.plan import BaseTest
from leadline.plan.rate_search import read_conditions
from leadline.registry import KINDS
from leadline.trial.capacity_search import Ending, Limits, SearchResult, Stopped
from leadline.trial.event_log import EventLog
from leadline.trial.interrupt import Interrupt
from leadline.trial.search_thread import search_in_thread

_REFERENCE_MS = 1000
Measure = Callable[[BaseTest, int], Awaitable[TestResult]]
"""Runs one load of the search, the `number`th from 1."""


class SearchedKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def search_headroom(self) -> float:
        """The highest rate to try, as a multiple of the rate that the load reached without a rate."""

    def at_rate(self, test: Any, rate_per_s: float | None, duration_ms: int, clients: int) -> BaseTest:
        """The test at a rate of all its clients, or without a rate."""

    def reached_per_s(self, test: Any, result: TestResult) -> float | None:
        """The rate that the load reached without a rate; None if it reached nothing."""

    def judge_rate(
        self, conditions: Conditions, test: Any, result: TestResult, rate_per_s: float, duration_s: float
    ) -> Trial:
        """Judge the result of a load at a rate."""


def condition_metrics(test: BaseTest) -> list[str]:
    """The figures in the conditions of a test's search."""
    return [target.metric for target in read_conditions(test.searched.until, test.name, test.kind)]


@dataclass(slots=True)
class PlanSearch:
    """The search of one test in one trial."""

    label: str
    """The test's label, as in "c01/1/ndr"."""
    test: BaseTest
    clients: int
    measure: Measure
    interrupt: Interrupt
    _trials: list[Trial] = field(default_factory=list)
    _error: LeadlineError | None = None

    async def run(self, event_log: EventLog) -> None:
        """Search, and record what was found.

        Raises:
            LeadlineError: the load without a rate failed or reached nothing, or a load failed.
            Interrupted: the user stopped it.
        """
        conditions = Conditions.read(self.test.searched.until, self.test.name, self.test.kind, "search.until")
        kind: SearchedKind = KINDS.get(self.test.kind)
        found, reached = SearchResult(Ending.FAILED, None, None, None), None
        try:
            first = await self.measure(kind.at_rate(self.test, None, self._whole_ms(_REFERENCE_MS), self.clients), 1)
            reached = kind.reached_per_s(self.test, first)
            if self.interrupt.asked.is_set():
                found = SearchResult(Ending.INTERRUPTED, None, None, None)
                raise Interrupted("stopped by the user")
            if not reached:
                raise LeadlineError(f"{self.test.name}: the load without a rate reached nothing, so no rate holds")
            found = await self._search(kind, conditions, reached)
        finally:
            self._record(event_log, conditions, found, reached)
        if found.ending is Ending.INTERRUPTED:
            raise Interrupted("stopped by the user")
        if self._error is not None:
            raise self._error

    async def _search(self, kind: SearchedKind, conditions: Conditions, reached: float) -> SearchResult:
        final_s = (self.test.duration_ms - self.test.warmup_ms) / 1000
        width = self.test.searched.width
        limits = Limits.around(reached, final_s, kind.search_headroom, width, conditions.samples)
        loop = asyncio.get_running_loop()

        async def one(rate_per_s: float, duration_s: float) -> Trial:
            if self.interrupt.asked.is_set():
                raise Stopped(Ending.INTERRUPTED)
            test = kind.at_rate(self.test, rate_per_s, self._whole_ms(round(duration_s * 1000)), self.clients)
            try:
                result = await self.measure(test, len(self._trials) + 2)
            except Interrupted:
                raise Stopped(Ending.INTERRUPTED) from None
            except LeadlineError as error:
                self._error = error
                raise Stopped(Ending.FAILED) from error
            trial = kind.judge_rate(conditions, self.test, result, rate_per_s, duration_s)
            self._trials.append(trial)
            return trial

        def take(rate_per_s: float, duration_s: float) -> Trial:
            return asyncio.run_coroutine_threadsafe(one(rate_per_s, duration_s), loop).result()

        return await search_in_thread(take, limits)

    def _whole_ms(self, steady_ms: int) -> int:
        return self.test.warmup_ms + max(1, steady_ms)

    def _record(self, event_log: EventLog, conditions: Conditions, found: SearchResult, reached: float | None) -> None:
        event_log.record(
            "search-end",
            label=self.label,
            conditions=conditions.text,
            ending=found.ending.value,
            low_per_s=found.low_per_s,
            high_per_s=found.high_per_s,
            decided_s=found.decided_s,
            reached_per_s=reached,
            trials=[asdict(trial) for trial in self._trials],
        )
