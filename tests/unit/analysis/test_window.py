"""The steady window and the rates in it: whatever head and tail there is, even flows give exactly their rates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_journals import (
    EPOCH_NS,
    MS,
    S,
    counters,
    finished,
    flow,
    outcome,
    progress,
    steady_flow_events,
    steady_test,
    test_data,
)

from leadline.analysis import TestData, analyse_test
from leadline.analysis.flows import build_flows
from leadline.analysis.model import Verdict
from leadline.analysis.window import steady_window
from synthetic import assert_share

# Starts in the first 3 s, ends after the 7th, rates of whole bytes per ns-multiple so that counters are exact.
FLOWS = st.lists(
    st.tuples(st.integers(0, 3 * S), st.integers(7 * S, 12 * S), st.integers(1, 10_000)), min_size=1, max_size=6
)


@settings(max_examples=80, deadline=None)
@given(FLOWS, st.integers(20, 400), st.sampled_from([0, 1000, 4000]))
def test_rates_in_the_window_add_up_to_the_known_rates(
    flows: list[tuple[int, int, int]], step_ms: int, warmup_ms: int
) -> None:
    hosts = tuple(f"client{n}" for n in range(len(flows)))
    data = test_data(hosts=hosts, warmup_ms=warmup_ms)
    for host, (start, end, rate) in zip(hosts, flows, strict=True):
        # A byte count is whole; with 1000 bytes per unit of rate its rounding is below 1e-6 of what a window holds.
        report, events = steady_flow_events(
            0, EPOCH_NS + start, EPOCH_NS + end, rate * 1_000_000.0, step_ns=step_ms * MS
        )
        for event in events:
            data.add(host, event)
        data.add(host, finished(EPOCH_NS + end, outcome([report])))
    result = analyse_test(data)
    assert result.window is not None
    starts, ends, rates = zip(*flows, strict=True)
    assert result.window.first_start_ns == EPOCH_NS + min(starts)
    assert result.window.start_ns == EPOCH_NS + max(*starts, warmup_ms * MS, 0)
    assert result.window.end_ns == EPOCH_NS + min(ends)
    assert result.window.last_end_ns == EPOCH_NS + max(ends)
    known_bps = 8.0 * sum(rates) * 1_000_000.0
    assert result.metrics["throughput_bps"].value == pytest.approx(known_bps, rel=1e-6)
    assert result.clients is not None
    assert result.clients.total_bps == pytest.approx(known_bps, rel=1e-6)
    assert result.clients.average_bps == pytest.approx(known_bps / len(flows), rel=1e-6)
    moved = sum(rate * (end - start) / 1000 for start, end, rate in flows)
    assert result.clients.transfer_bytes == pytest.approx(moved, rel=1e-6)
    cut = 1 - (result.window.end_ns - result.window.start_ns) / (max(ends) - min(starts))
    assert result.window.cut_share == pytest.approx(cut)
    inside = [interval.values["throughput_bps"] for interval in result.intervals if interval.in_window]
    # The counters at both ends of an interval are whole bytes: at 1 MB/s a last one of half a step holds 50,000.
    assert inside == pytest.approx([known_bps] * len(inside), rel=2 / 50_000)


@settings(max_examples=40, deadline=None)
@given(FLOWS)
def test_intervals_hold_every_byte(flows: list[tuple[int, int, int]]) -> None:
    hosts = tuple(f"client{n}" for n in range(len(flows)))
    data = test_data(hosts=hosts)
    for host, (start, end, rate) in zip(hosts, flows, strict=True):
        report, events = steady_flow_events(0, EPOCH_NS + start, EPOCH_NS + end, rate * 1_000_000.0)
        for event in events:
            data.add(host, event)
        data.add(host, finished(EPOCH_NS + end, outcome([report])))
    result = analyse_test(data)
    carried = sum(
        (interval.values["throughput_bps"] or 0.0) * (interval.end_s - interval.start_s) / 8
        for interval in result.intervals
    )
    assert result.clients is not None
    assert carried == pytest.approx(result.clients.transfer_bytes, rel=1e-6)
    assert result.intervals[0].start_s == 0


def test_the_head_and_tail_of_one_flow_do_not_raise_the_sum() -> None:
    # Two flows share 100 MB/s; alone, each gets all of it. Averages over each one's own time add up to 150 MB/s.
    data = test_data(hosts=("a", "b"))
    for host, start, readings in (
        ("a", 0, [(0, 0), (2, 200), (8, 500)]),
        ("b", 2, [(2, 0), (8, 300), (10, 500)]),
    ):
        total = readings[-1][1] * 1_000_000
        end = readings[-1][0]
        for second, megabytes in readings:
            data.add(host, progress(EPOCH_NS + second * S, [counters(0, 0, megabytes * 1_000_000)]))
        report = flow(0, EPOCH_NS + start * S, EPOCH_NS + end * S, sent_bytes=total, received_bytes=total)
        data.add(host, finished(EPOCH_NS + end * S, outcome([report])))
    result = analyse_test(data)
    assert result.metrics["throughput_bps"].value == pytest.approx(800e6)
    assert result.window is not None
    assert result.window.cut_share == pytest.approx(0.4)


def test_flows_that_never_overlap_have_no_rate() -> None:
    data = test_data(hosts=("a", "b"))
    for host, start in (("a", 0), ("b", 5)):
        report, events = steady_flow_events(0, EPOCH_NS + start * S, EPOCH_NS + (start + 4) * S, 1e6)
        for event in events:
            data.add(host, event)
        data.add(host, finished(EPOCH_NS + (start + 4) * S, outcome([report])))
    result = analyse_test(data)
    assert result.metrics["throughput_bps"].value is None
    assert result.metrics["received_bytes"].value == 8e6
    assert result.window is not None
    assert result.window.length_s == 0
    assert "no-steady-window" in [reason.code for reason in result.validity.reasons]


def test_without_any_flow_there_is_no_window() -> None:
    assert steady_window([], 0, EPOCH_NS) is None
    result = analyse_test(test_data())
    assert result.window is None
    assert result.intervals == ()
    assert result.metrics["throughput_bps"].value is None


def test_a_clock_ahead_moves_every_instant() -> None:
    report, events = steady_flow_events(0, EPOCH_NS, EPOCH_NS + 10 * S, 1e6)
    here, ahead = test_data(), test_data()
    for event in (*events, finished(EPOCH_NS + 10 * S, outcome([report]))):
        here.add("client1", event)
        ahead.add("client1", event, offset_ns=5 * S)
    assert build_flows(ahead)[0].start_ns == EPOCH_NS - 5 * S
    moved, kept = analyse_test(ahead), analyse_test(here)
    assert moved.metrics == kept.metrics


def test_a_flow_with_totals_only_is_taken_as_even() -> None:
    data = test_data()
    report = flow(0, EPOCH_NS, EPOCH_NS + 10 * S, sent_bytes=12_000, received_bytes=10_000)
    data.add("client1", finished(EPOCH_NS + 10 * S, outcome([report])))
    result = analyse_test(data)
    assert result.metrics["throughput_bps"].value == pytest.approx(8000)
    assert "counters-missing" in [note.code for note in result.validity.notes]


def test_late_readings_and_falling_counters_do_no_harm() -> None:
    data = test_data()
    for t_s, received in ((2, 200), (1, 100), (1, 90), (9.99, 999), (11, 1000)):
        data.add("client1", progress(EPOCH_NS + int(t_s * S), [counters(0, 0, received)]))
    report = flow(0, EPOCH_NS, EPOCH_NS + 10 * S, sent_bytes=1000, received_bytes=1000)
    data.add("client1", finished(EPOCH_NS + 10 * S, outcome([report])))
    assert analyse_test(data).metrics["throughput_bps"].value == pytest.approx(800)


def test_what_a_sockets_buffer_still_held_at_the_end_is_not_counted_in_the_window() -> None:
    # 1 MB/s all along; the sender's buffer takes its last 2 MB at 8 s, and the receiver is done at 10 s.
    data = test_data()
    for step in range(1, 100):
        data.add("client1", progress(EPOCH_NS + step * 100 * MS, [counters(0, 0, step * 100_000)]))
    end_ns = EPOCH_NS + 8_050 * MS
    report = flow(0, EPOCH_NS, end_ns, sent_bytes=10_000_000, received_bytes=10_000_000)
    data.add("client1", finished(EPOCH_NS + 10 * S, outcome([report])))
    result = analyse_test(data)
    assert result.window is not None
    assert result.window.end_ns == end_ns
    assert result.metrics["throughput_bps"].value == pytest.approx(8e6)
    assert result.metrics["received_bytes"].value == 10_000_000


@pytest.mark.parametrize("after_ms", [10, 90])
def test_the_last_part_of_an_interval_is_carried_on_at_its_pace(after_ms: int) -> None:
    data = test_data()
    for step in range(1, 81):
        data.add("client1", progress(EPOCH_NS + step * 100 * MS, [counters(0, 0, step * 100_000)]))
    end_ns = EPOCH_NS + (8_000 + after_ms) * MS
    report = flow(0, EPOCH_NS, end_ns, sent_bytes=8_500_000, received_bytes=8_500_000)
    data.add("client1", finished(EPOCH_NS + 9 * S, outcome([report])))
    assert analyse_test(data).metrics["throughput_bps"].value == pytest.approx(8e6)


def test_a_flow_shorter_than_an_interval_has_its_total_at_its_end() -> None:
    data = test_data(number=10)
    data.add("client1", progress(EPOCH_NS + 100 * MS, [counters(0, 0, 1000)]))
    report = flow(0, EPOCH_NS, EPOCH_NS + 50 * MS, sent_bytes=1000, received_bytes=1000)
    data.add("client1", finished(EPOCH_NS + 100 * MS, outcome([report])))
    assert analyse_test(data).metrics["throughput_bps"].value == pytest.approx(8 * 1000 / 0.05)


CLIENTS, START_EVERY_S, LENGTH_S = 20, 0.5, 30


def spread_starts(rate_of: Callable[[int], float]) -> TestData:
    """20 clients that start over 10 s of a 30 s test and end together. `rate_of` is each client's rate, MB/s, while
    this number of them run."""
    hosts = tuple(f"client{number:02}" for number in range(CLIENTS))
    data = test_data(hosts=hosts, duration_ms=LENGTH_S * 1000)
    moved = dict.fromkeys(hosts, 0.0)
    for step in range(10 * LENGTH_S):
        active = [host for number, host in enumerate(hosts) if number * START_EVERY_S <= step / 10]
        for host in active:
            moved[host] += rate_of(len(active)) * 1e5
            data.add(host, progress(EPOCH_NS + (step + 1) * 100 * MS, [counters(0, 0, round(moved[host]))]))
    for number, host in enumerate(hosts):
        start_ns, end_ns = EPOCH_NS + round(number * START_EVERY_S * S), EPOCH_NS + LENGTH_S * S
        report = flow(0, start_ns, end_ns, received_bytes=round(moved[host]), sent_bytes=round(moved[host]))
        data.add(host, finished(end_ns, outcome([report])))
    return data


def test_average_over_the_whole_time_is_too_low_where_clients_start_one_after_another() -> None:
    """Each client has 1 MB/s of its own: the clients' mean share of the 30 s is what the whole average loses."""
    found = analyse_test(spread_starts(lambda active: 1.0))
    truth_bps = 8e6 * CLIENTS
    present = sum(LENGTH_S - START_EVERY_S * number for number in range(CLIENTS)) / (CLIENTS * LENGTH_S)
    assert present == pytest.approx(0.8417, abs=1e-4)
    assert found.metrics["throughput_bps"].value == pytest.approx(truth_bps, rel=0.01)
    naive = found.naive["throughput_bps"]
    assert naive.whole == pytest.approx(present * truth_bps, rel=1e-3)
    assert naive.flows == pytest.approx(truth_bps, rel=1e-3)
    notes = [note.text for note in found.validity.notes if note.code == "head-and-tail"]
    assert len(notes) == 1 and "would be -15.8 %" in notes[0] and "9.5 s of head and 0 s of tail" in notes[0]


