"""The geometry of a comparison's forest plot, in percent of its width, and the words beside it.

The axis is logarithmic, so that half as fast and twice as fast are equally far from 1, and the same for all figures of
a pair.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from leadline import quantities
from leadline.analysis.comparison import ComparedFigure, ComparedRuns
from leadline.report.comparisons import MARKS, interval_of, name_of, notes_of, reasons_of
from leadline.report.figures import signed
from leadline.statistics import Comparison

_TONES = {
    Comparison.FASTER: "good",
    Comparison.SLOWER: "bad",
    Comparison.EQUIVALENT: "bounded",
    Comparison.CANNOT_TELL: "doubtful",
}
_FARTHEST = math.log(100)
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_APART = 11.0
"""Ticks are at least this far apart, in percent of the axis."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure: its words, and the place of its ratio and interval."""

    test: str
    metric: str
    before: str
    after: str
    ratio: str
    interval: str
    word: str
    mark: str
    tone: str
    x: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class ForestPlot:
    """One pair, ready to be drawn."""

    baseline: str
    candidate: str
    sentence: str
    margin: str
    one: float
    margin_low: float
    margin_high: float
    ticks: tuple[tuple[float, str], ...]
    rows: tuple[Row, ...]
    reasons: tuple[tuple[str, str], ...]
    """Figures, and why the data cannot tell."""
    notes: tuple[str, ...]


def forest_plot(one: ComparedRuns) -> ForestPlot:
    """Lay out one pair."""
    half = _half_range(one)

    def across(ratio: float) -> float:
        return round(50 + 50 * max(-1.0, min(1.0, math.log(ratio) / half)), 2) if ratio > 0 else 0.0

    kept: list[tuple[float, str]] = []
    for tick in sorted(_TICKS, key=lambda tick: abs(math.log(tick))):
        place = across(tick)
        if 5 < place < 95 and all(abs(place - other) >= _APART for other, _ in kept):
            kept.append((place, f"{tick:g}"))
    rows = tuple(_row(figure, across) for figure in one.figures)
    return ForestPlot(
        baseline=one.baseline,
        candidate=one.candidate,
        sentence=_sentence(one),
        margin=f"{one.margin:.3g}",
        one=across(1.0),
        margin_low=across(1 / (1 + one.margin)),
        margin_high=across(1 + one.margin),
        ticks=tuple(sorted(kept)),
        rows=rows,
        reasons=tuple((figures, reason) for reason, figures in reasons_of(one).items()),
        notes=tuple(notes_of(one)),
    )


def _half_range(one: ComparedRuns) -> float:
    """How far the axis reaches from 1, as a logarithm: all intervals, at least twice the margin, at most a factor of
    100."""
    known = [value for figure in one.figures for value in (figure.ratio, figure.low, figure.high) if value]
    reach = max((abs(math.log(value)) for value in known), default=0.0)
    return min(_FARTHEST, max(1.15 * reach, 2 * math.log(1 + one.margin), 0.02))


def _row(figure: ComparedFigure, across: Callable[[float], float]) -> Row:
    has_interval = figure.low is not None and figure.high is not None
    return Row(
        test=name_of(figure),
        metric=figure.metric,
        before=signed(quantities.metric(figure.baseline, figure.unit), figure.baseline_bound),
        after=signed(quantities.metric(figure.candidate, figure.unit), figure.candidate_bound),
        ratio=quantities.UNKNOWN if figure.ratio is None else f"{figure.ratio:.3f}",
        interval=interval_of(figure),
        word=figure.word.value,
        mark=MARKS[figure.word],
        tone=_TONES[figure.word],
        x=None if figure.ratio is None else across(figure.ratio),
        low=across(figure.low) if has_interval and figure.low is not None else None,
        high=across(figure.high) if has_interval and figure.high is not None else None,
    )


def _sentence(one: ComparedRuns) -> str:
    """How often each word was given: `3 slower, 5 equivalent`."""
    words = Counter(figure.word for figure in one.figures)
    return ", ".join(f"{words[word]} {word.value}" for word in Comparison if words[word]) or "no figure"
