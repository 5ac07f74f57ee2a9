"""Analyses the tests of one trial. Pure, and independent of other trials, so another process may do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from leadline.analysis import findings
from leadline.analysis.frequent_events import MALFORMED, FrequentEvents
from leadline.analysis.metrics import Histograms
from leadline.analysis.model import TestResult
from leadline.analysis.test_analysis import analyse_repeat
from leadline.analysis.test_data import TestData
from leadline.dataset import reads_strictly


@dataclass(frozen=True, slots=True)
class AnalysedTests:
    """The results of a trial's tests, and their histograms by case, repeat and test. `malformed` is the number of tests
    whose entries lack data for the figures; `frequent` has what else the stretch told.
    """

    results: tuple[TestResult, ...]
    histograms: dict[tuple[str, int, str], Histograms]
    malformed: int
    frequent: FrequentEvents


Pending: TypeAlias = Callable[[], AnalysedTests]
"""Waits for the results of a trial's tests."""

Begin: TypeAlias = Callable[[Mapping[str, TestData], FrequentEvents], Pending]
"""Begins the analysis of a trial's tests, by label, which change only by the frequent events of the stretch that ends
with the trial. Stretches without a trial have no tests."""


def analyse_tests(tests: Mapping[str, TestData], frequent: FrequentEvents) -> AnalysedTests:
    """Analyse all tests of a trial. A test whose entries lack data has a result that says so."""
    frequent.complete(tests)
    results, malformed = [], 0
    histograms: dict[tuple[str, int, str], Histograms] = {}
    for data in tests.values():
        try:
            result, histograms[data.case, data.repeat, data.spec.name] = analyse_repeat(data)
            results.append(result)
        except MALFORMED as error:
            if reads_strictly():
                raise
            malformed += 1
            results.append(findings.unreadable_test(data, error))
    return AnalysedTests(tuple(results), histograms, malformed, frequent)


def analyse_at_once(tests: Mapping[str, TestData], frequent: FrequentEvents) -> Pending:
    """Analyse in this process, before anything else."""
    analysed = analyse_tests(tests, frequent)
    return lambda: analysed
