"""Draws a measurement that was repeated: the mean of each figure with its interval, and the verdict.

Arranges the results of `analysis`; computes no figure.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.model import Metric, Summary, TestResult
from leadline.plan.repeats import PrecisionGoal
from leadline.report import figures, verdicts
from leadline.report.brief import brief_verdict
from leadline.report.text import TONES, verdict_block


def repeated_measurement(
    summary: Summary, repeats: Sequence[TestResult], goal: PrecisionGoal, asked: Sequence[str], *, verbose: bool = False
) -> RenderableType:
    """The figures and those `asked` for, each with its interval, then the leading one and the verdict."""
    table = figures.table_of(summary.kind, summary.metrics)
    lead = summary.metrics.get(table.rate.metric, Metric(None, ""))
    tone = TONES[verdicts.WORDINGS[summary.validity.verdict].tone]
    within = quantities.plus_minus(lead.value, lead.low, lead.high, summary.repeats)
    headline = Text.assemble(
        (figures.written(table.rate, summary.metrics), f"bold {tone}"),
        f" {within}" if within else "",
        f"  {table.title}",
        (f"  mean of {_tally(summary, repeats)}, {_level(goal)} interval", "dim"),
    )
    shown = (table.rate, *(figure for figure in table.others if figure.metric in summary.metrics))
    names = {figure.metric for figure in shown}
    rows = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for title in ("", "mean", "from", "to", ""):
        rows.add_column(title, justify="left" if not title else "right", no_wrap=True)
    for figure in shown:
        metric = summary.metrics.get(figure.metric, Metric(None, ""))
        rows.add_row(
            figure.title,
            figures.written(figure, summary.metrics),
            *("" if bound is None else figure.write(bound) for bound in (metric.low, metric.high)),
            quantities.plus_minus(metric.value, metric.low, metric.high, summary.repeats),
        )
    for name in dict.fromkeys(asked):
        if name not in names and name in summary.metrics:
            rows.add_row(*_plain(name, summary.metrics[name], summary.repeats))
    judged = verdict_block if verbose else brief_verdict
    return Group(Padding(rows, (0, 0, 0, 2), expand=False), Text(""), headline, judged(summary.validity, summary.limit))


def _plain(name: str, metric: Metric, repeats: int) -> tuple[str, ...]:
    bounds = ("" if bound is None else quantities.metric(bound, metric.unit) for bound in (metric.low, metric.high))
    mean = figures.bounded(quantities.metric(metric.value, metric.unit), metric)
    return name, mean, *bounds, quantities.plus_minus(metric.value, metric.low, metric.high, repeats)


def _tally(summary: Summary, repeats: Sequence[TestResult]) -> str:
    """`5 repeats`, `5 of 6 repeats` where some were left out."""
    began = len(repeats)
    of_all = "" if summary.repeats == began else f"{summary.repeats} of "
    return f"{of_all}{quantities.counted(began, 'repeat')}"


def _level(goal: PrecisionGoal) -> str:
    return f"{goal.confidence * 100:g} %"
