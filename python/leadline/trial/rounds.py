"""Which cases of a plan that repeats until a precision need a further trial."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from leadline.analysis.model import TestResult
from leadline.analysis.precision import is_precise
from leadline.plan import Case, Plan, Trial, one_round


class Rounds:
    """Which cases of a plan that repeats until a precision need a further trial."""

    def __init__(self, plan: Plan, cases: Sequence[Case]) -> None:
        self._plan = plan
        self._cases = {case.id: case for case in cases}
        self._results: dict[str, list[TestResult]] = {case.id: [] for case in cases}
        self._trials: Counter[str] = Counter()

    def take(self, trial: Trial, ended: str, results: Iterable[TestResult]) -> None:
        """How one more trial ended, and its figures. A case that failed or was skipped would do so again."""
        self._trials[trial.case.id] += 1
        self._results[trial.case.id] += results
        if ended != "done":
            self._cases.pop(trial.case.id, None)

    def next_round(self) -> list[Trial]:
        """The next round: every case that is not known well enough and may have another trial."""
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
        return one_round(missing, max(self._trials.values(), default=0) + 1, self._plan.seed) if missing else []

    def _named(self, case: Case) -> dict[str, list[str]]:
        """The figures that targets name, by the case's tests."""
        return {
            test.name: [target.metric for target in self._plan.targets if target.test in (None, test.name)]
            for test in case.tests
        }
