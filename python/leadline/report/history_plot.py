"""The geometry of a history's plot, in percent of its width and height, and the words beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from leadline import quantities
from leadline.analysis.trend import Change, History, Point, Shift
from leadline.report import trends
from leadline.report.figures import signed

TONES = {Shift.REGRESSION: "bad", Shift.IMPROVEMENT: "good", Shift.SMALL: "quiet", Shift.NEUTRAL: "bounded"}
_LEAST_RANGE = 0.04
"""An axis spans at least this share of its middle: noise of one thousandth is not drawn as a storm."""
_ROOM = 0.08


@dataclass(frozen=True, slots=True)
class Mark:
    """A run: a point with its interval, and what it says when it is pointed at."""

    x: float
    y: float
    top: float | None
    bottom: float | None
    is_judged: bool
    title: str


@dataclass(frozen=True, slots=True)
class Line:
    """A horizontal line: a level; or a vertical one, if both `x` are the same: a shift."""

    x1: float
    x2: float
    y: float
    tone: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class HistoryPlot:
    """A history, ready to be drawn."""

    name: str
    metric: str
    better: str
    machine: str
    reason: str | None
    caution: str | None
    spoken: str
    labels: tuple[tuple[float, str], ...]
    """The axis of figures: place from the top in percent, and text."""
    first: str
    last: str
    marks: tuple[Mark, ...]
    levels: tuple[Line, ...]
    shifts: tuple[Line, ...]
    rows: tuple[tuple[str, ...], ...]
    """Run, time, figure, interval, verdict: the plot as a table."""


def by_interest(histories: Iterable[History]) -> list[History]:
    """Sort histories: those with a new regression first, then those with other shifts, then the steady ones."""
    return sorted(histories, key=_interest)


def _interest(history: History) -> int:
    if any(one.is_new and one.shift is Shift.REGRESSION for one in history.changes):
        return 0
    if any(one.shift is not Shift.SMALL for one in history.changes):
        return 1
    return 2 if history.reason is None else 3


def shift_row(history: History, change: Change) -> dict[str, str]:
    """A shift as a row of the page's table."""
    return {
        "tone": TONES[change.shift],
        "mark": trends.MARKS[change.shift],
        "word": f"{change.shift.value}{' (new)' if change.is_new else ''}",
        "test": history.name,
        "metric": history.metric,
        "change": trends.change_line(history, change),
        "place": trends.place_line(change),
    }


def history_plot(history: History) -> HistoryPlot:
    """Lay out one history."""
    low, high = _range(history)

    def height(value: float) -> float:
        return round(100 * (high - value) / (high - low), 2)

    places = {point.run: _across(number, len(history.points)) for number, point in enumerate(history.points)}
    half = 50 / max(1, len(history.points))
    write = partial(quantities.metric, unit=history.unit)
    shifts = [_shift_line(change, places[change.run] - half) for change in history.changes]
    levels = [
        Line(max(0, places[one.first_run] - half), min(100, places[one.last_run] + half), height(one.mean))
        for one in history.levels
    ]
    return HistoryPlot(
        name=history.name,
        metric=history.metric,
        better=f"{history.better.value} is better" if history.better.value != "neither" else "neither way is better",
        machine=", ".join(f"{name} {value}" for name, value in history.machine.items()),
        reason=history.reason,
        caution=history.caution,
        spoken=_spoken(history),
        labels=tuple((height(value), write(value)) for value in (high, (high + low) / 2, low)),
        first=_day(history.points[0]),
        last=_day(history.points[-1]),
        marks=tuple(
            Mark(
                x=places[point.run],
                y=height(point.value),
                top=None if point.high is None else height(point.high),
                bottom=None if point.low is None else height(point.low),
                is_judged=point.is_judged,
                title=", ".join(_row(point, write)),
            )
            for point in history.points
        ),
        levels=tuple(levels),
        shifts=tuple(shifts),
        rows=tuple(_row(point, write) for point in history.points),
    )


def _across(number: int, count: int) -> float:
    return round(100 * (number + 0.5) / count, 3)


def _range(history: History) -> tuple[float, float]:
    """What the axis of figures spans: all points, and intervals as far as twice the points' own range."""
    values = [point.value for point in history.points]
    low, high = min(values), max(values)
    room = high - low
    bounds = [bound for point in history.points for bound in (point.low, point.high) if bound is not None]
    low, high = max(low - room, min(low, *bounds, low)), min(high + room, max(high, *bounds, high))
    middle = (low + high) / 2
    half = max((high - low) / 2, abs(middle) * _LEAST_RANGE / 2) or 0.5
    bottom, top = middle - half * (1 + _ROOM), middle + half * (1 + _ROOM)
    return (0.0 if bottom < 0 <= min(values) else bottom), top


def _shift_line(change: Change, x: float) -> Line:
    label = "" if change.shift is Shift.SMALL else f"{trends.MARKS[change.shift]} {trends.share_of(change)}"
    return Line(round(x, 3), round(x, 3), 0, TONES[change.shift], label)


def _row(point: Point, write: Callable[[float], str]) -> tuple[str, ...]:
    interval = "" if point.low is None or point.high is None else f"{write(point.low)} to {write(point.high)}"
    repeats = quantities.counted(point.repeats, "repeat")
    return point.run, point.started_at, signed(write(point.value), point.bound), interval, repeats, point.verdict.value


def _spoken(history: History) -> str:
    """The plot as text, for screen readers."""
    levels = [quantities.metric(level.mean, history.unit) for level in history.levels]
    shifts = [f"{change.shift.value} near {change.run}" for change in history.changes]
    return f"{history.name} {history.metric} in {len(history.points)} runs. " + "; ".join(
        (f"levels {', '.join(levels)}" if levels else "no run to judge", *(shifts or ["no shift"]))
    )


def _day(point: Point) -> str:
    return point.started_at[:10] or point.run
