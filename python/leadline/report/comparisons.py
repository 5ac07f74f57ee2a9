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

TONES = {
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

_MOST_NAMES = 3
"""How many figures are named beside a reason that they share."""


def comparison_blocks(compared: Sequence[ComparedRuns]) -> Iterator[RenderableType]:
    """One block for each pair."""
    return (_block(one) for one in compared)


def _block(one: ComparedRuns) -> RenderableType:
    head = Text.assemble(
        (one.candidate, "bold"), " compared with ", (one.baseline, "bold"), f"  equivalent within {one.margin:.3g}"
    )
    parts: list[RenderableType] = [head]
    by_test: dict[str, list[ComparedFigure]] = {}
    for figure in one.figures:
        by_test.setdefault(name_of(figure), []).append(figure)
    for name, figures in by_test.items():
        parts += [Text(name, style="bold"), _table(figures)]
    parts += [_line(f"{figures}: {reason}") for reason, figures in reasons_of(one).items()]
    parts += [_line(text) for text in notes_of(one)]
    return Group(*parts)


def reasons_of(one: ComparedRuns) -> dict[str, str]:
    """Why the data cannot tell: each reason with the figures that it concerns."""
    found: dict[str, list[str]] = {}
    for figure in one.figures:
        if figure.reason:
            found.setdefault(figure.reason, []).append(f"{name_of(figure)} {figure.metric}")
    return {reason: _few(names) for reason, names in found.items()}


def _few(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def notes_of(one: ComparedRuns) -> Iterator[str]:
    """What was not compared, and what else differs."""
    yield from (f"not compared: {text}" for text in one.missing)
    for difference in one.differences:
        what = "another load or machine" if difference.blocking else "differs"
        yield f"{what}: {difference.what}: {difference.baseline} -> {difference.candidate}"


def interval_of(figure: ComparedFigure) -> str:
    """The ratio's interval as text; empty without one."""
    return "" if figure.low is None or figure.high is None else f"{figure.low:.3f} to {figure.high:.3f}"


def name_of(figure: ComparedFigure) -> str:
    """The test and its parameters."""
    parameters = " ".join(f"{name}={value}" for name, value in figure.parameters.items())
    return f"{figure.test} {parameters}".strip()


def _table(figures: Sequence[ComparedFigure]) -> Table:
    """The figures of one test; tables of several tests have equal columns."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", min_width=20, overflow="fold")
    for title, width in (("before", 11), ("after", 11), ("ratio", 5), ("95 %", 14)):
        table.add_column(title, justify="right", no_wrap=True, min_width=width)
    table.add_column("", no_wrap=True)
    for one in figures:
        table.add_row(
            one.metric,
            quantities.metric(one.baseline, one.unit),
            quantities.metric(one.candidate, one.unit),
            quantities.UNKNOWN if one.ratio is None else f"{one.ratio:.3f}",
            interval_of(one),
            Text(f"{MARKS[one.word]} {one.word.value}", style=TONES[one.word]),
        )
    return table


def _line(text: str) -> RenderableType:
    return Padding(Text(text, style="dim"), (0, 0, 0, 2), expand=False)
