"""Draws what load tools report beside what is true, for a terminal of 80 columns: a table for each layer, then one line
that says how many figures each tool got right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.truths import AT_LEAST, AT_MOST, Comparison, Figure, Mark, Score, ToolRun, TruthsReport, Value
from leadline.report.text import titled_table

SIGNS = {Mark.RIGHT: "✓", Mark.WRONG: "✗", Mark.DOUBTED: "?", Mark.SILENT: "–"}
_TONES = {Mark.RIGHT: "green", Mark.WRONG: "red", Mark.DOUBTED: "yellow", Mark.SILENT: "dim"}
LEGEND = "✓ right, ✗ wrong, ? off, and the tool says that it is no more than a bound or not known, – not reported"
_BOUNDS = {AT_MOST: "≤ ", AT_LEAST: "≥ "}
MAX_TOOLS = 4
"""The tools of one table; further ones have another table below it."""
_FAR = 0.1
"""A true value that differs by more than this share from that of the row is said beside a right one, too."""
_NEAR = 0.02
"""Values of several runs that differ by less than this share are shown as one."""


def truths_blocks(report: TruthsReport) -> Iterator[RenderableType]:
    """Everything in reading order."""
    for layer in dict.fromkeys(truth.layer for truth in report.truths):
        tools = tools_of_layer(report, layer)
        for first in range(0, len(tools), MAX_TOOLS):
            yield _table(report, layer, tools[first : first + MAX_TOOLS])
    missing = [text for run in report.runs if (text := missing_text(run)) is not None]
    missing += [f"{name}: {why}" for name, why in report.skipped.items()]
    if missing:
        yield Text("\n".join(missing))
    yield Text.assemble((LEGEND, "dim"), "\n", (score_line(report), "bold"))


def tools_of_layer(report: TruthsReport, layer: str) -> list[str]:
    """The tools with figures of a layer, in the order of the tables."""
    ids = {truth.id for truth in report.truths if truth.layer == layer}
    having = {run.tool for run in report.runs if run.truth in ids and run.comparisons}
    return [tool for tool in report.versions if tool in having]


def missing_text(run: ToolRun) -> str | None:
    """Why there is nothing to compare in a run; None if there is something."""
    if run.error is not None:
        return f"{run.truth}: {run.tool} failed: {run.error}"
    return f"{run.truth}: not decided for {run.tool}: {run.undecided}" if run.undecided is not None else None


def score_line(report: TruthsReport) -> str:
    """How many of its figures each tool got right."""
    parts = []
    for tool in report.versions:
        if report.of_tool(tool):
            parts.append(f"{tool} {score_text(report.score(tool))}")
    return f"Figures that are right: {', '.join(parts)}" if parts else "Nothing was measured"


def score_text(score: Score) -> str:
    """The figures that are right, of all that were asked for."""
    asked = score.right + score.wrong + score.doubted + score.silent
    failed = f" ({quantities.counted(score.failed, 'failure')})" if score.failed else ""
    return f"{score.right} of {asked}{failed}"


def figure_name(figure: Figure) -> str:
    """A figure in words."""
    return _NAMES.get(figure.name, figure.name)


def value_text(value: Value | None, unit: str) -> str:
    """A value in its unit."""
    return value if isinstance(value, str) else quantities.metric(value, unit)


def true_text(comparisons: Sequence[Comparison]) -> str:
    """The true value of all runs, or the range of it where each run has another one."""
    figure, values = comparisons[0].figure, [comparison.true for comparison in comparisons]
    if any(isinstance(value, str) for value in values):
        return str(values[0])
    numbers = [value for value in values if not isinstance(value, str)]
    low, high = min(numbers), max(numbers)
    middle = value_text(sorted(numbers)[len(numbers) // 2], figure.unit)
    return middle if high - low <= _NEAR * abs(high) else "as counted" if figure.unit == "count" else f"≈ {middle}"


def cell_text(comparison: Comparison, *, among: Sequence[Comparison]) -> str:
    """The mark and the value of a tool; beside a true value of its own where the table has none."""
    if comparison.mark is Mark.SILENT:
        return SIGNS[Mark.SILENT]
    unit = comparison.figure.unit
    value = _BOUNDS.get(comparison.bound or "", "") if comparison.mark is Mark.DOUBTED else ""
    value += "not known" if comparison.reported is None else value_text(comparison.reported, unit)
    text = f"{SIGNS[comparison.mark]} {value}"
    if _has_own_truth(comparison, among):
        text += f" of {value_text(comparison.true, unit)}"
    return text


def _has_own_truth(comparison: Comparison, among: Sequence[Comparison]) -> bool:
    """Whether the true value of a run has to be said beside its own: the row's is another one. A count that is right
    says it itself."""
    if comparison.mark is not Mark.RIGHT:
        return true_text(among) != value_text(comparison.true, comparison.figure.unit)
    if isinstance(comparison.true, str) or comparison.figure.unit == "count":
        return False
    middle = sorted(other.true for other in among if not isinstance(other.true, str))[len(among) // 2]
    return abs(comparison.true - middle) > _FAR * middle


def off_text(comparison: Comparison) -> str:
    """The share by which a wrong figure is off; empty if that is no share."""
    off = comparison.off
    if comparison.mark is not Mark.WRONG or off is None:
        return ""
    return f"{off + 1:,.0f} times" if off >= _TIMES else quantities.rounded_share(off, signed=True)


def _table(report: TruthsReport, layer: str, tools: Sequence[str]) -> Table:
    drawn = titled_table(layer, "reported and true")
    drawn.add_column(Text(""), no_wrap=True)
    drawn.add_column(Text("true"))
    for tool in tools:
        drawn.add_column(Text(tool))
    for truth in report.truths:
        runs = [run for run in report.runs if run.truth == truth.id and run.comparisons]
        if truth.layer != layer or not runs:
            continue
        drawn.add_row(Text(truth.id, "bold"))
        for number, figure in enumerate(truth.figures):
            among = [run.comparisons[number] for run in runs]
            by_tool = {run.tool: run.comparisons[number] for run in runs}
            cells = [_cell(by_tool.get(tool), among) for tool in tools]
            drawn.add_row(Text(f" {figure_name(figure)}"), Text(true_text(among)), *cells)
    return drawn


def _cell(comparison: Comparison | None, among: Sequence[Comparison]) -> Text:
    """Empty for a tool that cannot offer the load, or failed."""
    if comparison is None:
        return Text("")
    off = off_text(comparison)
    return Text(cell_text(comparison, among=among) + (f"\n  {off}" if off else ""), _TONES[comparison.mark])


_TIMES = 9.0
"""From here on, a value is said to be a multiple of the true one."""
_NAMES = {
    "requests": "answers",
    "bad_statuses": "4xx and 5xx",
    "failed": "failures",
    "requests_per_s": "rate",
    "latency_p50_us": "p50",
    "latency_p99_us": "p99",
    "latency_max_us": "max",
    "throughput_bps": "goodput",
    "limited_by": "limit",
    "reordered": "out of order",
}
