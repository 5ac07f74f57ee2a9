"""Prepares the data of the page's charts: plain, small enough for a page, safe to embed.

Selects, groups and thins samples; `static/report.js` draws them. The page states everything that is left out.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pydantic_core
from markupsafe import Markup
from numpy.typing import NDArray

from leadline import quantities
from leadline.analysis.disturbance import LIMIT_SHARE
from leadline.analysis.model import Percentiles, Series, TestResult, Window
from leadline.analysis.time_marks import STALLED
from leadline.analysis.trial_records import FlowSpan, MarkKind
from leadline.report import figures

Floats: TypeAlias = NDArray[np.float64]

MOST_LINES = 8
MOST_POINTS = 1200
"""Maximum number of points of a line."""

# Maximum number of values in all lines of a page; with more, neighbouring samples are merged. Each takes two bytes, so
# a hundred cases of eighteen tests stay under 3 MB.
_MOST_NUMBERS = 800_000

# A line's values are multiples of a step; the highest value is at least this many steps: more than a plot has pixels.
_LEAST_LEVELS = 400
_DIGITS_OF_CURVES = 3

# Instants are multiples of a whole number of ms; a line spans at least this many of them: about a plot's pixels.
_LEAST_INSTANTS = 800

# Units as `analysis` may spell them -> the unit that a plot's axis states, and the plot's title.
_PLOTS: dict[str, tuple[str, str]] = {
    "clients": ("clients", "Due and configured"),
    "us": ("µs", "Latency"),
    "bit/s": ("bit/s", "Throughput"),
    "bps": ("bit/s", "Throughput"),
    "1/s": ("/s", "Rate"),
    "/s": ("/s", "Rate"),
    "users": ("users", "Users"),
    "errors/s": ("errors/s", "Errors"),
    "percent": ("%", "CPU"),
    "%": ("%", "CPU"),
    "bytes": ("B", "Memory"),
    "B": ("B", "Memory"),
}
_ORDER = ("clients", "users", "errors/s", "µs", "bit/s", "/s", "%", "B")

# Lines of one unit that differ by more than this factor are drawn apart; the lower ones would lie on the axis.
_MOST_UNEQUAL = 20.0


def samples_per_point(tests: Iterable[TestResult]) -> int:
    """The minimum number of samples per point of a line on a page of these tests."""
    numbers = sum(2 * len(test.intervals) + sum(len(line.values) for line in test.series) for test in tests)
    return max(1, math.ceil(numbers / _MOST_NUMBERS))


def test_charts(test: TestResult, samples: int = 1) -> dict[str, Any]:
    """The data of one test's charts: its plots over time on one axis, the cut parts, and its latency curves.

    An axis is its first instant followed by the steps, all in ms: the steps are alike, and compress well.
    """
    lines = [*_interval_lines(test), *test.series]
    by_unit: dict[str, list[Series]] = {}
    for line in lines:
        if any(value is not None for value in line.values):
            by_unit.setdefault(_PLOTS.get(line.unit, (line.unit, line.unit))[0], []).append(line)
    axes: list[list[int]] = []
    plots = [
        _plot(unit, together, axes, samples)
        for unit in sorted(by_unit, key=partial(_place, figures.table_of(test.kind, test.metrics).rate))
        for together in (_alike(by_unit[unit]) if unit == "B" else [by_unit[unit]])
    ]
    return {
        "name": test.test,
        "axes": axes,
        "span": _span(lines, test.window),
        "cuts": _cuts(test.window),
        "marks": [{"from": one.start_s, "to": one.end_s, "kind": _MARKS[one.kind]} for one in test.time_marks],
        "shaded": _shaded(test),
        "plots": plots,
        "flows": flow_bars(test),
        "curves": [curve(line.metric, line) for line in test.percentiles if any(y > 0 for _, y in line.points)],
    }


def flow_bars(test: TestResult) -> dict[str, Any] | None:
    """The bars of a test's flows; None for a single flow, whose bar would say what the plots say."""
    spans = test.flow_spans
    number = sum(span.flows for span in spans)
    if number < 2:
        return None
    grouped = f", about {spans[0].flows} in a bar" if spans[0].flows > 1 else ""
    starts = [quantities.seconds(at) for at in (spans[0].start_s, max(span.all_from_s for span in spans))]
    ends = [quantities.seconds(at) for at in (min(s.all_until_s for s in spans), max(span.end_s for span in spans))]
    return {
        "title": f"{number:,} flows{grouped}",
        "spoken": f"the first began at {starts[0]}, the last at {starts[1]}; "
        f"the first ended at {ends[0]}, the last at {ends[1]}",
        "bars": [[span.name, *(round(at, 3) for at in _instants(span))] for span in spans],
    }


def _instants(span: FlowSpan) -> tuple[float, ...]:
    due = span.start_s if span.due_s is None else min(span.due_s, span.start_s)
    return due, span.start_s, span.all_from_s, span.all_until_s, span.end_s


