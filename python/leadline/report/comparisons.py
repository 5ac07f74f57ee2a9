"""Draws comparisons of runs or systems: the sentence for each figure first, then the table, then what else differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.comparison import ComparedFigure, ComparedRuns
from leadline.statistics import Comparison

_TONES = {
    Comparison.FASTER: "green",
    Comparison.SLOWER: "red",
    Comparison.EQUIVALENT: "",
    Comparison.CANNOT_TELL: "yellow",
}
MARKS = {
    Comparison.FASTER: "▲",
    Comparison.SLOWER: "▼",
    Comparison.EQUIVALENT: "=",
    Comparison.CANNOT_TELL: "?",
}


def comparison_blocks(compared: Sequence[ComparedRuns]) -> Iterator[RenderableType]:
    """One block for each pair."""
    return (_block(one) for one in compared)


def _block(one: ComparedRuns) -> RenderableType:
    head = Text.assemble(
        (one.candidate, "bold"), " compared with ", (one.baseline, "bold"), f"  equivalent within {one.margin:.3g}"
    )
    parts: list[RenderableType] = [head, Padding(_table(one.figures), (0, 0, 0, 2), expand=False)]
    parts += [_line(f"{figure.test} {figure.metric}: {figure.reason}") for figure in one.figures if figure.reason]
    parts += [_line(text) for text in notes_of(one)]
    return Group(*parts)


def notes_of(one: ComparedRuns) -> Iterator[str]:
    """What was not compared, and what else differs."""
    yield from (f"not compared: {text}" for text in one.missing)
    for difference in one.differences:
        what = "another load or machine" if difference.blocking else "differs"
        yield f"{what}: {difference.what}: {difference.baseline} -> {difference.candidate}"


def interval_of(figure: ComparedFigure) -> str:
    """The ratio's interval as text; empty without one."""
    return "" if figure.low is None or figure.high is None else f"{figure.low:.3f} to {figure.high:.3f}"


def _table(figures: Sequence[ComparedFigure]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("test")
    table.add_column("figure")
    for title in ("before", "after", "ratio", "95 %"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")
    for one in figures:
        parameters = " ".join(f"{name}={value}" for name, value in one.parameters.items())
        table.add_row(
            f"{one.test} {parameters}".strip(),
            one.metric,
            quantities.metric(one.baseline, one.unit),
            quantities.metric(one.candidate, one.unit),
            quantities.UNKNOWN if one.ratio is None else f"{one.ratio:.3f}",
            interval_of(one),
            Text(f"{MARKS[one.word]} {one.word.value}", style=_TONES[one.word]),
        )
    return table


def _line(text: str) -> RenderableType:
    return Padding(Text(text, style="dim"), (0, 0, 0, 2), expand=False)
