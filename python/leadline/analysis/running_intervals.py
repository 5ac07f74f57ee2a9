"""Figures of each interval of a running load: the growth of its flows' counters, summed over flows and hosts.

Processes an agent's progress rows in order of arrival, and returns an interval once all sides have reported its end.
Instants are on the controller's clock; between readings a counter is interpolated linearly. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from leadline.analysis.durations import Figure, Sample
from leadline.analysis.histograms import DamagedHistogram, Histogram, decode, merge
from leadline.analysis.metrics import CENSORED
from leadline.analysis.model import Interval, Window
from leadline.analysis.test_spec import TestSpec
from leadline.registry import KINDS

NS_PER_S = 1e9
# Both sides report every 100 ms, the peer over the network. After this time all readings of an interval have arrived.
_SETTLED_NS = 200_000_000
# A histogram covers the second before it was reported; its middle is half a second earlier.
_HALF_HISTOGRAM_NS = 500_000_000
_LATENCIES = ("latency", f"latency{CENSORED}")
_COUNTERS = ("received_bytes", "received_units", "missing_units", "retransmits")
_RECEIVERS = {"up": {"peer"}, "down": {"local"}, "both": {"local", "peer"}}
_FINAL_SHARE = 0.5
"""The remainder at the end is an interval of its own if it has at least this share of an interval's length."""

Key = tuple[str, int, str]
"""Host, flow and side."""


@dataclass(frozen=True, slots=True)
class IntervalGrowth:
    """The growth of all flows' counters in one interval."""

    by_counter: Mapping[tuple[str, str], float | None]
    """By side (`local`, `peer`) and counter; None if no flow has it."""
    seconds: float
    round_trip_us: float | None
    """Mean over the flows at the interval's end."""

    def both_sides(self, name: str) -> float | None:
        """A counter, summed over both sides."""
        return _sum(*(self.by_counter[side, name] for side in ("local", "peer")))

    def rate(self, side: str, name: str, factor: float = 1.0) -> float | None:
        """A counter of one side, per second."""
        return _rate(self.by_counter[side, name], self.seconds, factor)


class IntervalKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    def interval_values(self, spec: TestSpec, growth: IntervalGrowth) -> dict[str, float | None]:
        """The figures of an interval without latencies."""


def throughput(spec: TestSpec, growth: IntervalGrowth) -> dict[str, float | None]:
    """Received bits per second: the sum, and the rate of each direction if both sides send."""
    down, up = (growth.rate(side, "received_bytes", 8.0) for side in ("local", "peer"))
    both = {"throughput_up_bps": up, "throughput_down_bps": down} if spec.direction == "both" else {}
    return {"throughput_bps": _sum(up, down), **both}


def answers(name: str, growth: IntervalGrowth) -> dict[str, float | None]:
    """Answers per second, by the kind's name for them, and their bits per second."""
    return {
        name: growth.rate("local", "received_units"),
        "throughput_bps": growth.rate("local", "received_bytes", 8.0),
    }


def datagrams(growth: IntervalGrowth) -> dict[str, float | None]:
    """Received datagrams per second, and lost ones."""
    received, missing = growth.both_sides("received_units"), growth.both_sides("missing_units")
    # A datagram that arrives late decreases the count.
    lost = None if missing is None else max(0.0, missing)
    due = None if lost is None or received is None else lost + received
    return {
        "packets_per_s": _rate(received, growth.seconds),
        "lost": lost,
        "lost_ratio": lost / due if lost is not None and due else None,
    }


