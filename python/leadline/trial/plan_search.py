"""Runs the search of a plan's test: loads at the rates that `mlr_search` chooses, in the environment of its trial.

Owns the record of what was found. `rate_search` has the course of a search; read docs/search.md first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Protocol

from leadline.analysis.capacity import Conditions
from leadline.analysis.model import TestResult
from leadline.analysis.search_findings import Trial
from leadline.errors import Interrupted
from leadline.plan import BaseTest
from leadline.plan.rate_search import read_conditions
from leadline.registry import KINDS
from leadline.trial.capacity_search import Ending, Limits, SearchResult
from leadline.trial.event_log import EventLog
from leadline.trial.interrupt import Interrupt
from leadline.trial.rate_search import RateSearch

_REFERENCE_MS = 1000
Measure = Callable[[BaseTest, int], Awaitable[TestResult]]
"""Runs one load of the search, the `number`th from 1."""


class SearchedKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def search_headroom(self) -> float:
        """The highest rate to try, as a multiple of the rate that the load reached without a rate."""

    def at_rate(self, test: Any, rate_per_s: float | None, duration_ms: int) -> BaseTest:
        """The test at a rate of all its clients, or without a rate."""

    def reached_per_s(self, test: Any, result: TestResult) -> float | None:
        """The rate that the load reached without a rate; None if it reached nothing."""

    def judge_rate(
        self, conditions: Conditions, test: Any, result: TestResult, rate_per_s: float, duration_s: float
    ) -> Trial:
        """Judge the result of a load at a rate."""


def condition_metrics(test: BaseTest) -> list[str]:
    """The figures in the conditions of a test's search."""
    return [target.metric for target in read_conditions(test.searched.until[0], test.name, test.kind)]


@dataclass(frozen=True, slots=True)
class _PlanTarget:
    """The rate of a plan's test, as its kind judges it."""

    kind: SearchedKind
    test: BaseTest
    conditions: Conditions

    def reached_per_s(self, result: TestResult) -> float | None:
        """The rate that the load reached without a rate."""
        return self.kind.reached_per_s(self.test, result)

    def failure_message(self, result: TestResult) -> str:
        """The message if it reached nothing."""
        return f"{self.test.name}: the load without a rate reached nothing, so no rate holds"

    def initial_result(self, result: TestResult) -> SearchResult | None:
        """None: a load without a rate decides nothing."""
        return None

    def limits(self, reached_per_s: float) -> Limits:
        """The test's duration without its warm-up is that of the deciding trials."""
        final_s = (self.test.duration_ms - self.test.warmup_ms) / 1000
        width = self.test.searched.width
        return Limits.around(
            reached_per_s,
            final_s,
            self.kind.search_headroom,
            width,
            samples=self.conditions.samples,
            goals=1 + len(self.conditions.further),
        )

    @property
    def allowed_losses(self) -> Sequence[float]:
        """The shares that the further conditions allow."""
        return self.conditions.allowed_losses

    def judge(self, result: TestResult, rate_per_s: float, duration_s: float) -> Trial:
        """Whether the conditions held."""
        return self.kind.judge_rate(self.conditions, self.test, result, rate_per_s, duration_s)


@dataclass(slots=True)
class PlanSearch:
    """The search of one test in one trial."""

    label: str
    """The test's label, as in "c01/1/ndr"."""
    test: BaseTest
    measure: Measure
    interrupt: Interrupt
    _begun: int = 0

    async def run(self, event_log: EventLog) -> None:
        """Search, and record what was found.

        Raises:
            LeadlineError: the load without a rate failed or reached nothing, or a load failed.
            Interrupted: the user stopped it.
        """
        conditions = Conditions.read_all(self.test.searched.until, self.test.name, self.test.kind, "search.until")
        target = _PlanTarget(KINDS.get(self.test.kind), self.test, conditions)
        search = RateSearch(target, partial(self._measure, target.kind), self.interrupt)
        found = SearchResult(Ending.FAILED, None, None, None)
        try:
            found = await search.run()
        finally:
            further = [
                {"conditions": one.text, **_bounds(its)}
                for one, its in zip(conditions.further, found.further, strict=False)
            ]
            event_log.record(
                "search-end",
                label=self.label,
                conditions=conditions.text,
                **_bounds(found),
                reached_per_s=search.reached_per_s,
                trials=[asdict(trial) for trial in search.trials],
                **({"further": further} if further else {}),
            )
        if found.ending is Ending.INTERRUPTED:
            raise Interrupted("stopped by the user")
        if search.error is not None:
            raise search.error

    async def _measure(self, kind: SearchedKind, rate_per_s: float | None, steady_s: float | None) -> TestResult:
        steady_ms = _REFERENCE_MS if steady_s is None else max(1, round(steady_s * 1000))
        self._begun += 1
        test = kind.at_rate(self.test, rate_per_s, self.test.warmup_ms + steady_ms)
        return await self.measure(test, self._begun)


def _bounds(found: SearchResult) -> dict[str, Any]:
    return {
        "ending": found.ending.value,
        "low_per_s": found.low_per_s,
        "high_per_s": found.high_per_s,
        "decided_s": found.decided_s,
    }
