"""Summarises a case's repeats: means with 95 % intervals, and a verdict on whether the repeats agree.

The interval is Student's t over the repeats' values (n - 1 degrees of freedom). Repeats are interleaved with the
other cases, so they are as independent as one machine allows. A latency percentile is a figure of a repeat like any
other: the mean of three p99s is the mean p99 of a run, not the p99 of all three runs' requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from leadline.analysis import stability, validity
from leadline.analysis.model import Metric, Reason, Summary, TestResult, Validity, Verdict
from leadline.registry import KINDS
from leadline.statistics import mean_of_repeats

LEAST_REPEATS = 2
"""Number of completed repeats that is enough for a figure if other repeats failed."""


class PrimaryKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def primary(self) -> str:
        """The test's leading figure, by which repeats are compared."""


def summarise(
    results: Sequence[TestResult],
    *,
    planned: int,
    limit: float,
    case: str,
    test: str,
    kind: str,
    parameters: Mapping[str, Any],
) -> Summary:
    """One test of one case over its repeats. Repeats that failed or were interrupted are counted, but not averaged.
    Only if none completed, an interrupted one is shown.

    `planned` is the number of trials of the case that began; `limit` is the plan's `limits.stability.spread`.
    """
    done = [result for result in results if result.status == "done"]
    failed = max(planned, len(results)) - len(done)
    # If no repeat completed, the figures of an interrupted one are shown as incomplete.
    done = done or [result for result in results if result.status == "interrupted" and result.window is not None][:1]
    names = dict.fromkeys(name for result in done for name in result.metrics)
    metrics = {name: mean_with_interval([result.metrics.get(name) for result in done]) for name in names}
    unknown = {
        name: sum((found := result.metrics.get(name)) is None or found.value is None for result in done)
        for name in names
    }
    return Summary(
        case=case,
        test=test,
        kind=kind,
        parameters=dict(parameters),
        repeats=len(done),
        failed=failed,
        metrics=metrics,
        validity=_validity(done, failed, limit, kind),
        gaps={name: number for name, number in unknown.items() if 0 < number < len(done)},
    )


def mean_with_interval(metrics: Iterable[Metric | None]) -> Metric:
    """Mean and 95 % t-interval of the known values; no interval for a single value."""
    known = [metric for metric in metrics if metric is not None]
    unit = known[0].unit if known else ""
    values = [metric.value for metric in known if metric.value is not None]
    if not values:
        return Metric(None, unit)
    mean = mean_of_repeats(values)
    if any(metric.censored for metric in known):
        # A mean with a lower bound in it is a lower bound; the spread of the repeats is then unknown.
        return Metric(mean.value, unit, censored=True)
    return Metric(mean.value, unit, mean.low, mean.high)


def _validity(done: Sequence[TestResult], failed: int, limit: float, kind: str) -> Validity:
    """The repeats' worst verdict, each reason once, and whether the repeats agree."""
    if not done:
        return Validity(Verdict.INCOMPLETE, (Reason("no-repeat-done", "no repeat of this test completed"),))
    verdict = validity.worst(result.validity.verdict for result in done)
    reasons = list(_merged([result.validity.reasons for result in done]))
    notes = tuple(_merged([result.validity.notes for result in done]))
    measured: PrimaryKind = KINDS.find(kind)
    primary = measured.primary
    values = [metric.value for result in done if (metric := result.metrics.get(primary)) and metric.value is not None]
    disagreement = stability.between_repeats(values, limit, primary)
    if disagreement is not None:
        verdict = validity.worst((verdict, Verdict.UNSTABLE))
        reasons.insert(0, disagreement)
    if failed:
        ended = sum(result.status == "done" for result in done)
        # Two repeats that agree still give a figure with an interval. One repeat of a plan with several does not.
        verdict = validity.worst((verdict, Verdict.INCOMPLETE)) if ended < LEAST_REPEATS else verdict
        text = f"{failed} of {failed + ended} repeats did not complete"
        reasons.insert(0, Reason("repeats-failed", text))
    return Validity(verdict, tuple(reasons), notes)


def _merged(repeats: Sequence[Sequence[Reason]]) -> Iterable[Reason]:
    """Each code once, with the first repeat's text, and the number of repeats that have it if not all do."""
    seen: dict[str, tuple[str, int]] = {}
    for reasons in repeats:
        for reason in {reason.code: reason for reason in reversed(reasons)}.values():
            text, times = seen.get(reason.code, (reason.text, 0))
            seen[reason.code] = text, times + 1
    for code, (text, times) in seen.items():
        share = f" (in {times} of {len(repeats)} repeats)" if times < len(repeats) else ""
        yield Reason(code, text + share)