def test_averages_over_each_clients_own_time_are_too_high_where_clients_share_a_path() -> None:
    """All clients together have 100 MB/s: those that start early have more of it, for a while."""
    found = analyse_test(spread_starts(lambda active: 100.0 / active))
    assert found.metrics["throughput_bps"].value == pytest.approx(800e6, rel=0.01)
    own = 0.0
    for number in range(CLIENTS):
        # It shares with one more client every half a second, and with all of them from 9.5 s on.
        moved = sum(100 / (active + 1) * START_EVERY_S for active in range(number, CLIENTS - 1))
        moved += 100 / CLIENTS * (LENGTH_S - 9.5)
        own += moved / (LENGTH_S - START_EVERY_S * number)
    assert own / 100 - 1 > 0.05
    naive = found.naive["throughput_bps"]
    assert naive.flows == pytest.approx(8e6 * own, rel=1e-3)
    assert naive.whole == pytest.approx(800e6, rel=1e-3)


def test_one_flow_without_head_and_tail_has_no_naive_figure() -> None:
    found = analyse_test(steady_test())
    assert found.naive == {}
    assert [note.code for note in found.validity.notes] == []


def warming_up(slow: int, generator: np.random.Generator) -> TestData:
    """10 s of 100 MB/s with noise of 2 %; the first `slow` intervals have half of it."""
    data, moved = test_data(), 0
    for step, noise in enumerate(generator.normal(1.0, 0.02, 100)):
        moved += round(1e7 * noise * (0.5 if step < slow else 1.0))
        data.add("client1", progress(EPOCH_NS + (step + 1) * 100 * MS, [counters(0, 0, moved)]))
    report = flow(0, EPOCH_NS, EPOCH_NS + 10 * S, received_bytes=moved, sent_bytes=moved)
    data.add("client1", finished(EPOCH_NS + 10 * S, outcome([report])))
    return data


