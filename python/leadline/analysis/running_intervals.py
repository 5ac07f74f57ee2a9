"""Figures of each interval of a load while it runs: what its flows' counters grew by, all flows and hosts added up.

Takes an agent's progress rows in their order of arrival and gives an interval once every side has told of its end.
Instants are on the controller's clock; between two readings a counter is taken to grow evenly. Pure.
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
# Both sides tell every 100 ms, the peer over the network: this long after an interval's end its readings are there.
_SETTLED_NS = 200_000_000
# A histogram is of the second before it was handed over: half of that back it is where most of its values are.
_HALF_HISTOGRAM_NS = 500_000_000
_LATENCIES = ("latency", f"latency{CENSORED}")
_COUNTERS = ("received_bytes", "received_units", "missing_units", "retransmits")
_RECEIVERS = {"up": {"peer"}, "down": {"local"}, "both": {"local", "peer"}}
_FINAL_SHARE = 0.5
"""What is left at the end is an interval of its own from this share of the others' length on."""

Key = tuple[str, int, str]
"""Host, flow and side."""


@dataclass(frozen=True, slots=True)
class IntervalGrowth:
    """What the counters of all flows grew by in one interval."""

    by_counter: Mapping[tuple[str, str], float | None]
    """By side (`local`, `peer`) and counter; None where no flow has it."""
    seconds: float
    round_trip_us: float | None
    """Mean over the flows at the interval's end."""

    def both_sides(self, name: str) -> float | None:
        """A counter of both sides, added up."""
        return _sum(*(self.by_counter[side, name] for side in ("local", "peer")))

    def rate(self, side: str, name: str, factor: float = 1.0) -> float | None:
        """A counter of one side, per second."""
        return _rate(self.by_counter[side, name], self.seconds, factor)


class IntervalKind(Protocol):
    """What this module needs of a kind of test."""

    def interval_values(self, spec: TestSpec, growth: IntervalGrowth) -> dict[str, float | None]:
        """The figures of an interval, but latencies."""


def throughput(spec: TestSpec, growth: IntervalGrowth) -> dict[str, float | None]:
    """Bits per second that arrived: the sum, and where both sides send those of each direction."""
    down, up = (growth.rate(side, "received_bytes", 8.0) for side in ("local", "peer"))
    both = {"throughput_up_bps": up, "throughput_down_bps": down} if spec.direction == "both" else {}
    return {"throughput_bps": _sum(up, down), **both}


def answers(name: str, growth: IntervalGrowth) -> dict[str, float | None]:
    """Answers per second, by the name that the kind has for them, and their bits per second."""
    return {
        name: growth.rate("local", "received_units"),
        "throughput_bps": growth.rate("local", "received_bytes", 8.0),
    }


def datagrams(growth: IntervalGrowth) -> dict[str, float | None]:
    """Datagrams per second that arrived, and those that did not."""
    received, missing = growth.both_sides("received_units"), growth.both_sides("missing_units")
    # One that was missing before and has come late makes the count fall.
    lost = None if missing is None else max(0.0, missing)
    due = None if lost is None or received is None else lost + received
    return {
        "packets_per_s": _rate(received, growth.seconds),
        "lost": lost,
        "lost_ratio": lost / due if lost is not None and due else None,
    }


class RunningIntervals:
    """One load's intervals, each `step_ns` long from its start; the last one may be shorter."""

    def __init__(self, spec: TestSpec, start_ns: int, step_ns: int) -> None:
        self._spec = spec
        self._start_ns = start_ns
        self._step_ns = step_ns
        self._closed = 0
        self._readings: dict[Key, list[tuple[int, Mapping[str, Any]]]] = {}
        self._histograms: list[tuple[int, str, Histogram]] = []

    def take(self, host: str, t_ns: int, event: Mapping[str, Any]) -> Iterator[Interval]:
        """A `progress` event whose instant is `t_ns`; gives the intervals that it completes."""
        for row in event["flows"]:
            self._readings.setdefault((host, row["flow"], event["side"]), []).append((t_ns, row))
        for report in event["histograms"]:
            if report["metric"] in _LATENCIES:
                try:
                    self._histograms.append((t_ns - _HALF_HISTOGRAM_NS, report["metric"], decode(report)))
                except DamagedHistogram:
                    continue  # counted where the whole test's histograms are read
        while self._readings and self._is_settled(self._edge(self._closed + 1)):
            yield self._close(self._edge(self._closed + 1))

    def end(self, end_ns: int) -> Iterator[Interval]:
        """What is left when the load has ended at `end_ns`. The last interval ends there, or with the last readings."""
        if self._readings:
            end_ns = min(end_ns, *(readings[-1][0] for readings in self._readings.values()))
        while self._readings and self._edge(self._closed + _FINAL_SHARE) <= end_ns:
            yield self._close(min(self._edge(self._closed + 1), end_ns))

    def _edge(self, number: float) -> int:
        return self._start_ns + round(number * self._step_ns)

    def _is_settled(self, edge_ns: int) -> bool:
        """Whether every side has told of what was after the edge; one that fell silent is not waited for."""
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
            # The reading before the edge is where the next interval begins.
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
        """Of all flows whose side tells the counter."""
        grown = [
            _at([(self._start_ns, 0.0), *known], end_ns) - _at([(self._start_ns, 0.0), *known], begin_ns)
            for (_, _, whose), readings in self._readings.items()
            if whose == side
            and (known := [(t_ns, float(row[name])) for t_ns, row in readings if row.get(name) is not None])
        ]
        return sum(grown) if grown else None

    def _round_trip_us(self, end_ns: int) -> float | None:
        """Mean over the flows of what their kernels said last."""
        times_us = []
        for readings in self._readings.values():
            said = [row["rtt_us"] for t_ns, row in readings if t_ns <= end_ns and row.get("rtt_us") is not None]
            times_us += said[-1:]
        return sum(times_us) / len(times_us) if times_us else None

    def _latency(self, end_ns: int) -> dict[str, Figure]:
        """Of what was handed over in the interval; hosts do so once a second."""
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
    """The counter at an instant, evenly grown between its readings."""
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
