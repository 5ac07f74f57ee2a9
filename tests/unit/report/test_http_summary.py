"""The summary of an http test: what it says, that it fits into 80 columns, and shows no more than samples carry."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console
from sample_runs import VALID, one_result

from leadline.analysis.model import Distribution, Metric
from leadline.analysis.model import TestResult as Result
from leadline.report import measurement


def shown(result: Result, width: int = 80) -> str:
    console = Console(width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(measurement(result, verbose=True))
    return capture.get()


def counted(result: Result, count: int) -> Result:
    return replace(result, distributions=tuple(replace(one, count=count) for one in result.distributions))


def line_with(text: str, *words: str) -> str:
    found = [line for line in text.splitlines() if all(word in line for word in words)]
    assert found, f"no line with {words} in\n{text}"
    return found[0]


@pytest.mark.parametrize("count", [1, 50, 91_430, 10_000_000])
def test_no_line_is_wider_than_the_terminal_and_none_is_cut(count: int) -> None:
    text = shown(counted(one_result("http"), count))
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "…" not in text


def test_what_happened_to_the_requests_stands_in_their_order() -> None:
    text = shown(one_result("http"))
    assert "911,415 due, 911,412 sent, 911,404 answered, 8 unanswered, 3 unsent" in " ".join(text.split())
    assert line_with(text, "status").split() == ["status", "2xx", "911,374,", "5xx", "30"]
    assert "1 full, 19 resumed" in line_with(text, "connections")
    assert "engine epoll: io_uring_setup: Operation not permitted" in text
    assert line_with(text, "TLS, resumed").split()[2:5] == ["19", "1.01", "ms"]


@pytest.mark.parametrize(
    ("count", "status", "said"),
    [
        (12, "done", "20 opened, 8 of them again in the warm-up"),
        (20, "done", "20 opened, TLS"),
        (12, "failed", "20 opened, TLS"),
    ],
)
def test_connections_without_a_time_to_connect_are_explained(count: int, status: str, said: str) -> None:
    result = replace(one_result("http"), status=status)
    parts = tuple(replace(one, count=count) if one.metric == "connect" else one for one in result.distributions)
    assert "connect" in {one.metric for one in parts}
    assert said in line_with(shown(replace(result, distributions=parts)), "connections ")


def test_each_error_has_its_count_and_first_example() -> None:
    errors = {"connection_reset": 2, "connect_timeout": 40}
    result = one_result(
        "http", errors=errors, error_examples={"connect_timeout": "192.0.2.7:80 did not accept within 5 s [/bold]"}
    )
    text = " ".join(shown(result).split())
    assert "40 × connect_timeout: 192.0.2.7:80 did not accept within 5 s [/bold]" in text
    assert text.index("40 × connect_timeout") < text.index("2 × connection_reset")
    long = shown(one_result("http", errors={"x": 1}, error_examples={"x": "y" * 5000}))
    assert long.count("y") < 300


@pytest.mark.parametrize(
    ("count", "last", "said"),
    [
        (50, "p95", "50 samples are too few for p99:"),
        (100, "p99", "100 samples are too few for p99.9:"),
        (99_999, "p99.99", "99,999 samples are too few for p99.999:"),
        (100_000, "p99.999", ""),
    ],
)
def test_percentiles_go_as_far_as_the_samples(count: int, last: str, said: str) -> None:
    text = shown(counted(one_result("http"), count))
    head = line_with(text, "p50", "p75")
    assert head.split()[-1] == last
    assert said in text and ("samples are too few for" in text) == bool(said)


def test_what_was_not_measured_is_not_drawn() -> None:
    latency = one_result("http").distributions[0]
    text = shown(replace(one_result("http"), distributions=(latency,), validity=VALID))
    assert "TLS" not in text.replace("TLS handshakes", "") and "first byte" not in text
    nothing = shown(replace(one_result("http"), distributions=(), metrics={}, errors={}, generator=None))
    assert "p50" not in nothing and "–  HTTP requests" in nothing


def test_a_busy_generator_bounds_the_rates_of_its_threads() -> None:
    limited = shown(one_result("http"))
    assert "≥ 88.0 k/s" in limited and "per thread   ≥ " in limited
    believed = {name: Metric(metric.value, metric.unit) for name, metric in one_result("http").metrics.items()}
    assert "≥" not in shown(replace(one_result("http"), validity=VALID, metrics=believed))


def test_a_phase_of_few_has_no_p99() -> None:
    few = Distribution("connect", 5, 1.0, 2.0, 1.0, 0.8, 3.0, {50.0: 2.0, 99.0: 3.0})
    text = shown(replace(one_result("http"), distributions=(few,)))
    assert line_with(text, "connect ", "5 ").split() == ["connect", "5", "2.00", "µs", "2.00", "µs", "3.00", "µs"]


def test_lower_bounds_are_marked_and_explained() -> None:
    latency = Distribution(
        "latency", 90, 1.0, 5e3, 2e3, None, 9e5, {50.0: 1e3, 90.0: 2e3, 99.0: 9e5}, 10, ("max", "99")
    )
    text = shown(replace(one_result("http"), distributions=(latency,), validity=VALID))
    assert line_with(text, "latency", "≥ 900 ms") and "≥900 ms" in line_with(text, "latency", "1.00 ms")
    assert "≥: 10 requests had no answer yet and took at least their age" in text


def test_percentiles_that_were_asked_for_stand_among_the_others() -> None:
    found = {float(percentile): percentile * 10.0 for percentile in (1, 25, 50, 75, 90, 95, 99)}
    latency = Distribution("latency", 5000, 1.0, 5e3, 2e3, 0.7, 9e5, found)
    text = shown(replace(one_result("http"), distributions=(latency,)))
    assert line_with(text, "p1 ", "p25").split() == ["p1", "p25", "p50", "p75", "p90", "p95", "p99", "p99.9"]


def test_samples_that_percentiles_need_include_those_known_from_below() -> None:
    latency = Distribution("latency", 10, 9e5, 9e5, 2e3, None, 9e5, {50.0: 5e5, 99.0: 9e5}, 90, ("max", "50", "99"))
    text = shown(replace(one_result("http"), distributions=(latency,), validity=VALID))
    assert "100 samples are too few for p99.9:" in text and "10 samples carry" not in text.replace("100 samples", "")


def test_error_ratio_of_unanswered_and_unsent_requests_names_them_where_no_error_is_listed() -> None:
    quiet = one_result("http", errors={})
    metrics = quiet.metrics | {"error_ratio": Metric(0.56, "ratio"), "status_5xx": Metric(0, "count")}
    text = shown(replace(quiet, metrics=metrics))
    assert "unanswered for over 1 s, or unsent" in line_with(text, "error ratio", "56.0 %")
    assert "or unsent" not in shown(replace(quiet, metrics=metrics, errors={"timeout": 3}))
    assert "or unsent" not in shown(replace(quiet, metrics=metrics | {"error_ratio": Metric(0.0, "ratio")}))