def test_warm_up_that_the_plan_left_in_is_cut_within_one_batch() -> None:
    generator, near = np.random.default_rng(12), list[bool]()
    for _ in range(400):
        found = analyse_test(warming_up(15, generator))
        assert found.window is not None
        assert found.window.start_ns == EPOCH_NS + found.window.warm_up_ns
        near.append(found.validity.verdict is Verdict.VALID and abs(found.window.warm_up_ns - 1500 * MS) <= 500 * MS)
        if near[-1]:
            assert found.metrics["throughput_bps"].value == pytest.approx(800e6, rel=0.02)
            assert found.naive["throughput_bps"].whole == pytest.approx(740e6, rel=0.01)
    assert_share(near, 0.95)


def test_steady_test_loses_nothing_to_a_warm_up() -> None:
    generator = np.random.default_rng(13)
    windows = [analyse_test(warming_up(0, generator)).window for _ in range(60)]
    assert sum(window is not None and window.warm_up_ns > 0 for window in windows) <= 3


def test_rate_that_differs_for_long_changes_and_has_no_warm_up() -> None:
    found = analyse_test(warming_up(40, np.random.default_rng(14)))
    assert found.window is not None and found.window.warm_up_ns == 0
    assert found.window.unsettled is not None
    assert [reason.code for reason in found.validity.reasons] == ["change-point"]


