"""The table of what tools report beside what is true, on made figures."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from rich.console import Console

from leadline.analysis.tool_output import Reported
from leadline.analysis.truths import Figure, ToolRun, TruthsReport, TruthText, Value, compare
from leadline.cli import truths
from leadline.cli.output import plain
from leadline.report.truths import truths_blocks
from leadline.report.truths_page import report_of, truths_markdown

FIGURES = (Figure("requests", "count"), Figure("latency_p99_us", "us", tolerance=0.1), Figure("limited_by", ""))
TRUTH = TruthText("http-stall", "HTTP", "stalls", "a server", "its log", "4 connections", FIGURES)
PATH = TruthText("udp-loss", "TCP and UDP", "losses", "a wire", "its log", "a flow", (Figure("lost", "count"),))


def run(tool: str, requests: float, reported: Mapping[str, Reported]) -> ToolRun:
    true: dict[str, Value] = {"requests": requests, "latency_p99_us": 190_000.0, "limited_by": "server"}
    return ToolRun("http-stall", tool, (tool,), compare(FIGURES, true, reported))


def drawn(*runs: ToolRun, skipped: Mapping[str, str] | None = None) -> str:
    versions = {run.tool: "1" for run in runs}
    return text_of(TruthsReport((TRUTH, PATH), versions, runs, skipped or {}))


def text_of(report: TruthsReport) -> str:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    for block in truths_blocks(report):
        console.print(block)
    return console.export_text()


LEADLINE = run(
    "leadline",
    980,
    {"requests": Reported(980), "latency_p99_us": Reported(250_000, "at most"), "limited_by": Reported("server")},
)
WRK = run("wrk", 1100, {"requests": Reported(2200), "latency_p99_us": Reported(19_000)})


def test_table_has_truth_marks_and_offsets() -> None:
    text = drawn(LEADLINE, WRK)
    rows = {line.split("  ")[0].strip(): line for line in text.splitlines()}
    assert all(part in rows["p99"] for part in ("190 ms", "? ≤ 250 ms", "✗ 19.0 ms"))
    assert "-90 %" in text
    assert all(part in rows["limit"] for part in ("server", "✓ server", "–"))
    # Each tool made another number of requests, so each has its own truth.
    assert all(part in rows["answers"] for part in ("as counted", "✓ 980", "✗ 2,200 of 1,100"))
    assert "Figures that are right: leadline 2 of 3, wrk 0 of 3" in text
    assert max(map(len, text.splitlines())) <= 80
    # No tool ran against the other layer.
    assert "udp-loss" not in text


def test_tables_of_layers_have_their_own_tools() -> None:
    lost = compare(PATH.figures, {"lost": 20.0}, {"lost": Reported(0)})
    text = drawn(LEADLINE, WRK, ToolRun("udp-loss", "iperf3", (), lost))
    http, path = text.split("TCP and UDP")
    assert "iperf3" not in http
    assert "wrk" not in path.split("✓ right")[0]
    assert "✗ 0" in path
    assert "-100 %" in path


def test_true_value_that_is_far_from_the_rows_is_said_beside_a_right_one() -> None:
    figure = Figure("latency_p50_us", "us", tolerance=0.1)
    runs = [
        ToolRun("http-stall", tool, (), compare([figure], {figure.name: true}, {figure.name: Reported(true)}))
        for tool, true in (("leadline", 25_000.0), ("wrk", 20_000.0), ("ab", 20_500.0))
    ]
    truth = dataclasses.replace(TRUTH, figures=(figure,))
    text = text_of(TruthsReport((truth,), {"leadline": "1", "wrk": "1", "ab": "1"}, tuple(runs), {}))
    (row,) = [line for line in text.splitlines() if line.lstrip().startswith("p50")]
    assert "≈ 20.5 ms" in row and "✓ 25.0 ms of 25.0 ms" in row and "✓ 20.0 ms  " in row


def test_many_tools_have_tables_of_four() -> None:
    runs = [run(f"tool{number}", 4, {"requests": Reported(4)}) for number in range(6)]
    text = drawn(*runs)
    heads = [line.split() for line in text.splitlines() if line.lstrip().startswith("true")]
    assert heads == [["true", "tool0", "tool1", "tool2", "tool3"], ["true", "tool4", "tool5"]]


def test_failures_and_what_is_missing_are_named() -> None:
    text = drawn(
        LEADLINE,
        ToolRun("http-stall", "ab", (), (), error="ab did not end within 42 s"),
        ToolRun("http-stall", "h2load", (), (), undecided="it takes two CPUs"),
        skipped={"udp-loss": "not possible here: no namespaces"},
    )
    assert "http-stall: ab failed: ab did not end within 42 s" in text
    assert "http-stall: not decided for h2load: it takes two CPUs" in text
    assert "udp-loss: not possible here: no namespaces" in text
    assert "ab 0 of 0 (1 failure)" in text


def test_times_of_the_true_value_are_said_as_such() -> None:
    text = drawn(run("h2load", 4, {"requests": Reported(804)}))
    assert "201 times" in text


def test_page_is_drawn_from_the_document() -> None:
    lost = ToolRun("udp-loss", "iperf3", ("iperf3", "-u"), compare(PATH.figures, {"lost": 20.0}, {"lost": Reported(0)}))
    report = TruthsReport((TRUTH, PATH), {"leadline": "0.1.0", "wrk": "4.1", "iperf3": None}, (LEADLINE, WRK, lost), {})
    document = json.loads(json.dumps(truths.document(report), default=plain))
    text = truths_markdown(report_of(document))
    assert "| leadline | 0.1.0 | 2 of 3 | 0 | 1 | 0 |" in text
    assert "| iperf3 | – | 0 of 1 | 1 | 0 | 0 |" in text
    assert "| `http-stall` | answers | as counted | ✓ 980 | ✗ 2,200 of 1,100 (+100 %) |" in text
    assert "|  | p99 | 190 ms | ? ≤ 250 ms | ✗ 19.0 ms (-90 %) |" in text
    assert "|  | limit | server | ✓ server | – |" in text
    assert "| `udp-loss` | lost | 20 | ✗ 0 (-100 %) |" in text
    assert "**`udp-loss`: losses.** Made: a wire. Known by: its log. Load: a flow." in text
