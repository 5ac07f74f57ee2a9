"""The figures of a test and the name of a case, shared by the tables and the page.

Arranges the results of `analysis`; computes no figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from leadline import quantities
from leadline.analysis.baselines import natural
from leadline.analysis.model import Bound, Distribution, Metric, RunAnalysis
from leadline.registry import KINDS


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric's place in a table."""

    metric: str
    title: str
    write: Callable[[float | None], str]


@dataclass(frozen=True, slots=True)
class FigureTable:
    """The figures of a kind of test: the leading one, then the others in order of interest."""

    title: str
    rate: Figure
    others: tuple[Figure, ...]


class TabledKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    def table(self, metrics: Mapping[str, Metric]) -> FigureTable:
        """The figures that are columns of tables."""


def table_of(kind: str, metrics: Mapping[str, Metric]) -> FigureTable:
    """The figures of a kind; for an unknown kind, its metrics in alphabetical order."""
    known: TabledKind = KINDS.find(kind)
    return known.table(metrics) if kind in KINDS else plain_table(kind, metrics)


def plain_table(title: str, metrics: Mapping[str, Metric]) -> FigureTable:
    """Metrics in alphabetical order, by their own names."""
    plain = [Figure(metric, metric, partial(quantities.metric, unit=found.unit)) for metric, found in metrics.items()]
    plain.sort(key=lambda figure: figure.metric)
    if not plain:
        return FigureTable(title, Figure("", title, quantities.count), ())
    return FigureTable(title, plain[0], tuple(plain[1:]))


def written(figure: Figure, metrics: Mapping[str, Metric]) -> str:
    """One figure as text, with `≥` before it if it is a lower bound, and `≤` if it is an upper bound."""
    found = metrics.get(figure.metric)
    if found is None:
        return figure.write(None)
    return bounded(figure.write(found.value), found)


def bounded(text: str, metric: Metric) -> str:
    """A figure's text with the sign of the side on which the true one lies, where it is known from one side only."""
    return signed(text, metric.side)


def signed(text: str, side: str | None) -> str:
    """A figure's text with the sign of the side on which the true one lies, as `Metric.side`."""
    sign = _SIGNS.get(side or "")
    return text if sign is None or text == quantities.UNKNOWN else f"{sign} {text}"


def interval_words(figure: Figure, metrics: Mapping[str, Metric]) -> str:
    """`95 %: 939 Mbit/s to 960 Mbit/s`, or why a figure has no such interval; empty if the figure is unknown."""
    found = metrics.get(figure.metric)
    if found is None or found.value is None:
        return ""
    low, high = (None if bound is None else figure.write(bound) for bound in (found.low, found.high))
    if low is not None and high is not None:
        return f"95 %: {low} to {high}"
    one_side = f"95 %: {low} or more; " if low is not None else f"95 %: {high} or less; " if high is not None else ""
    return f"{one_side}no interval: {found.unbounded}" if found.unbounded else ""


def interval_line(histogram: str, metrics: Mapping[str, Metric]) -> str:
    """`95 %: p50 101 µs to 110 µs, p99 400 µs to 520 µs` of a histogram's times; empty if neither has an interval."""
    parts = []
    for name, unit in ((name, unit) for name in ("p50", "p99") for unit in ("us", "ms")):
        found = metrics.get(f"{histogram}_{name}_{unit}")
        if found is not None and found.low is not None and found.high is not None:
            parts.append(f"{name} {quantities.metric(found.low, unit)} to {quantities.metric(found.high, unit)}")
    return f"95 %: {', '.join(parts)}" if parts else ""


def row_title(title: str, histogram: str, metrics: Mapping[str, Metric]) -> str:
    """The title of a row of times, with `≤` where all of them are upper bounds."""
    bounds = (metrics.get(f"{histogram}_p99_{unit}") for unit in ("us", "ms"))
    is_most = any(found is not None and found.value is not None and found.bound is Bound.MOST for found in bounds)
    return f"{title} ≤" if is_most else title


def time_cell(found: Distribution, name: str) -> str:
    """A distribution's `min`, `mean`, `stdev` or `max` as text, with `≥` before a lower bound."""
    return quantities.at_least(quantities.microseconds(getattr(found, name)), found.is_bound(name))


def percentile_cell(found: Distribution, percentile: float) -> str:
    """A distribution's percentile as text; empty if it has too few values."""
    if not found.supports(percentile):
        return ""
    return quantities.at_least(quantities.microseconds(found.percentiles.get(percentile)), found.is_bound(percentile))


def case_parameters(analysis: RunAnalysis) -> dict[str, dict[str, Any]]:
    """Every case of the run with its parameters, in the order of the cases' ids."""
    found: dict[str, dict[str, Any]] = {}
    for summary in analysis.summaries:
        found.setdefault(summary.case, {}).update(summary.parameters)
    for trial in analysis.trials:
        parameters = found.setdefault(trial.case, {})
        for given in (*(test.parameters for test in trial.tests), trial.parameters):
            for name, value in given.items():
                parameters.setdefault(name, value)
    return dict(sorted(found.items(), key=lambda item: natural(item[0])))


def varying(cases: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    """The parameters in which the cases differ, in order of first use."""
    names = dict.fromkeys(name for parameters in cases.values() for name in parameters)
    return tuple(name for name in names if len({repr(parameters.get(name)) for parameters in cases.values()}) > 1)


def parameter(value: object) -> str:
    """A parameter's value as written in a plan."""
    if value is None:
        return quantities.UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(parameter(item) for item in value)
    return str(value)


def case_label(case: str, cases: dict[str, dict[str, Any]]) -> str:
    """`c03  sut.kind=openvpn  clients=20`: the id, and the parameters in which the case differs."""
    parameters = cases.get(case, {})
    return "  ".join([case, *(f"{name}={parameter(parameters.get(name))}" for name in varying(cases))])


def latency_figures() -> tuple[Figure, ...]:
    """The percentiles of the latency that are columns of tables."""
    percentiles = {"p50": "p50", "p90": "p90", "p99": "p99", "p999": "p99.9"}
    return tuple(Figure(f"latency_{name}_us", title, quantities.microseconds) for name, title in percentiles.items())


_SIGNS = {Bound.LEAST.value: "≥", Bound.MOST.value: "≤"}
