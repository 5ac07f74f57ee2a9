"""Estimates how figures grow with a number (clients, connections, flows, bytes of a packet): the exponent of each
figure, with its interval, and of rates the Universal Scalability Law.

A fleet that was limited by its generator, or is incomplete, says nothing about the server; nor does a figure that other
work, a hypervisor, a quota or heat disturbed. It is left out, and a note says so. Clients that failed are the server's
result; a note reports them, since the figures are of the others.

`statistics.power_law` fits `figure = a * number ** exponent` to one mean for each number. A fixed cost bends the line
at small numbers, so bends are detected and reported. With few numbers the interval is wide or missing, and a line that
bends has no exponent; the result is then `cannot tell`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from leadline.analysis.model import Bound, Metric, RunAnalysis, Validity, Verdict
from leadline.analysis.scaling_model import ScalabilityLaw, Scaling, ScalingMean
from leadline.analysis.validity import SHORT_WINDOWS
from leadline.plan import units
from leadline.plan.gateway_metrics import CPU, GATEWAY_METRICS, MEMORY
from leadline.registry import KINDS
from leadline.statistics import Growth, PowerLaw, mean_of_repeats, power_law, scalability

LEAST_RATIO = 4.0
"""Numbers of clients that span a smaller factor say little about growth."""
CLIENTS = "clients"
AXES = (CLIENTS, "clients.count")
"""Axes of a plan whose values are numbers of clients."""
BRING_UP = ("bring_up_s", "s")
"""The figure of a trial that all its tests share: the time until the last client is up."""
_USERS = frozenset({"clients", "count", "connections", "flows", "cores", "cpus", "gateway_cpus", "threads"})
_RATES = frozenset({"bit/s", "1/s"})
_CURVE_POINTS = 60
_LINE_POINTS = 20


class ScalingKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def scaling(self) -> tuple[tuple[str, str], ...]:
        """The figures that grow with a number of clients, and their units."""


@dataclass(frozen=True, slots=True)
class Point:
    """The figures of a fleet of this many clients."""

    number: float
    metrics: Mapping[str, Metric]
    validity: Validity


def of_kind(name: str, measured: Sequence[Point], axis: str = CLIENTS) -> tuple[Scaling, ...]:
    """The growth of the figures of a kind of test, and of its gateways, with the numbers of an axis."""
    kind: ScalingKind = KINDS.find(name)
    gateways = tuple((spec.name, spec.unit) for spec in GATEWAY_METRICS if spec.name.endswith((CPU, MEMORY)))
    return _fits((*kind.scaling, BRING_UP, *gateways), measured, axis)


def of_run(analysis: RunAnalysis) -> dict[str, tuple[Scaling, ...]]:
    """The growth of figures with each axis of numbers, by test and by the other parameters of its cases.

    Empty if the plan has no such axis, or only axes with a single number.
    """
    values: dict[str, set[str]] = {}
    for name in {name for trial in analysis.trials for name in trial.parameters}:
        # A case with one more parameter, from an `include`, differs from those without it.
        values[name] = {repr(trial.parameters.get(name, "")) for trial in analysis.trials}
    differing = [name for name, known in values.items() if len(known) > 1]
    axes = [name for name in differing if any(number_of(one) is not None for one in _values_of(analysis, name))]
    found = {}
    for axis in sorted(axes, key=lambda name: (name not in AXES, name)):
        for (key, kind), points in _groups(analysis, axis, differing).items():
            if len({point.number for point in points}) > 1 and (scalings := of_kind(kind, points, axis)):
                found[key if axis in AXES else f"{key} by {axis}"] = scalings
    return found


def number_of(value: object) -> float | None:
    """The number of an axis' value, also of a rate or a size with its unit; None if it is none above 0."""
    number: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    elif isinstance(value, str):
        for read in (units.rate_bps, units.size_bytes):
            with suppress(units.UnitError):
                number = float(read(value))
                break
    return number if number is not None and number > 0 else None


def _values_of(analysis: RunAnalysis, axis: str) -> Iterator[object]:
    for trial in analysis.trials:
        yield trial.parameters.get(axis)