class RunningIntervals:
    """The intervals of one load, each `step_ns` long from its start; the last one may be shorter."""

    def __init__(self, spec: TestSpec, start_ns: int, step_ns: int) -> None:
        self._spec = spec
        self._start_ns = start_ns
        self._step_ns = step_ns
        self._closed = 0
        self._readings: dict[Key, list[tuple[int, Mapping[str, Any]]]] = {}
        self._histograms: list[tuple[int, str, Histogram]] = []

    def take(self, host: str, t_ns: int, event: Mapping[str, Any]) -> Iterator[Interval]:
        """Process a `progress` event with instant `t_ns`; yields the intervals that it completes."""
        for row in event["flows"]:
            self._readings.setdefault((host, row["flow"], event["side"]), []).append((t_ns, row))
        for report in event["histograms"]:
            if report["metric"] in _LATENCIES:
                try:
                    self._histograms.append((t_ns - _HALF_HISTOGRAM_NS, report["metric"], decode(report)))
                except DamagedHistogram:
                    continue  # counted when the whole test's histograms are read
        while self._readings and self._is_settled(self._edge(self._closed + 1)):
            yield self._close(self._edge(self._closed + 1))

    def end(self, end_ns: int) -> Iterator[Interval]:
        """The remaining intervals when the load has ended at `end_ns`. The last one ends there, or at the last
        readings."""
        if self._readings:
            end_ns = min(end_ns, *(readings[-1][0] for readings in self._readings.values()))
        while self._readings and self._edge(self._closed + _FINAL_SHARE) <= end_ns:
            yield self._close(min(self._edge(self._closed + 1), end_ns))

    def _edge(self, number: float) -> int:
        return self._start_ns + round(number * self._step_ns)

    def _is_settled(self, edge_ns: int) -> bool:
        """Whether all sides have reported data after the edge. A side that stopped reporting is not waited for."""
        latest = [readings[-1][0] for readings in self._readings.values()]
        if max(latest) >= edge_ns + _SETTLED_NS + self._step_ns:
            return True
        expected = {"local"} if self._spec.counts_units else _RECEIVERS[self._spec.direction]
        return expected <= {side for _, _, side in self._readings} and min(latest) >= edge_ns + _SETTLED_NS

    def _close(self, end_ns: int) -> Interval:
        begin_ns = self._edge(self._closed)
        self._closed += 1
        latency = self._latency(end_ns)
        values = self._values(begin_ns, end_ns) | {name: figure.value_us for name, figure in latency.items()}
        for readings in self._readings.values():
            # The next interval begins at the reading before the edge.
            del readings[: max(0, bisect_left([t_ns for t_ns, _ in readings], end_ns) - 1)]
        since_s = (begin_ns - self._start_ns) / NS_PER_S
        censored = tuple(name for name, figure in latency.items() if figure.is_bound)
        return Interval(since_s, (end_ns - self._start_ns) / NS_PER_S, values, True, censored)

    def _values(self, begin_ns: int, end_ns: int) -> dict[str, float | None]:
        grown = {
            (side, name): self._growth(side, name, begin_ns, end_ns) for side in ("local", "peer") for name in _COUNTERS
        }
        kind: IntervalKind = KINDS.find(self._spec.kind)
        growth = IntervalGrowth(grown, (end_ns - begin_ns) / NS_PER_S, self._round_trip_us(end_ns))
        return kind.interval_values(self._spec, growth)

    def _growth(self, side: str, name: str, begin_ns: int, end_ns: int) -> float | None:
        """The growth of a counter, over all flows whose side reports it."""
        grown = [
            _at([(self._start_ns, 0.0), *known], end_ns) - _at([(self._start_ns, 0.0), *known], begin_ns)
            for (_, _, whose), readings in self._readings.items()
            if whose == side
            and (known := [(t_ns, float(row[name])) for t_ns, row in readings if row.get(name) is not None])
        ]
        return sum(grown) if grown else None

    def _round_trip_us(self, end_ns: int) -> float | None:
        """Mean over the flows of the last value that their kernels reported."""
        times_us = []
        for readings in self._readings.values():
            said = [row["rtt_us"] for t_ns, row in readings if t_ns <= end_ns and row.get("rtt_us") is not None]
            times_us += said[-1:]
        return sum(times_us) / len(times_us) if times_us else None

    def _latency(self, end_ns: int) -> dict[str, Figure]:
        """Latencies that were reported in the interval; hosts report them once a second."""
        if not self._spec.counts_units:
            return {}
        due = [(name, made) for t_ns, name, made in self._histograms if t_ns <= end_ns]
        self._histograms = [one for one in self._histograms if one[0] > end_ns]
        sample = Sample(*(merge(made for name, made in due if name == wanted) for wanted in _LATENCIES))
        return {f"latency_p{share:g}_us": sample.percentile(share) for share in (50.0, 99.0)}


def in_window(interval: Interval, start_ns: int, window: Window | None) -> bool:
    """Whether the middle of an interval, counted from `start_ns`, lies inside the steady window."""
    middle_ns = start_ns + (interval.start_s + interval.end_s) / 2 * NS_PER_S
    return window is not None and window.start_ns <= middle_ns <= window.end_ns


def _at(readings: list[tuple[int, float]], t_ns: int) -> float:
    """The counter at an instant, interpolated between its readings."""
    index = bisect_left([reading[0] for reading in readings], t_ns)
    if index == len(readings):
        return readings[-1][1]
    after_ns, after = readings[index]
    if index == 0:
        return after
    before_ns, before = readings[index - 1]
    return before + (after - before) * (t_ns - before_ns) / max(1, after_ns - before_ns)


def _rate(growth: float | None, seconds: float, factor: float = 1.0) -> float | None:
    return None if growth is None or seconds <= 0 else factor * growth / seconds


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
