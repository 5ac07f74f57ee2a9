"""Whether a case's figures are known well enough, so that no further repeat of it is needed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import ValidationError

from leadline.analysis.model import TestResult, Verdict
from leadline.analysis.rate_parts import mean_of_results
from leadline.plan.field_types import validate_input
from leadline.plan.repeats import RepeatUntil
from leadline.registry import KINDS
from leadline.statistics import stopping_confidence
from leadline.statistics.estimate import CONFIDENCE

_NO_REPEAT = frozenset({Verdict.DISTURBED, Verdict.INCOMPLETE})


class PreciseKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def primary(self) -> str:
        """The test's leading figure."""


def counts_as_repeat(result: TestResult) -> bool:
    """Whether a test completed without a disturbance, and so counts as a repeat."""
    return result.status == "done" and result.validity.verdict not in _NO_REPEAT


def is_precise(
    results: Iterable[TestResult],
    *,
    least: int,
    most: int,
    until: float,
    named: Mapping[str, Sequence[str]],
    confidence: float = CONFIDENCE,
) -> bool:
    """Whether each test of a case has `least` repeats that count, and half of the interval of its leading figure, and
    of those that targets have `named` (by test), is at most `until` of the mean. `most` repeats end it anyway.
    """
    confidence = stopping_confidence(confidence, least, most)
    by_test: dict[str, list[TestResult]] = {}
    for result in results:
        by_test.setdefault(result.test, []).append(result)
    return bool(by_test) and all(
        _is_precise(repeats, least, until, named.get(test, ()), confidence) for test, repeats in by_test.items()
    )


def half_widths(results: Sequence[TestResult], named: Iterable[str], confidence: float) -> dict[str, float | None]:
    """Half of the interval by the mean, of a test's leading figure and those `named`, over the repeats that count.
    None where there is no interval yet; figures that no repeat tells are left out. `confidence` is that of one look
    (`stopping_confidence`).
    """
    counted = [result for result in results if counts_as_repeat(result)]
    found: dict[str, float | None] = {}
    kind: PreciseKind | None = KINDS.find(counted[0].kind) if counted else None
    for name in dict.fromkeys((kind.primary, *named)) if kind is not None else ():
        mean = mean_of_results(counted, name, confidence)
        if mean is not None:  # else no further repeat would tell it either
            found[name] = mean.half_width_ratio
    return found


def confidence_of_plan(plan: Mapping[str, Any]) -> float:
    """With which intervals over the repeats of this plan are made: more where a narrow one ended the repeating."""
    try:
        until = validate_input(RepeatUntil, plan.get("repeat"))
    except ValidationError:
        return CONFIDENCE  # a number of repeats, or a manifest without them
    return stopping_confidence(CONFIDENCE, until.min, until.max)


def _is_precise(
    results: Sequence[TestResult], least: int, until: float, named: Iterable[str], confidence: float
) -> bool:
    if sum(counts_as_repeat(result) for result in results) < least:
        return False
    return all(half is not None and half <= until for half in half_widths(results, named, confidence).values())
