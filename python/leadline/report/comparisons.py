"""Draws comparisons of runs or systems: the sentence for each figure first, then the table, then what else differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.comparison import ComparedFigure, ComparedRuns
from leadline.report.figures import signed
from leadline.report.names import name_lines
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
_TITLES = ("", "before", "after", "ratio", "95 %", "")
_LEAST_WIDTHS = (20, 11, 11, 5, 14, 13)
"""The columns of most comparisons, so that those of several pairs are equal."""
_LEAST_NAME, _INTERVAL = 12, 4
"""The least width of a name, and the place of the intervals."""


def comparison_blocks(compared: Sequence[ComparedRuns]) -> Iterator[RenderableType]:
    """One block for each pair."""
    return (_block(one) for one in compared)


def _block(one: ComparedRuns) -> RenderableType:
    head = Text.assemble(
        (one.candidate, "bold"), " compared with ", (one.baseline, "bold"), f"  equivalent within {one.margin:.3g}"
    )
    parts: list[RenderableType] = [head, _Tables(one.figures)]
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
    if one.not_interleaved is not None:
        yield one.not_interleaved
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


@dataclass(frozen=True, slots=True)
class _Tables:
    """A table for each test, with equal columns. Where they do not fit, the names of the figures are broken."""

    figures: Sequence[ComparedFigure]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        by_test: dict[str, list[list[Text]]] = {}
        for figure in self.figures:
            by_test.setdefault(name_of(figure), []).append(_cells(figure))
        head = [Text(title) for title in _TITLES]
        columns = zip(head, *(row for rows in by_test.values() for row in rows), strict=True)
        longest = (max(cell.cell_len for cell in column) for column in columns)
        name, *others = (max(widths) for widths in zip(longest, _LEAST_WIDTHS, strict=True))
        room = options.max_width - sum(others) - len(others)
        # Where not even a part of the names fits, it is the intervals that are left out, and never a verdict.
        left_out = {_INTERVAL} if room < min(name, _LEAST_NAME) else set[int]()
        room += sum(others[place - 1] + 1 for place in left_out)
        widths = dict(enumerate([max(min(name, room), 1), *others]))
        shown = {place: width for place, width in widths.items() if place not in left_out}
        for test, rows in by_test.items():
            yield Text(test, style="bold")
            yield _table(rows, shown)


def _table(rows: Sequence[Sequence[Text]], widths: Mapping[int, int]) -> Table:
    """The columns at these places, with their widths."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for place, width in widths.items():
        is_figure = 0 < place < len(_TITLES) - 1
        table.add_column(_TITLES[place], justify="right" if is_figure else "left", no_wrap=True, width=width)
    for row in rows:
        name, *cells = (row[place] for place in widths)
        table.add_row(Text("\n".join(name_lines(name.plain, widths[0]))), *cells)
    return table


def _cells(one: ComparedFigure) -> list[Text]:
    return [
        Text(one.metric),
        Text(signed(quantities.metric(one.baseline, one.unit), one.baseline_bound)),
        Text(signed(quantities.metric(one.candidate, one.unit), one.candidate_bound)),
        Text(quantities.UNKNOWN if one.ratio is None else f"{one.ratio:.3f}"),
        Text(interval_of(one)),
        Text(f"{MARKS[one.word]} {one.word.value}", style=TONES[one.word]),
    ]


def _line(text: str) -> RenderableType:
    return Padding(Text(text, style="dim"), (0, 0, 0, 2), expand=False)
