"""Whether a second tool agrees with a test's figure, by the plan's `cross_check`: pairs over the repeats. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leadline.analysis.cross_check_model import Agreement, CrossCheck, Ratio
from leadline.analysis.model import Summary, TestResult, TrialResult, Verdict
from leadline.statistics import Comparison, Estimate, compare, mean_of_repeats, ratio_of_means

_MOST_FAILED = 0.01
"""Share of failed requests above which the second tool's rate is not that of the same load."""


@dataclass(frozen=True, slots=True)
class ToolRepeat:
    """The record `cross-check`: what the second tool measured after one test of one trial."""

    label: str
    """The test's label, as in "c01/1/http"."""
    tool: str
    metric: str
    version: str | None
    per_s: float | None
    failed: int
    seconds: float | None
    error: str | None

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> ToolRepeat:
        """Read the journal's record."""
        value, seconds = record.get("value"), record.get("seconds")
        return cls(
            label=str(record["label"]),
            tool=str(record["tool"]),
            metric=str(record["metric"]),
            version=str(record["version"]) if record.get("version") else None,
            per_s=None if value is None else float(value),
            failed=int(record.get("failed") or 0),
            seconds=None if seconds is None else float(seconds),
            error=str(record["error"]) if record.get("error") else None,
        )


Pair = tuple[TestResult, ToolRepeat]


def of_run(
    trials: Sequence[TrialResult], summaries: Sequence[Summary], repeats: Sequence[ToolRepeat], margin: float
) -> Iterator[CrossCheck]:
    """The cross-check of each test that has one, in the order of the summaries."""
    by_label = {one.label: one for one in repeats}
    pairs: dict[tuple[str, str], list[Pair]] = {}
    for test in (test for trial in trials for test in trial.tests):
        label = f"{test.case}/{test.repeat}/{test.test}"
        if label in by_label:
            pairs.setdefault((test.case, test.test), []).append((test, by_label[label]))
    for summary in summaries:
        found = pairs.get((summary.case, summary.test))
        if found:
            yield _cross_check(summary.case, summary.test, found, margin)


def of_command(results: Sequence[TestResult], entries: Sequence[Mapping[str, Any]], margin: float) -> CrossCheck | None:
    """The cross-check of one measurement and its repeats, which have no case; None if no second tool ran. `entries`
    are those of a journal."""
    repeats = [ToolRepeat.read(entry) for entry in entries if entry.get("record") == "cross-check"]
    by_label = {one.label: one for one in repeats}
    labels = [(result, f"{result.case}/{result.repeat}/{result.test}") for result in results]
    pairs = [(result, by_label[label]) for result, label in labels if label in by_label]
    return _cross_check("", pairs[0][0].test, pairs, margin) if pairs else None


def _cross_check(case: str, test: str, pairs: Sequence[Pair], margin: float) -> CrossCheck:
    tool, metric = pairs[0][1].tool, pairs[0][1].metric
    good = _values(pair for pair in pairs if not any(_troubles(*pair)))
    troubles = tuple(dict.fromkeys(trouble for pair in pairs for trouble in _troubles(*pair)))
    ratio = _ratio(good, margin, troubles)
    shown = good or _values(pairs)
    owns = [own for own, _ in shown] or _own_values(pairs)
    own = mean_of_repeats(owns) if owns else None
    other = mean_of_repeats([other for _, other in shown]) if shown else None
    return CrossCheck(
        case=case,
        test=test,
        tool=tool,
        versions=tuple(dict.fromkeys(one.version for _, one in pairs if one.version)),
        metric=metric,
        unit=next((test.metrics[metric].unit for test, _ in pairs if metric in test.metrics), ""),
        repeats=len(good),
        own=_bounds(own),
        other=_bounds(other),
        ratio=ratio,
        agreement=_WORDS[ratio.word],
        margin=margin,
        troubles=troubles,
    )


def _values(pairs: Iterable[Pair]) -> list[tuple[float, float]]:
    """The two figures of each repeat that has both."""
    return [
        (own.value, one.per_s)
        for test, one in pairs
        if (own := test.metrics.get(one.metric)) and own.value is not None and one.per_s is not None
    ]


def _own_values(pairs: Iterable[Pair]) -> list[float]:
    """Leadline's figure of each repeat that has one."""
    figures = [test.metrics.get(one.metric) for test, one in pairs]
    return [figure.value for figure in figures if figure is not None and figure.value is not None]


def _troubles(test: TestResult, repeat: ToolRepeat) -> Iterator[str]:
    """Why a repeat says nothing of whether the two agree."""
    own = test.metrics.get(repeat.metric)
    if test.status != "done" or own is None or own.value is None:
        yield "a repeat has no figure of Leadline's"
    elif own.verdict in _NOT_COMPARABLE:
        yield f"a repeat's figure of Leadline's is {own.verdict.value}"
    if repeat.error is not None or repeat.per_s is None:
        yield repeat.error or f"{repeat.tool} has no figure"
    elif repeat.failed > _MOST_FAILED * repeat.per_s * (repeat.seconds or 0.0):
        yield f"{repeat.failed} requests of {repeat.tool} failed"


def _ratio(pairs: Sequence[tuple[float, float]], margin: float, troubles: tuple[str, ...]) -> Ratio:
    doubts = "; ".join(troubles)
    if not pairs or not any(own for own, _ in pairs):
        return Ratio(None, None, None, Comparison.CANNOT_TELL, doubts or "no figure is above 0")
    estimate = ratio_of_means([own for own, _ in pairs], [other for _, other in pairs], paired=True)
    word = compare(estimate, margin=margin, higher_is_better=True)
    reason = None
    if word is Comparison.CANNOT_TELL:
        wide = "the interval holds 1 and reaches beyond the margin: repeat more often or for longer"
        reason = "; ".join(part for part in (doubts, estimate.reason or wide) if part)
    return Ratio(estimate.value, estimate.low, estimate.high, word, reason)


def _bounds(estimate: Estimate | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)


_WORDS = {
    Comparison.EQUIVALENT: Agreement.AGREE,
    Comparison.FASTER: Agreement.DIFFER,
    Comparison.SLOWER: Agreement.DIFFER,
    Comparison.CANNOT_TELL: Agreement.CANNOT_TELL,
}
_NOT_COMPARABLE = (Verdict.INCOMPLETE, Verdict.DISTURBED)
"""Verdicts of figures that another run of the same tool would not repeat."""
