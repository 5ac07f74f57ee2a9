"""Intervals of a running load from counters with known growth; instants are made up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import made_journals as made
import pytest

from leadline.analysis import TestSpec
from leadline.analysis.model import Interval, Window
from leadline.analysis.running_intervals import RunningIntervals, in_window

START_NS, MS, S = made.EPOCH_NS, made.MS, made.S


def row(t_ms: int, side: str, **counters: int) -> tuple[int, Mapping[str, Any]]:
    """A progress event with one flow's counters, and its instant."""
    t_ns = START_NS + t_ms * MS
    histograms = counters.pop("histograms", ())
    flow = {**made.counters(0), "sent_units": None, "received_units": None, **counters}
    return t_ns, made.progress(t_ns, [flow], side=side, histograms=histograms)  # type: ignore[arg-type]


def intervals_of(kind: str, *rows: tuple[int, Mapping[str, Any]], end_ms: int, direction: str = "up") -> list[Interval]:
    """The intervals of 1 s of a load with these rows."""
    spec = TestSpec.read({"name": "t", "kind": kind, "direction": direction, "interval_ms": 100})
    running = RunningIntervals(spec, START_NS, S)
    found = [interval for t_ns, event in rows for interval in running.take("here", t_ns, event)]
    return [*found, *running.end(START_NS + end_ms * MS)]


def spans(intervals: list[Interval]) -> list[tuple[float, float]]:
    return [(interval.start_s, interval.end_s) for interval in intervals]


def tcp_rows(until_ms: int, step_ms: int = 100) -> list[tuple[int, Mapping[str, Any]]]:
    """1 MB/s in the first second, 3 MB/s from then on; a segment sent again each second, from the middle of it."""
    rows = []
    for t_ms in range(step_ms, until_ms + 1, step_ms):
        moved = 1000 * min(t_ms, 1000) + 3000 * max(0, t_ms - 1000)
        rows.append(row(t_ms, "peer", received_bytes=moved))
        rows.append(row(t_ms, "local", sent_bytes=moved, retransmits=(t_ms + 500) // 1000, rtt_us=t_ms))
    return rows


def test_counters_grow_by_what_came_in_each_interval() -> None:
    first, second = intervals_of("tcp", *tcp_rows(2000), end_ms=2000)
    assert spans([first, second]) == [(0.0, 1.0), (1.0, 2.0)]
    assert first.values == {"throughput_bps": 8e6, "retransmits": 1.0, "rtt_mean_us": 1000.0}
    assert second.values == {"throughput_bps": 24e6, "retransmits": 1.0, "rtt_mean_us": 2000.0}


def test_readings_between_two_edges_are_interpolated() -> None:
    first, second = intervals_of("tcp", *tcp_rows(2100, step_ms=300), end_ms=2000)
    # Between 0.9 s and 1.2 s the counter is taken to grow evenly: 500 kB until the edge, and 1 MB after it.
    assert first.values["throughput_bps"] == pytest.approx(8 * (900_000 + 700_000 / 3))
    assert second.values["throughput_bps"] == pytest.approx(8 * (700_000 * 2 / 3 + 2_400_000))


def test_interval_is_reported_when_both_sides_have_settled() -> None:
    running = RunningIntervals(TestSpec.read({"name": "t", "kind": "tcp"}), START_NS, S)
    due = [row(1200, "local", sent_bytes=1), row(1199, "peer", received_bytes=1), row(1200, "peer", received_bytes=1)]
    assert [len(list(running.take("here", t_ns, event))) for t_ns, event in due] == [0, 0, 1]


def test_side_that_fell_silent_is_not_waited_for() -> None:
    rows = [row(500, "peer", received_bytes=1_000_000), *(row(t_ms, "local", sent_bytes=t_ms) for t_ms in (1000, 2200))]
    (first,) = intervals_of("tcp", *rows, end_ms=500)
    assert first.values["throughput_bps"] == 8e6


@pytest.mark.parametrize(
    ("end_ms", "expected"),
    [(2000, [(0.0, 1.0), (1.0, 2.0)]), (2499, [(0.0, 1.0), (1.0, 2.0)]), (2600, [(0.0, 1.0), (1.0, 2.0), (2.0, 2.6)])],
)
def test_rest_of_half_an_interval_is_one_of_its_own(end_ms: int, expected: list[tuple[float, float]]) -> None:
    assert spans(intervals_of("tcp", *tcp_rows(3000), end_ms=end_ms)) == expected


def test_last_interval_ends_with_the_last_readings() -> None:
    *_, last = intervals_of("tcp", *tcp_rows(1900), end_ms=2000)
    assert spans([last]) == [(1.0, 1.9)]
    assert last.values["throughput_bps"] == pytest.approx(24e6)


def test_both_directions_are_reported_with_their_sum() -> None:
    rows = [row(t_ms, "local", received_bytes=t_ms * 1000) for t_ms in (600, 1200)]
    rows += [row(t_ms, "peer", received_bytes=t_ms * 2000) for t_ms in (600, 1200)]
    (first, *_) = intervals_of("udp", *rows, end_ms=1200, direction="both")
    assert first.values["throughput_bps"] == pytest.approx(24e6)
    assert first.values["throughput_down_bps"] == pytest.approx(8e6)
    assert first.values["throughput_up_bps"] == pytest.approx(16e6)


def test_lost_datagrams_are_those_of_the_interval_and_never_below_zero() -> None:
    counts = {1000: (90, 10), 2000: (180, 20), 3000: (290, 10), 3300: (290, 10)}
    rows = [
        row(t_ms, "peer", received_bytes=received, received_units=received, missing_units=missing)
        for t_ms, (received, missing) in counts.items()
    ]
    intervals = intervals_of("udp", *rows, end_ms=3000)
    assert [interval.values["lost"] for interval in intervals] == [10.0, 10.0, 0.0]
    assert [interval.values["lost_ratio"] for interval in intervals] == [0.1, 0.1, 0.0]
    assert [interval.values["packets_per_s"] for interval in intervals] == [90.0, 90.0, 110.0]


def test_a_counter_without_reports_is_unknown() -> None:
    (first,) = intervals_of("tcp", row(1300, "local", sent_bytes=1), row(1300, "peer", received_bytes=1), end_ms=1000)
    assert first.values["retransmits"] is None and first.values["rtt_mean_us"] is None


def test_latencies_are_in_the_interval_that_they_were_recorded_in() -> None:
    """A histogram is handed over after its second: at 1.1 s that of the first."""
    rows = [
        row(1100, "local", received_units=100, histograms=[made.histogram("latency", [MS] * 100)]),  # type: ignore[arg-type]
        row(2100, "local", received_units=200, histograms=[made.histogram("latency", [9 * MS] * 100)]),  # type: ignore[arg-type]
        row(2300, "local", received_units=200),
    ]
    first, second = intervals_of("rr", *rows, end_ms=2000)
    assert first.values["latency_p99_us"] == pytest.approx(1000, rel=0.01)
    assert second.values["latency_p50_us"] == pytest.approx(9000, rel=0.01)
    assert first.values["transactions_per_s"] == pytest.approx(1000 / 11)


def test_interval_is_in_the_window_where_its_middle_is() -> None:
    window = Window(START_NS, START_NS + 1400 * MS, START_NS + 3 * S, START_NS + 3 * S)
    found = [in_window(Interval(float(n), float(n + 1), {}, True), START_NS, window) for n in range(4)]
    assert found == [False, True, True, False]
    assert not in_window(Interval(0.0, 1.0, {}, True), START_NS, None)
