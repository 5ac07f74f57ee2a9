"""Estimates how figures grow with the number of clients: the exponent of each figure, with its interval.

A fleet that was limited by its generator, or is incomplete, says nothing about the server; it is left out, and a note
says so. Clients that failed are the server's result; a note reports them, since the figures are of the others.

`figure = a * number ** exponent` is a straight line in logarithms, fitted by least squares; the interval is Student's
t for a slope (n - 2 degrees of freedom). The model assumes that the points scatter evenly around such a line. A fixed
cost bends the line at small numbers, so bends are detected and reported. With few numbers the interval is wide or
missing; the result is then `cannot tell`. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from leadline.analysis.model import Growth, Metric, RunAnalysis, Scaling, Validity, Verdict
from leadline.analysis.validity import SHORT_WINDOWS
from leadline.registry import KINDS

CONFIDENCE = 0.95
LINEAR_WITHIN = 0.1
"""An exponent is linear if its whole interval is within this distance of 1."""
CONSTANT_WITHIN = 0.1
"""An exponent is constant if its whole interval is within this distance of 0."""
LEAST_RATIO = 4.0
"""Numbers of clients that span a smaller factor say little about growth."""
BEND = 0.3
"""A larger difference between the exponents of the upper and lower half counts as a bend."""
AXES = ("clients", "clients.count")
"""Axes of a plan whose values are numbers of clients."""


class ScalingKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def scaling(self) -> tuple[tuple[str, str], ...]:
        """The figures that grow with a number of clients, and their units."""


@dataclass(frozen=True, slots=True)
class Point:
    """The figures of a fleet of this many clients."""

    number: int
    metrics: Mapping[str, Metric]
    validity: Validity


def of_kind(name: str, measured: Sequence[Point]) -> tuple[Scaling, ...]:
    """The growth of the figures of a kind of test with the number of clients."""
    kind: ScalingKind = KINDS.find(name)
    return _fits(kind.scaling, measured)


def of_run(analysis: RunAnalysis) -> dict[str, tuple[Scaling, ...]]:
    """The growth of figures with an axis of clients, by test and by the other parameters of its cases.

    Each repeat is a point of its own. Empty if the plan has no such axis, or an axis with a single number.
    """
    groups: dict[str, list[tuple[str, Point]]] = {}
    values: dict[str, set[str]] = {}
    for name in {name for trial in analysis.trials for name in trial.parameters}:
        # A case with one more parameter, from an `include`, differs from those without it.
        values[name] = {repr(trial.parameters.get(name, "")) for trial in analysis.trials}
    for trial in analysis.trials:
        for test in trial.tests:
            axis = next((name for name in AXES if isinstance(test.parameters.get(name), int)), None)
            if axis is None or test.status != "done":
                continue
            others = [name for name in test.parameters if name != axis and len(values.get(name, ())) > 1]
            told = ", ".join(f"{name}={test.parameters[name]}" for name in others)
            key = f"{test.test} ({told})" if told else test.test
            point = Point(test.parameters[axis], test.metrics, test.validity)
            groups.setdefault(key, []).append((test.kind, point))
    found = {}
    for key, rows in groups.items():
        if len({point.number for _, point in rows}) > 1:
            found[key] = of_kind(rows[0][0], [point for _, point in rows])
    return found


def fit(metric: str, unit: str, points: Sequence[tuple[float, float | None]], notes: tuple[str, ...] = ()) -> Scaling:
    """The growth of one figure. Points without a positive figure are left out and counted. `notes` are about points
    that were left out before."""
    known = sorted((number, figure) for number, figure in points if figure is not None and figure > 0 and number > 0)
    numbers = sorted({number for number, _ in known})
    missing = len(points) - len(known)
    if len(numbers) < 2:
        return Scaling(
            metric, unit, tuple(known), None, None, None, Growth.UNKNOWN, None, (*notes, *_few(known, missing))
        )
    slope, error, freedom = _line(known)
    half = t_quantile(freedom) * error if freedom > 0 and len(numbers) > 2 else None
    low, high = (None, None) if half is None else (slope - half, slope + half)
    upper = _between(known, numbers[len(numbers) // 2], numbers[-1]) if len(numbers) > 2 else None
    notes = (*notes, *_fit_notes(known, numbers, missing, low, high))
    return Scaling(metric, unit, tuple(known), slope, low, high, _growth(low, high), upper, notes)


def t_quantile(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t."""
    # Importing scipy takes over a second; a single measurement does not need it.
    from scipy.special import stdtrit  # noqa: PLC0415

    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))


def _fits(figures: Iterable[tuple[str, str]], measured: Sequence[Point]) -> tuple[Scaling, ...]:
    """Omits figures that were not measured, and points that do not describe the server."""
    told = [point for point in measured if _doubt(point) is None]
    notes = tuple(_point_notes(sorted(measured, key=lambda point: point.number)))
    found = []
    for name, unit in figures:
        bounds = [point for point in told if _is_bound(point.metrics, name)]
        values = [(float(point.number), None if point in bounds else _value(point.metrics, name)) for point in told]
        if any(_value(point.metrics, name) is not None for point in measured):
            said = [f"left out, because only a lower bound is known: at {point.number}" for point in bounds]
            found.append(fit(name, unit, values, (*notes, *([_some(said)] if said else []))))
    return tuple(found)


