"""The ratio of each result of a run to the same test of its baseline, by the plan's `baseline`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from leadline.analysis.comparison import chosen_metrics, compare_results, costs_of_tiers
from leadline.analysis.cross_check_model import Ratio
from leadline.analysis.model import Bound, RunAnalysis, Summary, TestResult
from leadline.analysis.ratio_words import bounded_ratio


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
    known = {(one.case, one.test): one for one in analysis.summaries}
    summaries = tuple(_with_ratios(one, baselines.get(one.case), results, margin, named) for one in analysis.summaries)
    summaries = tuple(_with_bounds(one, known.get((one.baseline or "", one.test))) for one in summaries)
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
    names = dict.fromkeys(
        (*chosen_metrics(summary.kind), *costs_of_tiers(summary), *(name for name in named if name in summary.metrics))
    )
    ratios: dict[str, Ratio] = {}
    for name in names:
        compared = compare_results(base, own, name, margin=margin) if base and own else None
        if compared is not None:
            ratios[name] = Ratio(compared.ratio, compared.low, compared.high, compared.word, compared.reason)
    return replace(summary, baseline=baseline, ratios=ratios)


def _with_bounds(summary: Summary, baseline: Summary | None) -> Summary:
    """The summary with the bounds of those ratios that have no value because one of the two figures is a bound."""
    ratios = dict(summary.ratios)
    for name, ratio in summary.ratios.items():
        own, base = summary.metrics.get(name), baseline.metrics.get(name) if baseline is not None else None
        if ratio.value is None and own is not None and base is not None:
            end, side = bounded_ratio(own, base)
            low, high = (end if side is one else None for one in (Bound.LEAST, Bound.MOST))
            ratios[name] = replace(ratio, low=low, high=high)
    return replace(summary, ratios=ratios)
