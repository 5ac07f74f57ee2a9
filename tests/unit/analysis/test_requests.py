"""The figures of http tests: fates, phases, spread and threads, and nulls where nothing is known."""

# Figures are compared with pytest.approx within tuples.
# mypy: disable-error-code=comparison-overlap
from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import pytest
from made_journals import (
    EPOCH_NS,
    MS,
    S,
    counters,
    finished,
    flow,
    histogram,
    load,
    outcome,
    progress,
    steady_test,
    test_data,
    thread,
)

from leadline.analysis import TestData, analyse_test
from leadline.analysis.searches import SEARCHED
from leadline.plan.kinds import metrics_of

END_NS = EPOCH_NS + 10 * S
PHASES = ("dns", "connect", "tls_full", "tls_resumed", "first_byte", "transfer")


def values(data: TestData) -> dict[str, float | None]:
    return {name: metric.value for name, metric in analyse_test(data).metrics.items()}


def test_every_figure_of_a_target_is_there_and_unknown_ones_are_null() -> None:
    found = values(steady_test("http"))
    assert set(metrics_of("http")) - SEARCHED == set(found)
    assert found["requests"] == 10_000
    known = {"requests", "requests_per_s", "bytes_sent", "bytes_received", "transfer_bps"}
    counted = {"latency_samples", "latency_censored"}
    assert {name for name, value in found.items() if value is not None} == known | counted
    assert all(found[name] == 0 for name in counted), "a count of nothing is a known nothing"


def test_units_follow_from_the_names() -> None:
    for name, metric in analyse_test(steady_test("http")).metrics.items():
        endings = {"_per_s": "1/s", "_bps": "bit/s", "_us": "us", "_ratio": "ratio", "bytes": "bytes"}
        expected = next((unit for ending, unit in endings.items() if name.endswith(ending)), None)
        if name.startswith("bytes_"):
            expected = "bytes"
        assert metric.unit == (expected or "count"), name


def test_fates_and_connections_are_the_engines_counts() -> None:
    counts = {
        "requests_due": 10_012,
        "requests_sent": 10_005,
        "responses": 10_000,
        "unanswered": 5,
        "unanswered_over_1s": 0,
        "unsent": 7,
        "status_2xx": 9_900,
        "status_5xx": 100,
        "tls_full": 2,
        "tls_resumed": 8,
        "connections_opened": 10,
        "redirects": 3,
        "body_bytes": 120_000,
    }
    found = values(over(10, "http", **counts))
    for name in ("requests_due", "requests_sent", "unanswered", "unsent", "redirects", "connections_opened"):
        assert found[name] == counts[name]
    assert (found["handshakes_full"], found["handshakes_resumed"], found["body_bytes"]) == (2, 8, 120_000)
    assert [found[f"status_{digit}xx"] for digit in range(1, 6)] == [0, 9_900, 0, 0, 100]
    assert found["error_ratio"] == pytest.approx(100 / 10_012)


def test_what_waits_long_at_the_end_failed_and_what_is_under_way_did_not() -> None:
    under_way = {"responses": 990, "unanswered": 10, "unanswered_over_1s": 0, "unsent": 0}
    assert values(steady_test("http", counts=under_way))["error_ratio"] == 0
    silent = under_way | {"unanswered_over_1s": 10}
    assert values(steady_test("http", counts=silent))["error_ratio"] == 0.01


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        ({"status_5xx": 9_998}, "9998 of 10000 answers have a status of 400 or above: rate and latency are theirs too"),
        (
            {"status_4xx": 60, "status_5xx": 60},
            "120 of 10000 answers have a status of 400 or above: rate and latency are theirs too",
        ),
        ({"status_4xx": 100}, None),
        ({"status_3xx": 10_000}, None),
    ],
)
def test_answers_that_refuse_are_noted_from_one_in_a_hundred_on(refused: dict[str, int], text: str | None) -> None:
    notes = analyse_test(over(10, "http", responses=10_000, **refused)).validity.notes
    assert [note.text for note in notes if note.code == "answers-refuse"] == ([] if text is None else [text])


@pytest.mark.parametrize(
    ("counts", "is_noted"),
    [
        ({"connections_opened": 10_000}, True),
        ({"connections_opened": 5_010}, True),
        ({"connections_opened": 5_009}, False),
        ({"connections_opened": 10}, False),
        # A request that is cut off ends its connection.
        ({"connections_opened": 10_000, "cut_off": 6_000}, False),
    ],
)
def test_server_that_keeps_no_connection_is_noted(counts: dict[str, int], is_noted: bool) -> None:
    data = over(10, "http", responses=10_000, **counts)
    texts = [note.text for note in analyse_test(data).validity.notes if note.code == "connection-per-request"]
    assert bool(texts) is is_noted
    if is_noted:
        assert texts[0].startswith(f"{counts['connections_opened']:,} connections were opened for 10,000 answers: ")
    asked = {"name": "t", "kind": "http", "duration_ms": 10_000, "connections": 10}
    for changes in ({"requests_per_connection": 1}, {"keep_alive": False}):
        data.spec = type(data.spec).read(asked | changes)
        assert "connection-per-request" not in {note.code for note in analyse_test(data).validity.notes}


