"""Which figures are asked how they grow with the number of clients: a fleet's, or those of a plan's cases.

What cannot be believed of the server is no point of its growth: a fleet that was limited by its generator, or is not
whole, is left out and said to be. Clients that failed are the server's doing; they are said too, since the figures are
of those that did not. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from leadline.analysis.model import Metric, RunAnalysis, Scaling, Validity, Verdict
from leadline.analysis.scaling import fit
from leadline.analysis.validity import SHORT_WINDOWS

AXES = ("clients", "clients.count")
"""Axes of a plan whose values are numbers of clients."""
_OF_FLEETS = (
    ("connect_p50_ms", "ms"),
    ("connect_p99_ms", "ms"),
    ("connect_max_ms", "ms"),
    ("server_cpu_s", "s"),
    ("server_memory_bytes", "bytes"),
    ("memory_bytes", "bytes"),
)
_OF_OTHERS = {
    "tcp": (("throughput_bps", "bit/s"),),
    "udp": (("throughput_bps", "bit/s"),),
    "rr": (("transactions_per_s", "1/s"), ("latency_p99_us", "us")),
    "http": (("requests_per_s", "1/s"), ("latency_p99_us", "us")),
}


@dataclass(frozen=True, slots=True)
class Point:
    """What so many clients came to."""

    number: int
    metrics: Mapping[str, Metric]
    validity: Validity


def of_fleets(measured: Sequence[Point]) -> tuple[Scaling, ...]:
    """What a fleet's size does to connecting and to the server, as far as it was measured."""
    return _fits(_OF_FLEETS, measured)


def of_run(analysis: RunAnalysis) -> dict[str, tuple[Scaling, ...]]:
    """By test, and by whatever else sets its cases apart: how its figures grow with an axis of clients.

    Each repeat is a point of its own. Nothing where the plan has no such axis, or one of a single number.
    """
    groups: dict[str, list[tuple[str, Point]]] = {}
    values: dict[str, set[str]] = {}
    for name in {name for trial in analysis.trials for name in trial.parameters}:
        # A case that an `include` gave one more parameter differs from those without it.
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
        figures = _OF_FLEETS if rows[0][0] == "tunnel" else _OF_OTHERS.get(rows[0][0], ())
        if len({point.number for _, point in rows}) > 1:
            found[key] = _fits(figures, [point for _, point in rows])
    return found


def _fits(figures: Iterable[tuple[str, str]], measured: Sequence[Point]) -> tuple[Scaling, ...]:
    """Figures that nobody measured are left out, as are points that say nothing of the server."""
    told = [point for point in measured if _doubt(point) is None]
    notes = tuple(_notes(sorted(measured, key=lambda point: point.number)))
    found = []
    for name, unit in figures:
        bounds = [point for point in told if _is_bound(point.metrics, name)]
        values = [(float(point.number), None if point in bounds else _value(point.metrics, name)) for point in told]
        if any(_value(point.metrics, name) is not None for point in measured):
            said = [f"left out, as only a lower bound is known: at {point.number}" for point in bounds]
            found.append(fit(name, unit, values, (*notes, *([_some(said)] if said else []))))
    return tuple(found)


def _doubt(point: Point) -> str | None:
    """Why a point is no point of the server's growth."""
    match point.validity.verdict:
        case Verdict.GENERATOR_LIMITED:
            return "the generator was the limit"
        case Verdict.INCOMPLETE:
            # That it was over soon is no gap in how long connecting took.
            gaps = [reason.text for reason in point.validity.reasons if reason.code not in SHORT_WINDOWS]
            return f"incomplete ({gaps[0]})" if gaps else None
        case _:
            return None


def _notes(measured: Sequence[Point]) -> Iterator[str]:
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
        yield f"the figures are of clients that came up; not configured were {_some(failed)}"


def _some(texts: Sequence[str]) -> str:
    """The first of them."""
    rest = len(texts) - _MOST_NAMED
    return "; ".join(texts[:_MOST_NAMED]) + (f"; and {rest} more" if rest > 0 else "")


def _is_bound(metrics: Mapping[str, Metric], name: str) -> bool:
    metric = metrics.get(name)
    return metric is not None and metric.censored


def _value(metrics: Mapping[str, Metric], name: str) -> float | None:
    metric = metrics.get(name)
    return None if metric is None else metric.value


_MOST_NAMED = 5