def curve(name: str, percentiles: Percentiles, group: int | None = None) -> dict[str, Any]:
    """A latency curve on an axis of nines: x = -log10(1 - p/100), so 90 is 1, 99 is 2, 99.9 is 3; y in µs.

    p = 100 would be at infinity; it is drawn at log10(count), where the number of values puts the last one. A time of
    0 (an answer in one piece has no transfer) cannot be on a logarithmic axis. If points are lower bounds, the name
    has the percentile from which on they are.
    """
    points: list[tuple[float, float]] = []
    for percentile, value in percentiles.points:
        if percentile < 100:
            points.append((-math.log10(1 - percentile / 100), value))
        elif percentiles.count > 0:
            last = points[-1][0] if points else 0.0
            points.append((max(last, math.log10(percentiles.count)), value))
    drawn = [(round(x, 4), y) for x, y in points if math.isfinite(y) and y > 0]
    if percentiles.open_from is not None:
        name = f"{name}, ≥ from p{percentiles.open_from:.4g}"
    return {
        "name": name,
        "group": group,
        "x": [x for x, _ in drawn],
        "y": _rounded([y for _, y in drawn], _DIGITS_OF_CURVES),
    }


def packed(data: object) -> Markup:
    """`data` as JSON, deflated, in base64; the page unpacks it on use. NaN and infinity become null."""
    return Markup(base64.b64encode(zlib.compress(pydantic_core.to_json(data, inf_nan_mode="null"), 9)).decode("ascii"))