def test_rate_that_breaks_down_early_is_a_stall_and_no_warm_up() -> None:
    """200 answers in the first second, and none in the other nine: their rate is over all of the ten."""
    data, moved = test_data(), 0
    for step in range(100):
        moved += 1_000_000 if step < 10 else 0
        data.add("client1", progress(EPOCH_NS + (step + 1) * 100 * MS, [counters(0, 0, moved)]))
    report = flow(0, EPOCH_NS, EPOCH_NS + 10 * S, received_bytes=moved, sent_bytes=moved)
    data.add("client1", finished(EPOCH_NS + 10 * S, outcome([report])))
    found = analyse_test(data)
    assert found.window is not None and found.window.warm_up_ns == 0
    assert "a stall, not a warm-up" in (found.window.unsettled or "")
    assert found.metrics["throughput_bps"].value == pytest.approx(8e6)


def test_short_test_says_that_no_warm_up_was_looked_for() -> None:
    report, events = steady_flow_events(0, EPOCH_NS, EPOCH_NS + 3 * S, 1e6)
    data = test_data(duration_ms=3000)
    for event in events:
        data.add("client1", event)
    data.add("client1", finished(EPOCH_NS + 3 * S, outcome([report])))
    window = analyse_test(data).window
    assert window is not None and window.unsettled == "30 intervals are too few: 50 are needed"
