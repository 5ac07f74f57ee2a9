"""The ratio of each result of a run to the same test of its baseline, by the plan's `baseline`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from leadline.analysis.comparison import chosen_metrics, compare_results
from leadline.analysis.cross_check_model import Ratio
from leadline.analysis.model import RunAnalysis, Summary, TestResult


def with_ratios(
    analysis: RunAnalysis, baselines: Mapping[str, str], margin: float, named: Sequence[str]
) -> RunAnalysis:
    """The analysis, whose summaries have the ratio of their main figures, and of those that targets have `named`, to
    the summary of their baseline. `baselines` has the case that each case is compared with."""
    if not baselines:
        return analysis
    results: dict[tuple[str, str], list[TestResult]] = {}
    for trial in analysis.trials:
        for result in trial.tests:
            if result.status == "done":
                results.setdefault((result.case, result.test), []).append(result)
    summaries = tuple(_with_ratios(one, baselines.get(one.case), results, margin, named) for one in analysis.summaries)
    return replace(analysis, summaries=summaries, baselines=dict(baselines))


def _with_ratios(
    summary: Summary,
    baseline: str | None,
    results: Mapping[tuple[str, str], Sequence[TestResult]],
    margin: float,
    named: Sequence[str],
) -> Summary:
    if baseline is None:
        return summary
    own, base = (results.get((case, summary.test), ()) for case in (summary.case, baseline))
    names = dict.fromkeys((*chosen_metrics(summary.kind), *(name for name in named if name in summary.metrics)))
    ratios: dict[str, Ratio] = {}
    for name in names:
        compared = compare_results(base, own, name, margin=margin) if base and own else None
        if compared is not None:
            ratios[name] = Ratio(compared.ratio, compared.low, compared.high, compared.word, compared.reason)
    return replace(summary, baseline=baseline, ratios=ratios)
