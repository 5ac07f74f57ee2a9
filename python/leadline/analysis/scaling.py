"""Whether a cost grows in proportion to a number: an exponent on a line through the logarithms, with its interval.

`figure = a * number ** exponent` is a straight line in logarithms, fitted by least squares; the interval is Student's t
for a slope (n - 2 degrees of freedom). It assumes that the points scatter evenly around such a line. A fixed cost that
does not grow bends the line at small numbers, so the bend is looked at too, and said. With few numbers an interval is
wide or none: then this cannot tell, and says so. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from leadline.analysis.confidence import t_quantile
from leadline.analysis.model import Growth, Scaling

LINEAR_WITHIN = 0.1
"""An exponent whose whole interval lies within this of 1 is as good as linear."""
CONSTANT_WITHIN = 0.1
"""One whose whole interval lies within this of 0 is as good as constant."""
LEAST_RATIO = 4.0
"""Numbers that span less than this say little about growth."""
BEND = 0.3
"""How far the exponent of the upper half may be from that of the lower before a straight line misleads."""


def fit(metric: str, unit: str, points: Sequence[tuple[float, float | None]], notes: tuple[str, ...] = ()) -> Scaling:
    """How a figure grows with a number; points without a positive figure are left out and counted. `notes` are of what
    was left out before."""
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
    notes = (*notes, *_notes(known, numbers, missing, low, high))
    return Scaling(metric, unit, tuple(known), slope, low, high, _growth(low, high), upper, notes)


def _growth(low: float | None, high: float | None) -> Growth:
    """Only an interval that lies on one side says anything."""
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
    """Slope of the logarithms, its standard error, and the degrees of freedom that are left."""
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


def _notes(
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
