"""Which figures stand for a test, and how a case is named: what the table and the page must agree on.

Arranges what `analysis` found; computes no figure of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from leadline.analysis.model import Distribution, Metric, RunAnalysis, Verdict
from leadline.report import quantities


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric's place in a table. `capacity` marks what a busy generator can only bound from below."""

    metric: str
    title: str
    write: Callable[[float | None], str]
    capacity: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of test: the figure that leads, then the others in order of interest."""

    title: str
    rate: Figure
    others: tuple[Figure, ...]


def kind_of(name: str, metrics: Mapping[str, Metric]) -> Kind:
    """The figures of a kind; for a kind that is not known here, its metrics in alphabetical order."""
    known = _KINDS.get(name)
    if known is not None:
        return known
    plain = [Figure(metric, metric, partial(quantities.metric, unit=found.unit)) for metric, found in metrics.items()]
    plain.sort(key=lambda figure: figure.metric)
    return Kind(name, plain[0], tuple(plain[1:])) if plain else Kind(name, Figure("", name, quantities.count), ())


def written(figure: Figure, metrics: Mapping[str, Metric], verdict: Verdict) -> str:
    """One figure as text, with `≥` before it where it is known from below only: the generator was the limit, or
    operations were outstanding at the end."""
    found = metrics.get(figure.metric)
    text = figure.write(found.value) if found is not None else quantities.UNKNOWN
    limited = figure.capacity and verdict is Verdict.GENERATOR_LIMITED
    return quantities.at_least(text, limited or (found is not None and found.censored))


def time_cell(found: Distribution, name: str) -> str:
    """A distribution's `min`, `mean`, `stdev` or `max` as text, with `≥` before a lower bound."""
    return quantities.at_least(quantities.microseconds(getattr(found, name)), found.is_bound(name))


def percentile_cell(found: Distribution, percentile: float) -> str:
    """A distribution's percentile as text; empty where its values do not carry it."""
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
    return dict(sorted(found.items(), key=lambda item: _natural(item[0])))


def varying(cases: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    """The parameters that tell the cases apart, in the order in which they first appear."""
    names = dict.fromkeys(name for parameters in cases.values() for name in parameters)
    return tuple(name for name in names if len({repr(parameters.get(name)) for parameters in cases.values()}) > 1)


def parameter(value: object) -> str:
    """A parameter's value as it would be written in the plan."""
    if value is None:
        return quantities.UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(parameter(item) for item in value)
    return str(value)


def case_label(case: str, cases: dict[str, dict[str, Any]]) -> str:
    """`c03  sut.kind=openvpn  clients=20`: the id and what sets the case apart."""
    parameters = cases.get(case, {})
    return "  ".join([case, *(f"{name}={parameter(parameters.get(name))}" for name in varying(cases))])


def _natural(case: str) -> tuple[str, int]:
    """Sorts c2 before c10, and c99 before c100."""
    letters = case.rstrip("0123456789")
    digits = case[len(letters) :]
    return letters, int(digits) if digits else -1


def _latency(percentile: str, title: str) -> Figure:
    return Figure(f"latency_{percentile}_us", title, quantities.microseconds)


def _milliseconds(value: float | None) -> str:
    return quantities.metric(value, "ms")


_KINDS: dict[str, Kind] = {
    "tcp": Kind(
        "TCP throughput",
        Figure("throughput_bps", "throughput", quantities.bit_rate, capacity=True),
        (
            Figure("retransmits", "retransmits", quantities.count),
            Figure("rtt_mean_us", "mean RTT", quantities.microseconds),
        ),
    ),
    "udp": Kind(
        "UDP throughput and loss",
        Figure("throughput_bps", "throughput", quantities.bit_rate, capacity=True),
        (
            Figure("lost_ratio", "lost", quantities.share),
            Figure("packets_per_s", "packets", quantities.per_second, capacity=True),
            Figure("jitter_us", "jitter", quantities.microseconds),
            Figure("reordered", "reordered", quantities.count),
        ),
    ),
    "rr": Kind(
        "request-response",
        Figure("transactions_per_s", "transactions", quantities.per_second, capacity=True),
        (_latency("p50", "p50"), _latency("p90", "p90"), _latency("p99", "p99"), _latency("p999", "p99.9")),
    ),
    "http": Kind(
        "HTTP requests",
        Figure("requests_per_s", "requests", quantities.per_second, capacity=True),
        (_latency("p50", "p50"), _latency("p90", "p90"), _latency("p99", "p99"), _latency("p999", "p99.9")),
    ),
    "tunnel": Kind(
        "VPN clients connected",
        Figure("handshakes_per_s", "handshakes", quantities.per_second, capacity=True),
        (
            Figure("configured", "configured", quantities.count),
            Figure("partial", "partial", quantities.count),
            Figure("failed", "failed", quantities.count),
            Figure("connect_p50_ms", "p50", _milliseconds),
            Figure("connect_p99_ms", "p99", _milliseconds),
            Figure("throughput_bps", "throughput", quantities.bit_rate, capacity=True),
        ),
    ),
}
