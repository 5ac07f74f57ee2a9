"""Targets decided on intervals."""

from __future__ import annotations

import pytest

from leadline.statistics import Decision, decide
from leadline.statistics.decision import Operator


@pytest.mark.parametrize(
    ("operator", "low", "high", "decision"),
    [
        ("<", 7.0, 9.0, Decision.MET),
        ("<", 7.0, 10.0, Decision.UNDECIDED),
        ("<=", 7.0, 10.0, Decision.MET),
        ("<", 9.0, 11.0, Decision.UNDECIDED),
        ("<", 10.0, 12.0, Decision.MISSED),
        ("<=", 10.0, 12.0, Decision.UNDECIDED),
        ("<=", 11.0, 12.0, Decision.MISSED),
        (">", 11.0, 12.0, Decision.MET),
        (">", 10.0, 12.0, Decision.UNDECIDED),
        (">=", 10.0, 12.0, Decision.MET),
        (">", 9.0, 10.0, Decision.MISSED),
        (">=", 9.0, 10.0, Decision.UNDECIDED),
        (">=", 8.0, 9.0, Decision.MISSED),
        ("==", 10.0, 10.0, Decision.MET),
        ("==", 9.0, 11.0, Decision.UNDECIDED),
        ("==", 11.0, 12.0, Decision.MISSED),
        ("<", None, 9.0, Decision.MET),
        ("<", 7.0, None, Decision.UNDECIDED),
        ("<", 11.0, None, Decision.MISSED),
        (">", 11.0, None, Decision.MET),
        (">", None, 12.0, Decision.UNDECIDED),
        ("==", None, None, Decision.UNDECIDED),
    ],
)
def test_target_of_10(operator: Operator, low: float | None, high: float | None, decision: Decision) -> None:
    assert decide(operator, 10.0, low, high) is decision


def test_mean_that_meets_the_target_does_not_decide_it() -> None:
    """p99 of 200, 300 and 5000 us: mean 1833, interval -4980 to 8647."""
    assert decide("<", 2000.0, -4980.0, 8647.0) is Decision.UNDECIDED


def test_count_is_its_own_interval() -> None:
    assert decide("==", 0.0, 0.0, 0.0) is Decision.MET
    assert decide("<", 0.001, 0.0, 0.0) is Decision.MET


def test_turned_interval_is_refused() -> None:
    with pytest.raises(ValueError, match="no value lies between"):
        decide("<", 1.0, 3.0, 2.0)
    with pytest.raises(ValueError, match="unknown operator"):
        decide("!=", 1.0, 1.0, 2.0)  # type: ignore[arg-type]