def _groups(analysis: RunAnalysis, axis: str, differing: Sequence[str]) -> dict[tuple[str, str], list[Point]]:
    """The points of each test and of each combination of the other parameters."""
    groups: dict[tuple[str, str], list[Point]] = {}
    for trial in analysis.trials:
        last_s = trial.bring_up.time_max_s if trial.bring_up is not None else None
        more = {} if last_s is None else {BRING_UP[0]: Metric(last_s, BRING_UP[1])}
        for test in trial.tests:
            number = number_of(test.parameters.get(axis))
            if number is None or test.status != "done":
                continue
            others = [name for name in test.parameters if name != axis and name in differing]
            varying = ", ".join(f"{name}={test.parameters[name]}" for name in others)
            key = f"{test.test} ({varying})" if varying else test.test
            groups.setdefault((key, test.kind), []).append(Point(number, {**test.metrics, **more}, test.validity))
    return groups


def fit(
    metric: str,
    unit: str,
    points: Sequence[tuple[float, float | None]],
    notes: tuple[str, ...] = (),
    axis: str = CLIENTS,
) -> Scaling:
    """The growth of one figure. Points without a positive figure are left out and counted. `notes` are about points
    that were left out before."""
    known = sorted((number, figure) for number, figure in points if figure is not None and figure > 0 and number > 0)
    numbers = sorted({number for number, _ in known})
    missing = len(points) - len(known)
    if len(numbers) < 2:
        return Scaling(
            metric,
            unit,
            tuple(known),
            None,
            None,
            None,
            Growth.UNKNOWN,
            None,
            (*notes, *_few(known, missing)),
            axis,
            means=means_of(known),
        )
    law = power_law([number for number, _ in known], [figure for _, figure in known])
    exponent = law.exponent
    notes = (*notes, *_fit_notes(law, missing))
    return Scaling(
        metric,
        unit,
        tuple(known),
        exponent.value,
        exponent.low,
        exponent.high,
        law.growth,
        law.upper_exponent,
        notes,
        axis,
        law_of(unit, axis, known),
        means_of(known),
        tuple((number, law.figure(number)) for number in _spread(numbers[0], numbers[-1])),
    )


def means_of(known: Sequence[tuple[float, float]]) -> tuple[ScalingMean, ...]:
    """The mean at each number, with the interval of its repeats."""
    found = []
    for number in sorted({number for number, _ in known}):
        mean = mean_of_repeats([figure for at, figure in known if at == number])
        found.append(ScalingMean(number, mean.value, mean.low, mean.high))
    return tuple(found)


def _spread(first: float, last: float) -> Iterator[float]:
    """Numbers from the first to the last one, each greater than the one before by the same factor."""
    for step in range(_LINE_POINTS + 1):
        yield first * (last / first) ** (step / _LINE_POINTS)


def law_of(unit: str, axis: str, known: Sequence[tuple[float, float]]) -> ScalabilityLaw | None:
    """The Universal Scalability Law of a rate over numbers of users or cores; None where it says nothing."""
    if unit not in _RATES or not _USERS & set(axis.split(".")):
        return None
    found = scalability([number for number, _ in known], [figure for _, figure in known])
    if found is None:
        return None
    first, last = known[0][0], known[-1][0]
    at = [first + (last - first) * step / _CURVE_POINTS for step in range(_CURVE_POINTS + 1)]
    return ScalabilityLaw(
        rate=found.rate.value,
        contention=found.contention.value,
        coherency=found.coherency.value,
        peak=found.peak.value if found.peak is not None else None,
        peak_low=found.peak.low if found.peak is not None else None,
        peak_high=found.peak.high if found.peak is not None else None,
        knee=found.knee,
        residual=found.residual,
        curve=tuple((number, found.throughput(number)) for number in at),
        rate_low=found.rate.low,
        rate_high=found.rate.high,
        contention_low=found.contention.low,
        contention_high=found.contention.high,
        coherency_low=found.coherency.low,
        coherency_high=found.coherency.high,
        knee_low=found.knee_low,
        knee_high=found.knee_high,
        peak_unbounded=found.peak.reason if found.peak is not None else None,
    )


