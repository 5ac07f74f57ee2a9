"""Draws what a plan's searches found: a table for a terminal; rows and a plot of the trials for the page.

Arranges the results of `analysis`; computes no figure but the places of marks in the plot.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.model import RunAnalysis
from leadline.analysis.search_findings import SearchFindings, Trial

_WIDTH, _HEIGHT, _EDGE = 640.0, 180.0, 10.0


@dataclass(frozen=True, slots=True)
class Mark:
    """One trial in the plot, in its units; `tone` is a class of the page's styles."""

    x: float
    y: float
    radius: float
    holds: bool
    title: str


@dataclass(frozen=True, slots=True)
class SearchPlot:
    """Every trial of a search in the order of its trials, by rate; lines at the two rates found."""

    width: float
    height: float
    marks: tuple[Mark, ...]
    low_y: float | None
    high_y: float | None


@dataclass(frozen=True, slots=True)
class SearchSection:
    """A search on the page."""

    headline: str
    rows: tuple[tuple[str, str, str, str], ...]
    plot: SearchPlot


def searches_table(analysis: RunAnalysis) -> RenderableType | None:
    """The two rates of each search, and how it ended; None without a search."""
    found = [(trial.trial, test.test, test.search) for trial in analysis.trials for test in trial.tests if test.search]
    if not found:
        return None
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("trial", no_wrap=True)
    table.add_column("test", overflow="fold")
    for title in ("holds", "does not", "trials"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    found = [(trial, test, part) for trial, test, one in found for part in (one, *one.further)]
    for trial, test, one in found:
        table.add_row(trial, test, rate(one.low_per_s), rate(one.high_per_s), str(len(one.trials)), one.ending)
    conditions = "; ".join(dict.fromkeys(one.conditions for _, _, one in found if one.conditions))
    head = Text.assemble(("Highest rates", "bold underline"), (f"  with {conditions}" if conditions else "", "dim"))
    return Group(head, Padding(table, (0, 0, 0, 2), expand=False))


def search_section(found: SearchFindings) -> SearchSection:
    """A search for the page: what it found, its trials, and their plot."""
    rows = tuple(
        (rate(one.rate_per_s), quantities.seconds(one.duration_s), outcome(one), one.why) for one in found.trials
    )
    said = [
        f"{one.conditions} holds at {rate(one.low_per_s)}, and not at {rate(one.high_per_s)} ({one.ending}"
        for one in (found, *found.further)
    ]
    headline = f"{'); '.join(said)}, {len(rows)} trials)"
    return SearchSection(headline, rows, _plot(found))


def outcome(trial: Trial) -> str:
    """What a trial says of its rate."""
    if trial.few_samples and not trial.generator_limited:
        return "too few samples"
    if trial.holds:
        return "holds"
    if trial.generator_limited:
        return "generator-limited"
    return "disturbed" if trial.disturbed else "does not hold"


def rate(per_s: float | None) -> str:
    """A rate in full: the two rates are close together."""
    if per_s is None:
        return quantities.UNKNOWN
    return f"{per_s:,.0f}/s" if per_s >= 1000 else f"{per_s:.4g}/s"


def _plot(found: SearchFindings) -> SearchPlot:
    highest = max((one.rate_per_s for one in found.trials), default=0.0) or 1.0

    def y_of(per_s: float | None) -> float | None:
        return None if per_s is None else _HEIGHT - _EDGE - (_HEIGHT - 2 * _EDGE) * per_s / highest

    step = (_WIDTH - 2 * _EDGE) / max(1, len(found.trials))
    longest_s = max((one.duration_s for one in found.trials), default=1.0)
    marks = tuple(
        _mark(one, _EDGE + (number + 0.5) * step, y_of(one.rate_per_s) or 0.0, longest_s)
        for number, one in enumerate(found.trials)
    )
    return SearchPlot(_WIDTH, _HEIGHT, marks, y_of(found.low_per_s), y_of(found.high_per_s))


def _mark(one: Trial, x: float, y: float, longest_s: float) -> Mark:
    title = f"{rate(one.rate_per_s)} for {quantities.seconds(one.duration_s)} {outcome(one)}: {one.why}"
    return Mark(round(x, 1), round(y, 1), 5.0 if one.duration_s >= longest_s else 3.0, one.holds, title)
