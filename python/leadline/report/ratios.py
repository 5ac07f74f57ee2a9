"""Draws the ratios of a run's results to those of the plan's baseline, for a terminal and for the page.

Arranges the results of `analysis`; computes no figure.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.cross_check_model import Ratio
from leadline.analysis.model import RunAnalysis, Summary
from leadline.report.comparisons import MARKS, TONES


@dataclass(frozen=True, slots=True)
class RatioCell:
    """A ratio as text: in a cell of the page."""

    value: str
    interval: str
    word: str
    reason: str


def ratio_text(ratio: Ratio) -> str:
    """`0.213 ▼`: the ratio and the mark of its word."""
    return f"{_number(ratio)} {MARKS[ratio.word]}"


def ratio_cell(summary: Summary, metric: str) -> RatioCell | None:
    """The ratio of one figure; None without one."""
    ratio = summary.ratios.get(metric)
    if ratio is None:
        return None
    return RatioCell(_number(ratio), _interval(ratio), ratio.word.value, ratio.reason or "")


def ratios_table(analysis: RunAnalysis) -> RenderableType:
    """Every known ratio with its interval and its word; below, why a ratio or its word is not known."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("case", no_wrap=True)
    for title in ("test", "figure"):
        table.add_column(title, overflow="fold")
    for title in ("ratio", "95 %"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    reasons: dict[str, list[str]] = {}
    for summary in analysis.summaries:
        for metric, ratio in summary.ratios.items():
            word = Text(f"{MARKS[ratio.word]} {ratio.word.value}", style=TONES[ratio.word])
            if (ratio.value, ratio.low, ratio.high) != (None, None, None):
                table.add_row(summary.case, summary.test, metric, _number(ratio), _interval(ratio), word)
            if ratio.reason:
                reasons.setdefault(ratio.reason, []).append(f"{summary.case} {summary.test} {metric}")
    baselines = ", ".join(dict.fromkeys(analysis.baselines.values()))
    head = Text.assemble(("Compared with the baseline", "bold underline"), (f"  {baselines}", "dim"))
    notes = (Padding(Text(line, style="dim"), (0, 0, 0, 2), expand=False) for line in _notes(reasons))
    drawn = [Padding(table, (0, 0, 0, 2), expand=False)] if table.row_count else []
    return Group(head, *drawn, *notes)


def _notes(reasons: dict[str, list[str]]) -> list[str]:
    """Each reason once, with the figures that it is about."""
    lines = []
    for reason, where in reasons.items():
        rest = len(where) - _MOST_NAMED
        lines.append(f"{reason}: {', '.join(where[:_MOST_NAMED])}{f' and {rest} more' if rest > 0 else ''}")
    return lines


def _number(ratio: Ratio) -> str:
    """`0.213`, or the bound of a ratio of which only one is known: `≥ 0.48`."""
    if ratio.value is not None:
        return quantities.number(ratio.value)
    known = [
        f"{sign} {quantities.number(end)}" for sign, end in (("≥", ratio.low), ("≤", ratio.high)) if end is not None
    ]
    return known[0] if known else quantities.number(None)


def _interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return ""
    return f"{quantities.significant(ratio.low)} to {quantities.significant(ratio.high)}"


_MOST_NAMED = 3
