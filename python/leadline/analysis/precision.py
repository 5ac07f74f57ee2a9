"""Whether a case's figures are known well enough, so that no further repeat of it is needed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from leadline.analysis.model import TestResult, Verdict
from leadline.analysis.rate_parts import mean_of_results
from leadline.analysis.repeats import SHARE, mean_with_interval
from leadline.analysis.targets import settles
from leadline.plan.field_types import validate_input
from leadline.plan.repeats import PrecisionGoal, RepeatUntil
from leadline.plan.targets import Target
from leadline.registry import KINDS
from leadline.statistics import Estimate, stopping_confidence
from leadline.statistics.estimate import CONFIDENCE

_GOAL = TypeAdapter(PrecisionGoal)
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
    targets: Sequence[Target] = (),
    confidence: float = CONFIDENCE,
) -> bool:
    """Whether each test of a case has `least` repeats that count, and half of the interval of its leading figure, and
    of those that targets have `named` (by test), is at most `until` of the mean. Of another figure than the leading one
    it is enough that its interval decides the `targets` on it. `most` repeats end it anyway.
    """
    confidence = stopping_confidence(confidence, least, most)
    by_test: dict[str, list[TestResult]] = {}
    for result in results:
        by_test.setdefault(result.test, []).append(result)
    return bool(by_test) and all(
        _is_precise(repeats, _Goal(least, until, confidence), named.get(test, ()), targets)
        for test, repeats in by_test.items()
    )


def half_widths(results: Sequence[TestResult], named: Iterable[str], confidence: float) -> dict[str, float | None]:
    """Half of the interval by the mean, of a test's leading figure and those `named`, over the repeats that count.
    None where there is no interval yet; figures that no repeat tells are left out. `confidence` is that of one look
    (`stopping_confidence`).
    """
    return {name: mean.half_width_ratio for name, mean in _means(results, named, confidence).items()}


def _means(results: Sequence[TestResult], named: Iterable[str], confidence: float) -> dict[str, Estimate]:
    counted = [result for result in results if counts_as_repeat(result)]
    found: dict[str, Estimate] = {}
    kind: PreciseKind | None = KINDS.find(counted[0].kind) if counted else None
    for name in dict.fromkeys((kind.primary, *named)) if kind is not None else ():
        mean = mean_of_results(counted, name, confidence)
        if mean is None:  # no further repeat would tell it either
            continue
        whole = mean_with_interval([result.metrics.get(name) for result in counted], confidence)
        if whole.unit == SHARE and mean.value in (0, 1):
            mean = replace(mean, low=whole.low, high=whole.high)  # by how many operations there were
        found[name] = mean
    return found


def confidence_over_repeats(manifest: Mapping[str, Any]) -> float:
    """The confidence of the intervals over the repeats of a run: more where a narrow one ended the repeating."""
    goal = precision_goal(manifest)
    if goal is not None:
        return stopping_confidence(goal.confidence, goal.least, goal.most)
    try:
        until = validate_input(RepeatUntil, (manifest.get("plan") or {}).get("repeat"))
    except ValidationError:
        return CONFIDENCE  # a number of repeats, or a manifest without them
    return stopping_confidence(CONFIDENCE, until.min, until.max)


def precision_goal(manifest: Mapping[str, Any]) -> PrecisionGoal | None:
    """How well a single command was to know its figures; None if it did not repeat, and for a plan's run."""
    try:
        return _GOAL.validate_python(manifest.get("precision"))
    except ValidationError:
        return None


@dataclass(frozen=True, slots=True)
class _Goal:
    least: int
    until: float
    confidence: float


def _is_precise(results: Sequence[TestResult], goal: _Goal, named: Iterable[str], targets: Sequence[Target]) -> bool:
    if sum(counts_as_repeat(result) for result in results) < goal.least:
        return False
    kind: PreciseKind = KINDS.find(results[0].kind)
    for name, mean in _means(results, named, goal.confidence).items():
        half = mean.half_width_ratio
        is_narrow = half is not None and half <= goal.until
        if not is_narrow and (name == kind.primary or not settles(targets, results[0].test, name, mean.low, mean.high)):
            return False
    return True
