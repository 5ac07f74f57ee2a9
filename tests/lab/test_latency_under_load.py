"""Latency under load over the link emulator: a deep queue shows bufferbloat, a shallow one has no room for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest

from report_page import packed_cases

pytestmark = [
    pytest.mark.lab,
    # A sender that waits for its CPU fills no queue.
    pytest.mark.exclusive,
    pytest.mark.takes(15),
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
]
EXAMPLE = cli.ROOT / "examples" / "bufferbloat.yaml"
RATE_BPS, SHALLOW = 20e6, 10_000


def test_deep_queue_of_the_example_is_bufferbloat_and_a_shallow_one_is_not(tmp_path: Path) -> None:
    run = cli.run(EXAMPLE, tmp_path, "--set", "tests.bloat.duration=2400ms", "--set", "tests.bloat.warmup=300ms")
    assert run.code == 0, run.err
    deep, shallow = run.figures("bloat", "c01"), run.figures("bloat", "c02")
    for figures in (deep, shallow):
        # There and back over the emulated delay.
        assert (figures["latency_idle_p50_us"] or 0.0) >= 10_000
        assert 0 < (figures["bulk_up_bps"] or 0.0) <= 1.02 * RATE_BPS
        assert 0 < (figures["bulk_down_bps"] or 0.0) <= 1.02 * RATE_BPS
    # Of the 400 ms that the deep queue holds, TCP fills a part in this time; a full shallow one takes 4 ms each way.
    assert (deep["latency_increase_us"] or 0.0) > 2 * (shallow["latency_increase_us"] or 0.0)
    assert (deep["latency_increase_us"] or 0.0) > 1e6 * 8 * SHALLOW / RATE_BPS
    assert deep["increase_up_p50_us"] == pytest.approx(
        (deep["latency_up_p50_us"] or 0.0) - (deep["latency_idle_p50_us"] or 0.0)
    )
    # The page draws a line of latency for each phase.
    plots = {plot["title"]: plot for plot in case_plots((run.folder / "report.html").read_text())}
    assert {line["name"] for line in plots["Latency"]["lines"]} >= {"up", "down", "both"}
    assert {line["name"] for line in plots["Throughput"]["lines"]} >= {"throughput up", "throughput down"}


def case_plots(page: str) -> list[dict[str, Any]]:
    """The plots over time of the first case's test."""
    [case, *_] = (json.loads(text) for text in packed_cases(page))
    plots: list[dict[str, Any]] = case["trials"][0][0]["plots"]
    return plots
