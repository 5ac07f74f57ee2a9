"""Analyses the tests of one trial. Pure, and independent of other trials, so another process may do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from leadline.analysis import findings
from leadline.analysis.metrics import Histograms
from leadline.analysis.model import TestResult
from leadline.analysis.test_analysis import analyse_repeat
from leadline.analysis.test_data import TestData
from leadline.dataset import reads_strictly

# The exceptions that an entry with missing or wrong fields raises.
MALFORMED = (KeyError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError)


@dataclass(frozen=True, slots=True)
class AnalysedTests:
    """The results of a trial's tests, and their histograms by case, repeat and test. `malformed` is the number of tests
    whose entries lack data for the figures.
    """

    results: tuple[TestResult, ...]
    histograms: dict[tuple[str, int, str], Histograms]
    malformed: int


Pending: TypeAlias = Callable[[], AnalysedTests]
"""Waits for the results of a trial's tests."""

Begin: TypeAlias = Callable[[Sequence[TestData]], Pending]
"""Begins the analysis of a trial's tests, which do not change any more."""


def analyse_tests(tests: Sequence[TestData]) -> AnalysedTests:
    """Analyse all tests of a trial. A test whose entries lack data has a result that says so."""
    results, malformed = [], 0
    histograms: dict[tuple[str, int, str], Histograms] = {}
    for data in tests:
        try:
            result, histograms[data.case, data.repeat, data.spec.name] = analyse_repeat(data)
            results.append(result)
        except MALFORMED as error:
            if reads_strictly():
                raise
            malformed += 1
            results.append(findings.unreadable_test(data, error))
    return AnalysedTests(tuple(results), histograms, malformed)


def analyse_at_once(tests: Sequence[TestData]) -> Pending:
    """Analyse in this process, before anything else."""
    analysed = analyse_tests(tests)
    return lambda: analysed
