"""Each kind's figures from synthetic outcomes whose answers are known, and nulls where nothing is known."""

# Figures are compared with pytest.approx within tuples.
# mypy: disable-error-code=comparison-overlap
from __future__ import annotations

from typing import Any

import pytest
from made_journals import (
    EPOCH_NS,
    S,
    counters,
    finished,
    flow,
    histogram,
    load,
    outcome,
    progress,
    steady_flow_events,
    steady_test,
    test_data,
    thread,
)

from leadline.analysis import TestData, analyse_test
from leadline.analysis.model import Verdict
from leadline.analysis.searches import SEARCHED
from leadline.plan.kinds import plan_kinds

END_NS = EPOCH_NS + 10 * S


def value(data: TestData, name: str) -> float | None:
    return analyse_test(data).metrics[name].value


@pytest.mark.parametrize("kind", ["tcp", "udp", "rr", "http"])
def test_figures_have_the_units_that_their_kind_says(kind: str) -> None:
    found = analyse_test(steady_test(kind)).metrics
    [own] = [one.metrics for one in plan_kinds() if one.name == kind]
    # Only a search has the rate that it found; only transactions at a rate, or with a connection each, have others.
    optional = (*SEARCHED, "unsent", "due_while_busy", "service", "connect") if kind == "rr" else tuple(SEARCHED)
    specs = [spec for spec in own if not spec.name.startswith(optional)]
    assert {spec.name: found[spec.name].unit for spec in specs} == {spec.name: spec.unit for spec in specs}


def test_tcp_counts_what_was_received_and_keeps_what_was_sent_apart() -> None:
    data = test_data(flows=2)
    reports = []
    for number in (0, 1):
        report, events = steady_flow_events(number, EPOCH_NS, END_NS, 1e6, retransmits=3 + number, rtt_mean_us=100.0)
        reports.append(report | {"sent_bytes": 11_000_000})
        for event in events:
            data.add("client1", event)
    data.add("client1", finished(END_NS, outcome(reports)))
    metrics = analyse_test(data).metrics
    assert metrics["throughput_bps"].value == pytest.approx(16e6)
    assert metrics["throughput_bps"].unit == "bit/s"
    assert metrics["retransmits"].value == 7
    assert metrics["rtt_mean_us"].value == 100
    assert metrics["sent_bytes"].value == 22e6
    assert metrics["received_bytes"].value == 20e6


def test_tcp_down_is_counted_here() -> None:
    data = test_data(direction="down")
    for step in range(1, 101):
        t_ns = EPOCH_NS + step * S // 10
        data.add("client1", progress(t_ns, [counters(0, 0, step * 100_000)], side="local"))
        data.add("client1", progress(t_ns, [counters(0, step * 300_000, 0)], side="peer"))
    report = flow(0, EPOCH_NS, END_NS, direction="down", sent_bytes=30_000_000, received_bytes=10_000_000)
    data.add("client1", finished(END_NS, outcome([report])))
    assert value(data, "throughput_bps") == pytest.approx(8e6)


@pytest.mark.parametrize("numbers", [(0, 1), (0, 0)])
def test_tcp_in_both_directions_has_a_sum_and_a_rate_per_direction(numbers: tuple[int, int]) -> None:
    up, down = numbers
    data = test_data(direction="both")
    for step in range(1, 101):
        t_ns = EPOCH_NS + step * S // 10
        data.add("client1", progress(t_ns, [counters(up, 0, step * 100_000)], side="peer"))
        data.add("client1", progress(t_ns, [counters(down, 0, step * 200_000)], side="local"))
    reports = [
        flow(up, EPOCH_NS, END_NS, direction="up", sent_bytes=10_000_000, received_bytes=10_000_000),
        flow(down, EPOCH_NS, END_NS, direction="down", sent_bytes=20_000_000, received_bytes=20_000_000),
    ]
    data.add("client1", finished(END_NS, outcome(reports)))
    metrics = analyse_test(data).metrics
    assert metrics["throughput_bps"].value == pytest.approx(24e6)
    assert metrics["throughput_up_bps"].value == pytest.approx(8e6)
    assert metrics["throughput_down_bps"].value == pytest.approx(16e6)


