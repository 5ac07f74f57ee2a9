"""A test in one line: each kind's figures, both directions, and the bound of a busy generator."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from leadline.analysis.model import Interval, Metric, Reason, TestResult, Verdict
from leadline.analysis.scope import judge_figures
from leadline.report import interval_line, measurement, test_headline

test_headline.__test__ = False  # type: ignore[attr-defined]  # pytest must not collect this function
BOTH = {
    "throughput_bps": Metric(3.58e9, "bit/s"),
    "throughput_up_bps": Metric(1.83e9, "bit/s"),
    "throughput_down_bps": Metric(1.75e9, "bit/s"),
}


def result(kind: str, metrics: dict[str, Metric], verdict: Verdict = Verdict.VALID) -> TestResult:
    against = [] if verdict is Verdict.VALID else [(verdict, Reason("thread-saturated", "it was busy"))]
    judged = judge_figures(metrics, against, (), primary="throughput_bps", decisive=(), delivered=None)
    return TestResult("c01", 1, "t", kind, {}, "done", None, judged.metrics, judged.validity, None, None, {})


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (result("tcp", BOTH), "t  3.58 Gbit/s  up 1.83 Gbit/s, down 1.75 Gbit/s  ✓ valid"),
        (
            result("tcp", BOTH, Verdict.GENERATOR_LIMITED),
            "t  ≥ 3.58 Gbit/s  up ≥ 1.83 Gbit/s, down ≥ 1.75 Gbit/s  ≥ generator-limited",
        ),
        (
            result(
                "udp",
                {
                    "throughput_bps": Metric(98e6, "bit/s"),
                    "lost_ratio": Metric(0.178, "ratio"),
                    "jitter_us": Metric(4.0, "us"),
                },
            ),
            "t  98.0 Mbit/s  lost 17.8 %, jitter 4.00 µs  ✓ valid",
        ),
        (
            result("rr", {"transactions_per_s": Metric(6340.0, "1/s"), "latency_p99_us": Metric(None, "us")}),
            "t  6.34 k/s  p99 –  ✓ valid",
        ),
    ],
)
def test_line_of_a_test(found: TestResult, line: str) -> None:
    assert test_headline(found).plain == line


def test_summary_of_a_bidirectional_test_leads_with_the_sum_and_both_directions() -> None:
    console = Console(width=100, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(measurement(result("udp", BOTH), verbose=True))
    lines = capture.get().splitlines()
    headline = "3.58 Gbit/s  UDP throughput and loss (up 1.83 Gbit/s, down 1.75 Gbit/s)"
    assert headline in [line.rstrip() for line in lines]
    assert not any("throughput up" in line for line in lines)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {"throughput_bps": 960e6, "retransmits": 3.0, "rtt_mean_us": 1330.0},
            "  3.0-4.0 s  960 Mbit/s  retransmits 3, RTT 1.33 ms",
        ),
        (
            {"throughput_bps": 98e6, "packets_per_s": 8750.0, "lost": 17.0, "lost_ratio": 0.002},
            "  3.0-4.0 s  98.0 Mbit/s  8.75 k/s  lost 17 (0.200 %)",
        ),
        (
            {"throughput_bps": 3e9, "throughput_up_bps": 1e9, "throughput_down_bps": 2e9},
            "  3.0-4.0 s  3.00 Gbit/s  up 1.00 Gbit/s, down 2.00 Gbit/s",
        ),
        (
            {"requests_per_s": 88e3, "throughput_bps": 11.4e6, "latency_p50_us": 92.0, "latency_p99_us": None},
            "  3.0-4.0 s  88.0 k/s  11.4 Mbit/s  p50 92.0 µs, p99 –",
        ),
    ],
)
def test_line_of_an_interval(values: dict[str, float | None], line: str) -> None:
    assert interval_line(Interval(3.0, 4.0, values, True)) == line


def test_latency_that_is_a_lower_bound_reads_so() -> None:
    stalled = Interval(3.0, 4.0, {"latency_p50_us": 92.0, "latency_p99_us": 8e5}, True, ("latency_p99_us",))
    assert interval_line(stalled) == "  3.0-4.0 s  p50 92.0 µs, p99 ≥ 800 ms"