def _doubt(point: Point) -> str | None:
    """Why a point does not describe the server's growth; None if it does."""
    match point.validity.verdict:
        case Verdict.GENERATOR_LIMITED:
            return "the generator was the limit"
        case Verdict.INCOMPLETE:
            # A short test is not a gap in connect times.
            gaps = [reason.text for reason in point.validity.reasons if reason.code not in SHORT_WINDOWS]
            return f"incomplete ({gaps[0]})" if gaps else None
        case _:
            return None


def _point_notes(measured: Sequence[Point]) -> Iterator[str]:
    left_out = [f"at {point.number} {why}" for point in measured if (why := _doubt(point)) is not None]
    if left_out:
        points = "1 point is" if len(left_out) == 1 else f"{len(left_out)} points are"
        yield f"{points} left out: {_some(left_out)}"
    failed = []
    for point in measured:
        bad = sum(_value(point.metrics, name) or 0 for name in ("failed", "partial"))
        if bad and _doubt(point) is None:
            failed.append(f"{bad:.0f} of {_value(point.metrics, 'clients') or point.number:.0f}")
    if failed:
        yield f"the figures are of clients that connected; not configured were {_some(failed)}"


def _some(texts: Sequence[str]) -> str:
    """The first few texts."""
    rest = len(texts) - _MOST_NAMED
    return "; ".join(texts[:_MOST_NAMED]) + (f"; and {rest} more" if rest > 0 else "")


def _is_bound(metrics: Mapping[str, Metric], name: str) -> bool:
    metric = metrics.get(name)
    return metric is not None and metric.censored


def _value(metrics: Mapping[str, Metric], name: str) -> float | None:
    metric = metrics.get(name)
    return None if metric is None else metric.value


def _growth(low: float | None, high: float | None) -> Growth:
    """The growth that an interval indicates; it must lie on one side of the limits."""
    if low is None or high is None:
        return Growth.UNKNOWN
    if low >= 1 - LINEAR_WITHIN and high <= 1 + LINEAR_WITHIN:
        return Growth.LINEAR
    if low >= -CONSTANT_WITHIN and high <= CONSTANT_WITHIN:
        return Growth.CONSTANT
    if low > 1:
        return Growth.MORE
    return Growth.LESS if high < 1 else Growth.UNKNOWN


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float, int]:
    """Slope of the logarithms, its standard error, and the remaining degrees of freedom."""
    xs, ys = [math.log(number) for number, _ in points], [math.log(figure) for _, figure in points]
    mean_x, mean_y = math.fsum(xs) / len(xs), math.fsum(ys) / len(ys)
    spread = math.fsum((x - mean_x) ** 2 for x in xs)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    freedom = len(xs) - 2
    if freedom <= 0:
        return slope, 0.0, 0
    left = math.fsum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(xs, ys, strict=True))
    return slope, math.sqrt(left / freedom / spread), freedom


def _between(points: Sequence[tuple[float, float]], first: float, last: float) -> float:
    """The exponent between two numbers, from the geometric means of their figures."""
    ends = []
    for number in (first, last):
        logs = [math.log(figure) for at, figure in points if at == number]
        ends.append(math.fsum(logs) / len(logs))
    return (ends[1] - ends[0]) / (math.log(last) - math.log(first))


def _fit_notes(
    points: Sequence[tuple[float, float]],
    numbers: Sequence[float],
    missing: int,
    low: float | None,
    high: float | None,
) -> Iterator[str]:
    if missing:
        yield f"{missing} points have no figure and are left out"
    if low is None or high is None:
        yield f"{len(numbers)} numbers give no interval: give at least three, better five"
    elif len(points) - 2 < 3:
        yield f"{len(points)} points leave {len(points) - 2} degrees of freedom: that makes the interval wide"
    if numbers[-1] < LEAST_RATIO * numbers[0]:
        ratio = numbers[-1] / numbers[0]
        yield f"the numbers span a factor of {ratio:.3g} only: over {LEAST_RATIO:g} a growth shows more clearly"
    middle = numbers[len(numbers) // 2]
    if len(numbers) > 2 and numbers[0] < middle < numbers[-1]:
        lower, upper = _between(points, numbers[0], middle), _between(points, middle, numbers[-1])
        if abs(upper - lower) > BEND:
            what = "a fixed cost hides growth at small numbers" if upper > lower else "it levels off"
            yield f"the line bends: {lower:.2f} up to {middle:g}, {upper:.2f} above ({what})"


def _few(known: Sequence[tuple[float, float]], missing: int) -> tuple[str, ...]:
    lacking = (f"{missing} points have no figure and are left out",) if missing else ()
    few = f"{len(known)} points of one number say" if len(known) > 1 else "1 point says" if known else "no point says"
    return (*lacking, f"{few} nothing about growth" if known else "no point is left to say anything about growth")


_MOST_NAMED = 5