def test_what_one_flow_does_not_tell_is_not_known() -> None:
    data = test_data(flows=2)
    reports = [flow(n, EPOCH_NS, END_NS, received_bytes=1000, retransmits=None if n else 5) for n in (0, 1)]
    data.add("client1", finished(END_NS, outcome(reports)))
    assert value(data, "retransmits") is None
    assert value(data, "rtt_mean_us") is None


def test_without_a_receivers_count_the_senders_is_shown_and_marked() -> None:
    data = test_data()
    for step in range(1, 101):
        data.add("client1", progress(EPOCH_NS + step * S // 10, [counters(0, step * 1000, 0)], side="local"))
    report = flow(0, EPOCH_NS, END_NS, sent_bytes=100_000, received_bytes=None)
    data.add("client1", finished(END_NS, outcome([report])))
    result = analyse_test(data)
    assert result.metrics["throughput_bps"].value == pytest.approx(80_000)
    assert result.metrics["received_bytes"].value is None
    assert "sender-side-figure" in [reason.code for reason in result.validity.reasons]
    assert result.validity.verdict == "undetermined"


def test_udp_accounts_add_up_to_the_packet() -> None:
    data = test_data("udp", hosts=("a", "b"))
    for host, lost in (("a", 10), ("b", 30)):
        report, events = steady_flow_events(
            0,
            EPOCH_NS,
            END_NS,
            1e6,
            sent_units=1000,
            received_units=1000 - lost,
            lost=lost,
            duplicates=1,
            reordered=2,
            jitter_us=4.0 if host == "a" else 6.0,
        )
        for step, event in enumerate(events, start=1):
            event["flows"][0]["received_units"] = (1000 - lost) * step // 100
            data.add(host, event)
        data.add(host, finished(END_NS, outcome([report])))
    metrics = {name: metric.value for name, metric in analyse_test(data).metrics.items()}
    assert metrics == {
        "throughput_bps": pytest.approx(16e6),
        "packets_per_s": pytest.approx(196.0, rel=1e-6),
        # Each of two hosts' threads was on a CPU for 5 s: each end by the packets that it moved.
        "client_cpu_ns_per_packet": pytest.approx(1e9 * 10 / 2000),
        "server_cpu_ns_per_packet": pytest.approx(1e9 * 10 / 1960),
        "client_machine_cpu_ns_per_packet": None,
        "server_machine_cpu_ns_per_packet": None,
        "sent": 2000,
        "received": 1960,
        "lost": 40,
        "lost_ratio": 0.02,
        "duplicates": 2,
        "reordered": 4,
        "jitter_us": 5.0,
        # This receiver reports no bursts of loss, extents or delays.
        **dict.fromkeys(
            (
                "outstanding",
                "loss_bursts",
                "loss_burst_mean",
                "loss_burst_max",
                "reorder_extent_mean",
                "reorder_extent_max",
            )
        ),
        **dict.fromkeys(f"one_way_delay_{part}_us" for part in ("min", "mean", "max", "bound")),
    }


def test_rr_figures_come_from_answers_and_merged_histograms() -> None:
    data = test_data("rr", hosts=("a", "b"))
    for host, latencies in (("a", [1_000_000] * 99 + [9_000_000]), ("b", [3_000_000] * 100)):
        for step in range(1, 101):
            row = counters(0, step, step, sent_units=step, received_units=step)
            data.add(host, progress(EPOCH_NS + step * S // 10, [row], side="local"))
        report = flow(0, EPOCH_NS, END_NS, sent_units=100, received_units=100, received_bytes=100)
        made = outcome([report], histograms=[histogram("latency", latencies), histogram("warmup_latency", [1])])
        data.add(host, finished(END_NS, made))
    result = analyse_test(data)
    metrics = {name: metric.value for name, metric in result.metrics.items()}
    assert metrics["transactions"] == 200
    assert metrics["transactions_per_s"] == pytest.approx(20)
    assert metrics["latency_min_us"] == pytest.approx(1000, rel=1e-3)
    assert metrics["latency_p50_us"] == pytest.approx(3000, rel=1e-3)
    assert metrics["latency_p99_us"] == pytest.approx(3000, rel=1e-3)
    assert metrics["latency_p999_us"] == pytest.approx(9000, rel=1e-3)
    assert metrics["latency_max_us"] == pytest.approx(9000, rel=1e-3)
    assert metrics["latency_mean_us"] == pytest.approx((99 * 1000 + 9000 + 100 * 3000) / 200, rel=1e-3)
    assert [curve.metric for curve in result.percentiles] == ["latency"]
    assert result.percentiles[0].count == 200


def open_loop(**changes: Any) -> TestData:
    data = test_data("http", rate_per_s=100.0, connections=4)
    for step in range(1, 101):
        row = counters(0, step * 50, step * 500, sent_units=step * 10, received_units=step * 10)
        data.add("client1", progress(EPOCH_NS + step * S // 10, [row], side="local"))
    report = flow(0, EPOCH_NS, END_NS, sent_units=1000, received_units=1000, sent_bytes=5000, received_bytes=50_000)
    made: dict[str, Any] = {
        "receiver": None,
        "histograms": [
            histogram("latency", [300_000] * 1000),
            histogram("service", [200_000] * 1000),
            histogram("late", [100_000] * 1000),
        ],
        "errors": {"timeout": 2, "connection_reset": 0},
        "counts": {"requests_sent": 1003, "unanswered": 1},
        **changes,
    }
    data.add("client1", finished(END_NS, outcome([report], **made)))
    return data


def test_http_open_loop_has_service_and_lateness_apart_from_latency() -> None:
    result = analyse_test(open_loop())
    metrics = {name: metric.value for name, metric in result.metrics.items()}
    assert metrics["requests"] == 1000
    assert metrics["requests_per_s"] == pytest.approx(100)
    assert metrics["bytes_received"] == 50_000
    assert (metrics["requests_sent"], metrics["unanswered"], metrics["unsent"]) == (1003, 1, None)
    assert metrics["latency_p99_us"] == pytest.approx(300, rel=1e-3)
    assert metrics["service_p99_us"] == pytest.approx(200, rel=1e-3)
    assert metrics["late_p99_us"] == pytest.approx(100, rel=1e-3)
    assert result.errors == {"timeout": 2}
    assert [curve.metric for curve in result.percentiles] == ["latency", "service", "late"]
    assert result.validity.verdict == "valid"


@pytest.mark.parametrize(
    ("errors", "counts", "wanted"),
    [
        ({"timeout": 2}, {"responses": 998}, 0.002),
        ({}, {"responses": 1000, "status_2xx": 960, "status_3xx": 10, "status_4xx": 10, "status_5xx": 20}, 0.03),
        # A status that is also among the errors by name is one failure.
        ({"reset": 100, "status_5xx": 50}, {"responses": 900, "status_5xx": 50}, 0.15),
        ({}, {"responses": 1000}, 0.0),
        ({"refused": 7}, {"responses": 0}, 1.0),
        ({}, {"responses": 0}, None),
        ({"timeout": 1}, {}, None),
    ],
)
def test_error_ratio_counts_failed_requests(
    errors: dict[str, int], counts: dict[str, int], wanted: float | None
) -> None:
    assert value(open_loop(errors=errors, counts=counts), "error_ratio") == wanted


def test_http_closed_loop_has_no_lateness() -> None:
    metrics = analyse_test(steady_test("http", histograms=[histogram("latency", [1000])])).metrics
    unfed = [name for name in metrics if name.startswith(("late_", "service_"))]
    assert unfed and all(metrics[name].value is None for name in unfed)


def test_what_generating_cost() -> None:
    made = load(thread(0.5), thread(0.8), wall_s=9.5)
    result = analyse_test(steady_test("rr", generator=made, histograms=[histogram("late", [2000] * 10)]))
    assert result.generator is not None
    assert result.generator.cpu_s == pytest.approx(13.0)
    assert result.generator.wall_s == 9.5
    assert result.generator.busiest_thread == pytest.approx(0.8)
    assert result.generator.late_p99_us == pytest.approx(2.0, rel=1e-3)
    assert result.generator.cpu_ns_per_unit == pytest.approx(13.0e9 / 10_000)


def test_waiting_awake_costs_time_and_is_no_work() -> None:
    made = load(thread(0.9) | {"spun_s": 6.0}, thread(0.5) | {"spun_s": None}, wall_s=10.0)
    result = analyse_test(steady_test("rr", generator=made))
    assert result.generator is not None
    assert (result.generator.cpu_s, result.generator.spun_s) == (pytest.approx(14.0), 6.0)
    assert result.generator.busiest_thread == pytest.approx(0.5)


def test_each_interval_has_its_own_p99() -> None:
    data = test_data("rr")
    for step in range(1, 101):
        row = counters(0, step, step, sent_units=step, received_units=step)
        own = histogram("latency", [step * 1_000_000])
        data.add("client1", progress(EPOCH_NS + step * S // 10, [row], side="local", histograms=[own]))
    report = flow(0, EPOCH_NS, END_NS, sent_units=100, received_units=100)
    data.add("client1", finished(END_NS, outcome([report])))
    intervals = analyse_test(data).intervals
    assert len(intervals) == 100
    found = [interval.values["latency_p99_us"] for interval in intervals]
    assert found == pytest.approx([step * 1000.0 for step in range(1, 101)], rel=1e-3)
    assert [interval.values["latency_p50_us"] for interval in intervals] == found, "one value is median and p99"


def test_transactions_that_timed_out_raise_the_latency_and_bound_what_they_leave_open() -> None:
    made = [histogram("latency", [1_000_000] * 97), histogram("latency_censored", [50_000_000] * 3)]
    result = analyse_test(steady_test("rr", histograms=made))
    metrics = result.metrics
    said = {note.code: note.text for note in result.validity.notes}
    assert said["latency-lower-bound"].startswith("3 of 100 requests or transactions had no answer")
    assert (metrics["latency_p50_us"].value, metrics["latency_p50_us"].censored) == (
        pytest.approx(1000, rel=1e-3),
        False,
    )
    for name in ("latency_p99_us", "latency_p999_us", "latency_max_us"):
        assert (metrics[name].value, metrics[name].censored) == (pytest.approx(50_000, rel=2e-3), True), name
    assert metrics["latency_mean_us"].censored and not metrics["transactions"].censored


def test_an_intervals_p99_takes_ages_as_the_whole_does() -> None:
    data = test_data("rr")
    for step in range(1, 101):
        row = counters(0, step, step, sent_units=step, received_units=step)
        own = [histogram("latency", [1_000_000] * 10)]
        own += [histogram("latency_censored", [70_000_000])] if step == 40 else []
        data.add("client1", progress(EPOCH_NS + step * S // 10, [row], side="local", histograms=own))
    data.add("client1", finished(END_NS, outcome([flow(0, EPOCH_NS, END_NS, sent_units=100, received_units=100)])))
    intervals = analyse_test(data).intervals
    assert [interval.censored for interval in intervals].count(()) == 99
    assert (intervals[39].values["latency_p99_us"], intervals[39].censored) == (
        pytest.approx(70_000, rel=2e-3),
        ("latency_p99_us",),
    )


@pytest.mark.usefixtures("damaged_journals")
@pytest.mark.parametrize("damaged", ["latency", "latency_censored"])
def test_figures_of_a_damaged_histogram_are_unknown_and_the_result_says_so(damaged: str) -> None:
    broken = {"metric": damaged, "count": 3, "hdr_v2": "AAAA"}
    whole = [histogram("latency", [1000]), histogram("service", [1000])]
    result = analyse_test(steady_test("http", histograms=[*whole, broken]))
    assert result.metrics["service_p50_us"].value == pytest.approx(1, rel=1e-2)
    for name in ("latency_samples", "latency_censored", "latency_p50_us", "latency_max_us"):
        figure = result.metrics[name]
        assert (figure.value, figure.verdict, figure.reasons) == (None, Verdict.UNDETERMINED, ("journal-damaged",))
    (reason,) = [one for one in result.validity.reasons if one.code == "journal-damaged"]
    assert reason.text == "1 histogram of latency could not be read: these figures are unknown"
    assert "latency_p99_us" in reason.metrics and "requests_per_s" not in reason.metrics