def embedded(data: object) -> Markup:
    """`data` as JSON that cannot end its script element, whatever strings it contains; NaN and infinity become
    null."""
    text = json.dumps(_finite(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _place(lead: figures.Figure, unit: str) -> tuple[bool, int, str]:
    """The position of a unit's plot: the leading figure's first, then the fixed order."""
    units = {"per_s": "/s", "us": "µs"}
    leads = unit == next((unit for end, unit in units.items() if lead.metric.endswith(f"_{end}")), "bit/s")
    return not leads, _ORDER.index(unit) if unit in _ORDER else len(_ORDER), unit


def _alike(lines: list[Series]) -> list[list[Series]]:
    """Groups of lines that fit on one axis, the lowest first: a process's memory beside a machine's would be flat."""
    groups: list[list[Series]] = []
    for line in sorted(lines, key=_peak):
        if groups and _peak(line) <= _MOST_UNEQUAL * max(_peak(groups[-1][0]), 1.0):
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


def _plot(unit: str, lines: list[Series], axes: list[list[int]], samples: int) -> dict[str, Any]:
    """One plot; equal time axes are stored once. If there are too many lines, those with the highest peaks are
    kept."""
    kept = sorted(lines, key=_peak, reverse=True)[:MOST_LINES] if len(lines) > MOST_LINES else lines
    factor = max(samples, *(math.ceil(len(line.t_s) / MOST_POINTS) for line in kept))
    notes = []
    if len(kept) < len(lines):
        notes.append(f"{len(lines) - len(kept)} lines with lower peaks are not drawn")
    if factor > 1:
        notes.append(f"each point is the mean of {factor} samples")
    drawn = []
    # Most lines of a test share their instants.
    steps_of: dict[int, list[int]] = {}
    for line in kept:
        steps = steps_of.get(id(line.t_s)) or steps_of.setdefault(id(line.t_s), _steps(line.t_s, factor))
        if steps not in axes:
            axes.append(steps)
        name = f"{line.host}: {line.label}" if line.host else line.label
        unit_step, counts = _counted(_thinned(line.values, factor))
        drawn.append({"name": name, "axis": axes.index(steps), "step": unit_step, "values": counts})
    title = next((title for known, title in _PLOTS.values() if known == unit), unit)
    return {"unit": unit, "title": title, "notes": notes, "spoken": _spoken(unit, kept), "lines": drawn}


def _interval_lines(test: TestResult) -> list[Series]:
    """The rates of the test's own intervals, each at the middle of its interval."""
    times = tuple((interval.start_s + interval.end_s) / 2 for interval in test.intervals)
    names = dict.fromkeys(name for interval in test.intervals for name in interval.values)
    lines = []
    for name in names:
        unit = "bit/s" if name.endswith("_bps") else "1/s" if name.endswith("_per_s") else None
        if unit is not None:
            label = "payload, all flows" if unit == "bit/s" else name.removesuffix("_per_s").replace("_", " ")
            values = tuple(interval.values.get(name) for interval in test.intervals)
            lines.append(Series(label=label, host="", unit=unit, t_s=times, values=values))
    return lines


def _span(lines: Sequence[Series], window: Window | None) -> list[float]:
    """The shared time axis: from the first to the last sample or flow, s."""
    edges = [edge for line in lines if line.t_s for edge in (line.t_s[0], line.t_s[-1])]
    if window is not None:
        edges += [0.0, (window.last_end_ns - window.first_start_ns) / 1e9]
    return [round(min(edges), 3), round(max(edges), 3)] if edges else [0.0, 1.0]


def _cuts(window: Window | None) -> list[dict[str, Any]]:
    """The parts outside of the steady window, s after the first flow's start."""
    if window is None:
        return []
    end_s = (window.last_end_ns - window.first_start_ns) / 1e9
    if window.end_ns <= window.start_ns:
        return [{"from": 0.0, "to": end_s, "name": "no steady window"}]
    head_s = (window.start_ns - window.first_start_ns) / 1e9
    tail_s = (window.end_ns - window.first_start_ns) / 1e9
    cuts = [{"from": 0.0, "to": head_s, "name": "head"}] if head_s > 0 else []
    return cuts + ([{"from": tail_s, "to": end_s, "name": "tail"}] if end_s > tail_s else [])


def _shaded(test: TestResult) -> list[dict[str, str]]:
    """The legend of what is shaded, with how much of it there is: its kind, and words for it."""
    cuts, found = _cuts(test.window), []
    if cuts:
        length = quantities.seconds(sum(cut["to"] - cut["from"] for cut in cuts))
        found.append({"kind": "cut", "words": f"{' and '.join(cut['name'] for cut in cuts)}: not measured, {length}"})
    for kind in dict.fromkeys(mark.kind for mark in test.time_marks):
        marks = [mark for mark in test.time_marks if mark.kind is kind]
        length = quantities.seconds(sum(mark.end_s - mark.start_s for mark in marks))
        found.append({"kind": _MARKS[kind], "words": f"{_MARK_WORDS[kind]}, {length}"})
    return found


_MARKS = {MarkKind.OTHER_WORK: "disturbed", MarkKind.STOLEN: "disturbed", MarkKind.STALL: "stall"}
_MARK_WORDS = {
    MarkKind.OTHER_WORK: f"disturbed: other work used over {quantities.share(LIMIT_SHARE)} of the CPUs",
    MarkKind.STOLEN: f"disturbed: a hypervisor took over {quantities.share(LIMIT_SHARE)} of the CPUs",
    MarkKind.STALL: f"stall: less than {quantities.share(STALLED)} of the usual rate",
}


def _spoken(unit: str, lines: list[Series]) -> str:
    """The plot as text, for screen readers."""
    write = quantities.memory if unit == "B" else lambda value: quantities.metric(value, unit)
    said = []
    for line in lines:
        known = [value for value in line.values if value is not None]
        name = f"{line.host} {line.label}".strip()
        said.append(f"{name}: mean {write(sum(known) / len(known))}, highest {write(max(known))}")
    return "; ".join(said)


def _peak(line: Series) -> float:
    return max((value for value in line.values if value is not None), default=-math.inf)


def _steps(t_s: Sequence[float], factor: int) -> list[int]:
    """The first instant, then the steps, ms. Rounded, for samples that are a little early or late have equal steps."""
    instants_ms = _thinned(t_s, factor) * 1000
    unit_ms = max(1, int(np.ptp(instants_ms) / _LEAST_INSTANTS)) if len(instants_ms) else 1
    steps: list[int] = np.diff(np.rint(instants_ms / unit_ms).astype(np.int64) * unit_ms, prepend=0).tolist()
    return steps


def _thinned(values: Sequence[float | None], factor: int) -> Floats:
    """Means of `factor` values each; if all of them are unknown (NaN), the mean is unknown."""
    numbers = np.array(values, dtype=np.float64)
    if factor <= 1 or not len(numbers):
        return numbers
    starts = np.arange(0, len(numbers), factor)
    is_known = ~np.isnan(numbers)
    counts = np.add.reduceat(is_known.astype(np.float64), starts)
    with np.errstate(invalid="ignore"):
        return np.add.reduceat(np.where(is_known, numbers, 0.0), starts) / counts


def _counted(values: Floats) -> tuple[float, list[int | None]]:
    """A step of 1, 2 or 5 in some decade, and each value as a number of steps; non-finite values are None."""
    is_known = np.isfinite(values)
    highest = float(np.abs(values[is_known]).max(initial=0.0))
    decade = 10.0 ** math.floor(math.log10(highest / _LEAST_LEVELS)) if highest > 0 else 1.0
    step = next(lead * decade for lead in (5, 2, 1) if highest >= lead * decade * _LEAST_LEVELS or lead == 1)
    counts = np.rint(np.where(is_known, values, 0.0) / step).astype(np.int64).tolist()
    return step, [count if known else None for count, known in zip(counts, is_known.tolist(), strict=True)]


def _rounded(values: Floats | Sequence[float], digits: int) -> list[float | None]:
    """The values with the significant digits that the page shows; non-finite values are None."""
    numbers = np.asarray(values, dtype=np.float64)
    with np.errstate(all="ignore"):
        magnitudes = np.floor(np.log10(np.abs(numbers)))
        places = digits - 1 - np.where(np.isfinite(magnitudes), magnitudes, 0.0)
        up, down = 10.0 ** np.maximum(places, 0.0), 10.0 ** np.maximum(-places, 0.0)
        rounded = np.rint(numbers * up / down) / up * down
    return [value if math.isfinite(value) else None for value in rounded.tolist()]


def _finite(data: object) -> object:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return data
