"""Which figures are asked how they grow with the number of clients: a fleet's, or those of a plan's cases. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from leadline.analysis.model import Metric, RunAnalysis
from leadline.analysis.scaling import Scaling, fit

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


def of_fleets(measured: Sequence[tuple[int, Mapping[str, Metric]]]) -> tuple[Scaling, ...]:
    """What a fleet's size does to connecting and to the server, as far as it was measured."""
    return _fits(_OF_FLEETS, measured)


def of_run(analysis: RunAnalysis) -> dict[str, tuple[Scaling, ...]]:
    """By test, and by whatever else sets its cases apart: how its figures grow with an axis of clients.

    Each repeat is a point of its own. Nothing where the plan has no such axis, or one of a single number.
    """
    groups: dict[str, list[tuple[str, int, Mapping[str, Metric]]]] = {}
    values: dict[str, set[str]] = {}
    for trial in analysis.trials:
        for name, value in trial.parameters.items():
            values.setdefault(name, set()).add(repr(value))
    for trial in analysis.trials:
        for test in trial.tests:
            axis = next((name for name in AXES if isinstance(test.parameters.get(name), int)), None)
            if axis is None or test.status != "done":
                continue
            others = [name for name in test.parameters if name != axis and len(values.get(name, ())) > 1]
            told = ", ".join(f"{name}={test.parameters[name]}" for name in others)
            key = f"{test.test} ({told})" if told else test.test
            groups.setdefault(key, []).append((test.kind, test.parameters[axis], test.metrics))
    found = {}
    for key, rows in groups.items():
        figures = _OF_FLEETS if rows[0][0] == "tunnel" else _OF_OTHERS.get(rows[0][0], ())
        if len({number for _, number, _ in rows}) > 1:
            found[key] = _fits(figures, [(number, metrics) for _, number, metrics in rows])
    return found


def _fits(
    figures: Iterable[tuple[str, str]], measured: Sequence[tuple[int, Mapping[str, Metric]]]
) -> tuple[Scaling, ...]:
    """Figures that nobody measured are left out."""
    found = []
    for name, unit in figures:
        values = [(float(number), _value(metrics, name)) for number, metrics in measured]
        if any(value is not None for _, value in values):
            found.append(fit(name, unit, values))
    return tuple(found)


def _value(metrics: Mapping[str, Metric], name: str) -> float | None:
    metric = metrics.get(name)
    return None if metric is None else metric.value