def test_requests_that_were_cut_off_are_counted_and_noted() -> None:
    found = analyse_test(over(10, responses=100, requests_due=100, requests_sent=60, cut_off=40))
    assert (found.metrics["cut_off"].value, found.metrics["requests_sent"].value) == (40, 60)
    [note] = (note for note in found.validity.notes if note.code == "requests-cut-off")
    assert note.text.startswith(
        "40 of 100 requests were cut off: the server answered, or closed the connection, before"
    )
    whole = analyse_test(over(10, responses=100, requests_due=100, requests_sent=100))
    assert whole.metrics["cut_off"].value == 0
    assert "requests-cut-off" not in {note.code for note in whole.validity.notes}


def over(connections: int, scheme: str = "http", **counts: int) -> TestData:
    """A steady test over this number of connections."""
    data = steady_test("http", counts=counts)
    spec = {"name": "t", "kind": "http", "duration_ms": 10_000, "connections": connections, "scheme": scheme}
    data.spec = type(data.spec).read(spec)
    return data


def test_requests_that_were_never_sent_failed_beyond_what_any_end_leaves() -> None:
    standing_still = over(10, responses=0, unanswered=10, unanswered_over_1s=10, unsent=990)
    assert values(standing_still)["error_ratio"] == pytest.approx((10 + 980) / 1000)
    assert values(over(10, responses=990, unsent=10))["error_ratio"] == 0, "one for each connection may be just due"
    assert values(over(10, responses=989, unsent=11))["error_ratio"] == pytest.approx(1 / 1000)
    assert values(over(1, responses=997, unsent=3))["error_ratio"] == 0, "nor do a few say anything"
    both = over(10, responses=980, unsent=20)
    both.hosts = ("client1", "client2")
    assert values(both)["error_ratio"] == 0, "each client has as many connections"


def test_counts_that_agents_leave_out_where_nothing_happened_are_a_known_nothing() -> None:
    names = ("redirects", "handshakes_full", "handshakes_resumed")
    plain, tls = values(over(1, responses=10)), values(over(1, "https", responses=10))
    assert [plain[name] for name in names] == [0, None, None]
    assert [tls[name] for name in names] == [0, 0, 0]
    assert [values(over(1, "https"))[name] for name in names] == [None, None, None], "nothing was counted at all"


def test_each_histogram_gives_its_own_figures() -> None:
    named = {name: (index + 1) * 100_000 for index, name in enumerate((*PHASES, "service", "late", "kernel_wait"))}
    made = [histogram(name, [value]) for name, value in named.items()]
    found = values(steady_test("http", histograms=made))
    for phase in PHASES:
        for statistic in ("mean", "p50", "p99", "max"):
            assert found[f"{phase}_{statistic}_us"] == pytest.approx(named[phase] / 1000, rel=1e-3), phase
    assert found["service_p99999_us"] == pytest.approx(700, rel=1e-3)
    assert found["late_max_us"] == pytest.approx(800, rel=1e-3)
    assert found["kernel_wait_p99_us"] == pytest.approx(900, rel=1e-3)
    assert found["latency_p50_us"] is None


def test_the_latencys_spread_is_that_of_its_values() -> None:
    given = [step * 10_000 for step in range(1, 101)]
    result = analyse_test(steady_test("http", histograms=[histogram("latency", given)]))
    found = {name: metric.value for name, metric in result.metrics.items()}
    wanted_us = statistics.pstdev(given) / 1000
    mean_us = statistics.fmean(given) / 1000
    assert found["latency_stdev_us"] == pytest.approx(wanted_us, rel=1e-3)
    assert found["latency_samples"] == 100
    within = sum(abs(value / 1000 - mean_us) <= wanted_us for value in given) / 100
    assert found["latency_within_stdev_ratio"] == pytest.approx(within, abs=0.02)
    for name, rank in (("p50", 50), ("p75", 75), ("p90", 90), ("p95", 95), ("p99", 99), ("p99999", 100)):
        assert found[f"latency_{name}_us"] == pytest.approx(rank * 10, rel=1e-3), name
    latency = result.distribution("latency")
    assert latency is not None
    assert latency.supports(99.0) and not latency.supports(99.9)


def test_threads_rates_are_taken_between_readings() -> None:
    data = test_data("http")
    totals = [0, 0]
    # One thread answers 100 and 300 requests in turns, the other 200 in each interval of 100 ms.
    for step in range(1, 101):
        totals[0] += 100 if step % 2 else 300
        totals[1] += 200
        rows = [counters(number, 0, 0, sent_units=total, received_units=total) for number, total in enumerate(totals)]
        data.add("client1", progress(EPOCH_NS + step * 100 * MS, rows, side="local"))
    reports = [
        flow(number, EPOCH_NS, END_NS, sent_units=total, received_units=total) for number, total in enumerate(totals)
    ]
    data.add("client1", finished(END_NS, outcome(reports)))
    rates = analyse_test(data).distribution("thread_rate")
    assert rates is not None
    assert rates.count == 198
    assert (rates.min, rates.max) == (1000, 3000)
    assert rates.mean == pytest.approx(2000, rel=0.01)
    assert rates.within_stdev == pytest.approx(0.5, abs=0.01), "the even thread is within, the other is not"


