"""The lines of a scenario over time: users, errors by cause, and percentiles of the latency. Pure.

Agents report at their own instants; what several hosts do is added by the last report of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from leadline.analysis.durations import Sample
from leadline.analysis.histograms import DamagedHistogram, Histogram, decode, merge
from leadline.analysis.metrics import CENSORED
from leadline.analysis.model import Series, Window
from leadline.analysis.test_data import ScenarioPoint, TestData
from leadline.contract import records

USERS, ERRORS = "users", "errors/s"
"""Units of the lines of users and of errors."""
_PERCENTILES = (50.0, 95.0, 99.0)
# The last report follows the one before it at once; errors per second of so short a time would be a spike.
_SHORTEST_S = 0.1

Value = TypeVar("Value")


def lines(data: TestData, window: Window | None) -> tuple[Series, ...]:
    """The lines; none before the first report."""
    if window is None or not data.scenario_points:
        return ()
    zero_ns = window.first_start_ns
    return (*_users(data.scenario_points, zero_ns), *_errors(data, zero_ns), *_latencies(data, zero_ns))


def _users(points: list[ScenarioPoint], zero_ns: float) -> Iterator[Series]:
    counts: dict[str, Callable[[records.PopulationProgress], int]] = {
        "users": lambda row: row["users"],
        "of them in an iteration": lambda row: row["users_active"],
    }
    for label, count in counts.items():
        values = [(point.t_ns, point.host, sum(map(count, point.progress["populations"]))) for point in points]
        yield _line(label, USERS, zero_ns, values)


def _errors(data: TestData, zero_ns: float) -> Iterator[Series]:
    """Failed requests per second, a line for each cause."""
    rates: list[tuple[int, str, Counter[str], float]] = []
    begun: dict[str, tuple[int, Counter[str]]] = {}
    start_ns = data.start_at_ns if data.start_at_ns is not None else int(zero_ns)
    for point in data.scenario_points:
        since_ns, counts = begun.setdefault(point.host, (start_ns, Counter()))
        for row in point.progress["labels"]:
            if row["kind"] == "request":
                counts.update(row["errors"])
        length_s = (point.t_ns - since_ns) / 1e9
        if length_s >= _SHORTEST_S:
            rates.append((point.t_ns, point.host, counts, length_s))
            begun[point.host] = (point.t_ns, Counter())
    for cause in dict.fromkeys(cause for _, _, counts, _ in rates for cause in counts):
        values = [(t_ns, host, counts[cause] / length_s) for t_ns, host, counts, length_s in rates]
        yield _line(cause, ERRORS, zero_ns, values)


def _latencies(data: TestData, zero_ns: float) -> Iterator[Series]:
    by_end: dict[int, dict[str, list[Histogram]]] = {}
    for part in data.interval_histograms:
        name = part.report["metric"].removeprefix("warmup_")
        if name in ("latency", f"latency{CENSORED}"):
            by_end.setdefault(part.end_ns, {}).setdefault(name, []).extend(_readable(part.report))
    ends_ns = sorted(by_end)
    parts = [[merge(by_end[at].get(f"latency{kind}", ())) for kind in ("", CENSORED)] for at in ends_ns]
    samples = [Sample(known, ages) for known, ages in parts]
    times_s = tuple((end_ns - zero_ns) / 1e9 for end_ns in ends_ns)
    for share in _PERCENTILES if samples else ():
        yield Series(
            f"p{share:g} of the latency", "", "us", times_s, tuple(one.percentile(share).value_us for one in samples)
        )


def _line(label: str, unit: str, zero_ns: float, values: Iterable[tuple[int, str, float]]) -> Series:
    """The sum over hosts, with the last value of each."""
    latest: dict[str, float] = {}
    times_s, sums = [], []
    for t_ns, host, value in values:
        latest[host] = value
        times_s.append((t_ns - zero_ns) / 1e9)
        sums.append(float(sum(latest.values())))
    return Series(label, "", unit, tuple(times_s), tuple(sums))


def _readable(report: records.HistogramReport) -> list[Histogram]:
    try:
        return [decode(report)]
    except DamagedHistogram:
        return []  # counted when the whole test's histograms are read
