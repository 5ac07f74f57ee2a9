"""The analysis as plain rows, one per figure, for `dataset.write_results` and `leadline results`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.analysis.model import RunAnalysis, Summary, TestResult


def result_rows(analysis: RunAnalysis) -> Iterator[dict[str, Any]]:
    """Every metric of every test of every trial, then of every case over its repeats (without a trial)."""
    for trial in analysis.trials:
        for test in trial.tests:
            yield from _rows(test, trial.trial)
    for summary in analysis.summaries:
        yield from _rows(summary, None)


def _rows(result: TestResult | Summary, trial: str | None) -> Iterator[dict[str, Any]]:
    ratios = result.ratios if isinstance(result, Summary) else {}
    baseline = result.baseline if isinstance(result, Summary) else None
    for name, metric in result.metrics.items():
        ratio = ratios.get(name)
        yield {
            "case": result.case,
            "trial": trial,
            "test": result.test,
            "kind": result.kind,
            "parameters": result.parameters,
            "metric": name,
            "value": metric.value,
            "unit": metric.unit,
            "low": metric.low,
            "high": metric.high,
            "unbounded": metric.unbounded,
            "censored": metric.censored,
            "bound": None if metric.side is None else metric.side.value,
            "validity": metric.verdict.value,
            "reasons": list(metric.reasons),
            "baseline": baseline if ratio is not None else None,
            "ratio": ratio.value if ratio is not None else None,
            "ratio_low": ratio.low if ratio is not None else None,
            "ratio_high": ratio.high if ratio is not None else None,
            "comparison": ratio.word.value if ratio is not None else None,
        }