def test_a_load_that_was_cut_off_tells_how_it_stood() -> None:
    data = test_data("http")
    for step in range(1, 31):
        row = counters(0, step, step * 160, sent_units=step, received_units=step)
        event = progress(EPOCH_NS + step * 100 * MS, [row], side="local")
        if step % 10 == 0:
            standing = {"counts": {"requests_due": step, "status_2xx": step}, "errors": {"timeout": step // 10}}
            event["standing"] = {**standing, "threads": [thread()]}
        data.add("client1", event)
    data.status = "interrupted"
    result = analyse_test(data)
    assert result.errors == {"timeout": 3}
    assert result.metrics["requests_due"].value == 30
    assert result.metrics["status_2xx"].value == 30
    assert result.metrics["requests"].value == 30


def test_a_standing_counts_no_more_once_the_figures_are_whole() -> None:
    data = steady_test("http", errors={"timeout": 5})
    event = progress(EPOCH_NS + S, [], side="local")
    event["standing"] = {"counts": {}, "errors": {"timeout": 2}, "threads": []}
    data.add("client1", event)
    assert analyse_test(data).errors == {"timeout": 5}


def test_examples_of_errors_and_the_engine_are_kept() -> None:
    made: dict[str, Any] = {
        "errors": {"connection_refused": 3},
        "error_examples": {"connection_refused": "127.0.0.1:80 refused"},
        "generator": load(thread(), engine="epoll", engine_reason="io_uring_setup: Operation not permitted"),
    }
    result = analyse_test(steady_test("http", **made))
    assert result.error_examples == {"connection_refused": "127.0.0.1:80 refused"}
    assert result.generator is not None
    assert result.generator.engine == "epoll"
    assert result.generator.engine_reason == "io_uring_setup: Operation not permitted"


def test_ages_are_no_latencies() -> None:
    made = [histogram("latency", [900 * MS] * 20), histogram("latency_censored", [100 * MS] * 20)]
    made += [histogram("service", [900 * MS] * 20), histogram("service_censored", [90 * MS] * 20)]
    result = analyse_test(steady_test("http", histograms=made))
    for name in ("min", "p50", "mean", "p99", "max"):
        for family in ("latency", "service"):
            metric = result.metrics[f"{family}_{name}_us"]
            assert (metric.value, metric.censored) == (pytest.approx(900_000, rel=2e-3), False), (family, name)
    assert (result.metrics["latency_samples"].value, result.metrics["latency_censored"].value) == (20, 20)
    drawn = result.distribution("latency")
    assert drawn is not None and (drawn.count, drawn.censored, drawn.bounds) == (20, 20, ())


@pytest.mark.parametrize(("unsent", "rate_per_s", "is_open"), [(4, 100.0, False), (5, 100.0, True), (5, None, False)])
def test_a_backlog_leaves_bounds_where_others_leave_estimates(
    unsent: int, rate_per_s: float | None, is_open: bool
) -> None:
    # More than one request for each connection that was never sent; without a rate there is no schedule to fall behind.
    made = [histogram("latency", [10 * MS] * 50), histogram("latency_censored", [2 * MS] * 50)]
    data = test_data("http", rate_per_s=rate_per_s, connections=4)
    report = flow(0, EPOCH_NS, END_NS, sent_units=100, received_units=50)
    data.add("client1", finished(END_NS, outcome([report], histograms=made, counts={"unsent": unsent})))
    median, least = (analyse_test(data).metrics[f"latency_{name}_us"] for name in ("p50", "min"))
    assert (median.value, median.censored) == (pytest.approx(2_000 if is_open else 10_000, rel=2e-3), is_open)
    assert (least.value, least.censored) == (pytest.approx(10_000, rel=2e-3), False)


def test_percentiles_that_were_asked_for_are_there_by_their_names() -> None:
    data = steady_test("http", histograms=[histogram("latency", [step * MS for step in range(1, 101)])])
    asked = ("latency_p10_us", "service_p25_us", "latency_p0_us", "requests", "nothing_p10_us", "latency_p10_ms")
    found = analyse_test(replace(data, asked=asked)).metrics
    assert found["latency_p10_us"].value == pytest.approx(10_000, rel=2e-3)
    assert found["service_p25_us"].value is None
    assert set(found) - set(metrics_of("http")) == {"latency_p10_us", "service_p25_us"}
    listed = analyse_test(replace(data, spec=replace(data.spec, asked=("latency_p995_us",)))).metrics
    assert listed["latency_p995_us"].value == pytest.approx(100_000, rel=2e-3)
