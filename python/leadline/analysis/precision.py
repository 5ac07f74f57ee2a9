"""Whether a case's figures are known well enough, so that no further repeat of it is needed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from leadline.analysis.model import TestResult, Verdict
from leadline.registry import KINDS
from leadline.statistics import mean_of_repeats

_NO_REPEAT = frozenset({Verdict.DISTURBED, Verdict.INCOMPLETE})


class PreciseKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def primary(self) -> str:
        """The test's leading figure."""


def counts_as_repeat(result: TestResult) -> bool:
    """Whether a test completed without a disturbance, and so counts as a repeat."""
    return result.status == "done" and result.validity.verdict not in _NO_REPEAT


def is_precise(results: Iterable[TestResult], *, least: int, until: float, named: Mapping[str, Sequence[str]]) -> bool:
    """Whether each test of a case has `least` repeats that count, and half of the 95 % interval of its leading figure,
    and of those that targets have `named` (by test), is at most `until` of the mean.
    """
    by_test: dict[str, list[TestResult]] = {}
    for result in results:
        by_test.setdefault(result.test, []).append(result)
    return bool(by_test) and all(
        _is_precise(repeats, least, until, named.get(test, ())) for test, repeats in by_test.items()
    )


def _is_precise(results: Sequence[TestResult], least: int, until: float, named: Iterable[str]) -> bool:
    counted = [result for result in results if counts_as_repeat(result)]
    if len(counted) < least:
        return False
    kind: PreciseKind = KINDS.find(counted[0].kind)
    for name in dict.fromkeys((kind.primary, *named)):
        values = [metric.value for one in counted if (metric := one.metrics.get(name)) and metric.value is not None]
        if not values:
            continue  # no repeat tells it, and no further one would
        half = mean_of_repeats(values).half_width_ratio
        if half is None or half > until:
            return False
    return True
