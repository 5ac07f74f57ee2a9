"""The course of a search for the highest rate that holds: a load without a rate, then trials at the rates that
`mlr_search` chooses, until it has its answer, a trial fails or the user interrupts.

The algorithm is synchronous: it runs in a thread of its own, and passes each trial to the event loop, which talks to
the agents. Where and how a load is measured is the caller's: `find_rate` for commands, `plan_search` for plans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol

from leadline.analysis.model import TestResult
from leadline.analysis.search_findings import Trial
from leadline.errors import Interrupted, LeadlineError
from leadline.trial.capacity_search import Ending, Limits, SearchResult, Stopped
from leadline.trial.interrupt import Interrupt

Measure = Callable[[float | None, float | None], Awaitable[TestResult]]
"""Runs a load at a rate, for a time in seconds without its warm-up; the first one has neither."""


class RateTarget(Protocol):
    """What is searched, and what decides whether a rate holds."""

    def reached_per_s(self, result: TestResult) -> float | None:
        """The rate that the load reached without a rate; None if it reached nothing."""

    def failure_message(self, result: TestResult) -> str:
        """The error message if the load without a rate reached nothing."""

    def initial_result(self, result: TestResult) -> SearchResult | None:
        """The result of the search if the load without a rate already decides it, else None."""

    def limits(self, reached_per_s: float) -> Limits:
        """The range and duration of the search, given the rate that was reached without a rate."""

    @property
    def allowed_losses(self) -> Sequence[float]:
        """The shares of loss that further conditions allow, by which trials are judged too; empty without any."""

    def judge(self, result: TestResult, rate_per_s: float, duration_s: float) -> Trial:
        """Judge the result of a trial."""


@dataclass(slots=True)
class RateSearch:
    """One search, from its load without a rate to its last trial."""

    target: RateTarget
    measure: Measure
    interrupt: Interrupt
    on_trial: Callable[[Trial], None] = lambda _: None
    """Called after each trial."""
    first: TestResult | None = None
    """The load without a rate, once it has been measured."""
    trials: list[Trial] = field(default_factory=list)
    error: LeadlineError | None = None
    """What ended it early, if a trial failed."""

    @property
    def reached_per_s(self) -> float | None:
        """The rate that the load reached without a rate; None if that is not known."""
        return None if self.first is None else self.target.reached_per_s(self.first)

    async def run(self) -> SearchResult:
        """Search until the bounds are close, the budget is used up, a trial fails or the user interrupts.

        Raises:
            LeadlineError: the load without a rate failed or reached nothing, so there is nothing to search.
        """
        self.first = await self.measure(None, None)
        reached = self.reached_per_s
        if self.interrupt.asked.is_set():
            return SearchResult(Ending.INTERRUPTED, None, None, None)
        if not reached:
            raise LeadlineError(self.target.failure_message(self.first))
        known = self.target.initial_result(self.first)
        if known is not None:
            return known
        loop = asyncio.get_running_loop()

        def take(rate_per_s: float, duration_s: float) -> Trial:
            return asyncio.run_coroutine_threadsafe(self._trial(rate_per_s, duration_s), loop).result()

        return await asyncio.to_thread(_search, take, self.target.limits(reached), self.target.allowed_losses)

    async def _trial(self, rate_per_s: float, duration_s: float) -> Trial:
        if self.interrupt.asked.is_set():
            raise Stopped(Ending.INTERRUPTED)
        try:
            result = await self.measure(rate_per_s, duration_s)
        except Interrupted:
            raise Stopped(Ending.INTERRUPTED) from None
        except LeadlineError as error:
            self.error = error
            raise Stopped(Ending.FAILED) from error
        if self.interrupt.asked.is_set():
            raise Stopped(Ending.INTERRUPTED)
        trial = self.target.judge(result, rate_per_s, duration_s)
        self.trials.append(trial)
        self.on_trial(trial)
        return trial


def _search(take: Callable[[float, float], Trial], limits: Limits, further: Sequence[float]) -> SearchResult:
    # When MLRsearch is imported, it reads the source of every frame of the stack, ten times over: a thread has few.
    mlr_search = import_module("leadline.trial.mlr_search")
    found: SearchResult = mlr_search.search(take, limits, further)
    return found