def _fits(figures: Iterable[tuple[str, str]], measured: Sequence[Point], axis: str) -> tuple[Scaling, ...]:
    """Omits figures that were not measured, and points that do not describe the server."""
    usable = [point for point in measured if _doubt(point) is None]
    notes = tuple(_point_notes(sorted(measured, key=lambda point: point.number)))
    found = []
    for name, unit in figures:
        if not any(_value(point.metrics, name) is not None for point in measured):
            continue
        bounds = [point for point in usable if _is_bound(point.metrics, name)]
        disturbed = [point for point in usable if point not in bounds and _is_disturbed(point.metrics, name)]
        kept = [point for point in usable if point not in disturbed]
        values = [(float(point.number), None if point in bounds else _value(point.metrics, name)) for point in kept]
        said = [f"left out, because only a bound is known: at {point.number:g}" for point in bounds]
        more = [*([_some(said)] if said else []), *_disturbed_note(disturbed)]
        found.append(fit(name, unit, values, (*notes, *more), axis))
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
    left_out = [f"at {point.number:g} {why}" for point in measured if (why := _doubt(point)) is not None]
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


def _disturbed_note(points: Sequence[Point]) -> Iterator[str]:
    """How many points were disturbed, and at which numbers."""
    if points:
        count = "1 disturbed point is" if len(points) == 1 else f"{len(points)} disturbed points are"
        numbers = [f"at {number:g}" for number in sorted({point.number for point in points})]
        yield f"{count} left out: {_some(numbers)}"


def _some(texts: Sequence[str]) -> str:
    """The first few texts."""
    rest = len(texts) - _MOST_NAMED
    return "; ".join(texts[:_MOST_NAMED]) + (f"; and {rest} more" if rest > 0 else "")


def _is_bound(metrics: Mapping[str, Metric], name: str) -> bool:
    """Whether a figure is known from one side only."""
    metric = metrics.get(name)
    return metric is not None and (metric.censored or metric.bound in (Bound.LEAST, Bound.MOST))


def _is_disturbed(metrics: Mapping[str, Metric], name: str) -> bool:
    """Whether something else than the test moved a figure, whichever way: of closed loops no side bounds it."""
    metric = metrics.get(name)
    return metric is not None and metric.verdict is Verdict.DISTURBED


def _value(metrics: Mapping[str, Metric], name: str) -> float | None:
    metric = metrics.get(name)
    return None if metric is None else metric.value


def _fit_notes(law: PowerLaw, missing: int) -> Iterator[str]:
    numbers = law.numbers
    if missing:
        yield f"{missing} points have no figure and are left out"
    if law.exponent.reason is not None:
        yield law.exponent.reason
    elif len(numbers) < _MANY_NUMBERS:
        yield f"{len(numbers)} numbers leave {len(numbers) - 2} degrees of freedom: that makes the interval wide"
    if numbers[-1] < LEAST_RATIO * numbers[0]:
        ratio = numbers[-1] / numbers[0]
        yield f"the numbers span a factor of {ratio:.3g} only: over {LEAST_RATIO:g} a growth shows more clearly"
    if law.bends and law.lower_exponent is not None and law.upper_exponent is not None:
        lower, upper, middle = law.lower_exponent, law.upper_exponent, numbers[len(numbers) // 2]
        what = "a fixed cost hides growth at small numbers" if upper > lower else "it levels off"
        yield f"the line bends: {lower:.2f} up to {middle:g}, {upper:.2f} above ({what})"


def _few(known: Sequence[tuple[float, float]], missing: int) -> tuple[str, ...]:
    without_figure = (f"{missing} points have no figure and are left out",) if missing else ()
    few = f"{len(known)} points of one number say" if len(known) > 1 else "1 point says" if known else "no point says"
    return (
        *without_figure,
        f"{few} nothing about growth" if known else "no point is left to say anything about growth",
    )


_MOST_NAMED = 5
# From five numbers on, Student's t is at most 1.6 times what it is for very many.
_MANY_NUMBERS = 5
