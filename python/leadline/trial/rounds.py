"""The rounds of a plan that repeats until a precision: which cases need a further trial, whether its time allows one,
and what further rounds would bring on a machine as busy as in the first one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leadline.analysis.model import TestResult, Verdict
from leadline.analysis.precision import counts_as_repeat, is_precise
from leadline.plan import Case, Plan, Trial, expected_seconds, one_round


@dataclass(frozen=True, slots=True)
class FirstRound:
    """What the first round says about the machine, and about the rounds to come."""

    results: int
    disturbed: int
    """Of the results, those that something else disturbed; they do not count."""
    cause: str | None
    """What the first disturbed result names; None if there is none."""
    round_s: float
    """Expected duration of a round of all cases."""
    needed: int | None
    """Rounds after which the number that the plan asks for should count; None if the plan has no room for them."""
    possible: int
    """Rounds that the plan has room for, by their number and its time."""


class Rounds:
    """Which cases of a plan that repeats until a precision need a further trial."""

    def __init__(self, plan: Plan, cases: Sequence[Case]) -> None:
        self._plan = plan
        self._all = tuple(cases)
        self._cases = {case.id: case for case in cases}
        self._results: dict[str, list[TestResult]] = {case.id: [] for case in cases}
        self._trials: Counter[str] = Counter()
        self.is_out_of_time = False
        """Whether the plan's time ended the rounds, though figures are not known well enough."""

    def take(self, trial: Trial, ended: str, results: Iterable[TestResult]) -> None:
        """How one more trial ended, and its figures. A case that failed or was skipped would do so again."""
        self._trials[trial.case.id] += 1
        self._results[trial.case.id] += results
        if ended != "done":
            self._cases.pop(trial.case.id, None)

    def first_round(self, elapsed_s: float) -> FirstRound | None:
        """The first round, right after its last trial; None at any other time, and of a plan without further rounds."""
        until = self._plan.until
        if until is None or any(self._trials[case.id] != 1 for case in self._all) or not self._cases:
            return None
        results = [result for of_case in self._results.values() for result in of_case]
        disturbed = [result for result in results if result.validity.verdict is Verdict.DISTURBED]
        reasons = [reason.text for result in disturbed for reason in result.validity.reasons]
        round_s = expected_seconds(one_round(list(self._cases.values()), 1, self._plan.seed))
        possible = until.max
        if until.within_ms is not None:
            possible = min(possible, 1 + max(0, int((until.within_ms / 1000 - elapsed_s) / round_s)))
        counted = sum(map(counts_as_repeat, results))
        needed = math.ceil(until.min * len(results) / counted) if counted else None
        return FirstRound(
            results=len(results),
            disturbed=len(disturbed),
            cause=reasons[0] if reasons else None,
            round_s=round_s,
            needed=needed if needed is not None and needed <= possible else None,
            possible=possible,
        )

    def next_round(self, elapsed_s: float) -> list[Trial]:
        """The next round: every case that is not known well enough and may have another trial. `elapsed_s` is the time
        since the run began: a round that would end after the plan's time does not begin."""
        until = self._plan.until
        if until is None:
            return []
        missing = [
            case
            for case in self._cases.values()
            if self._trials[case.id] < until.max
            and not is_precise(
                self._results[case.id],
                least=until.min,
                most=until.max,
                until=until.until,
                named=self._named(case),
                targets=self._plan.targets,
            )
        ]
        if not missing:
            return []
        found = one_round(missing, max(self._trials.values(), default=0) + 1, self._plan.seed)
        self.is_out_of_time = (
            until.within_ms is not None and elapsed_s + expected_seconds(found) > until.within_ms / 1000
        )
        return [] if self.is_out_of_time else found

    def _named(self, case: Case) -> dict[str, list[str]]:
        """The figures that targets name, by the case's tests."""
        return {
            test.name: [target.metric for target in self._plan.targets if target.test in (None, test.name)]
            for test in case.tests
        }
