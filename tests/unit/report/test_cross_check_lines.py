"""Cross-checks in the terminal and in the page."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console
from sample_runs import gateway_run

from leadline.analysis.cross_check_model import Agreement, CrossCheck, Ratio
from leadline.analysis.model import RunAnalysis
from leadline.report import render_html, run_renderables
from leadline.statistics import Comparison

AGREE = CrossCheck(
    *("c01", "tcp-up", "iperf3", ("3.12",), "throughput_bps", "bit/s", 3),
    own=(100e6, 99e6, 101e6),
    other=(101e6, 100e6, 102e6),
    ratio=Ratio(1.01, 0.99, 1.03, Comparison.EQUIVALENT),
    agreement=Agreement.AGREE,
    margin=0.05,
)
UNKNOWN = replace(
    AGREE,
    case="c02",
    other=(None, None, None),
    ratio=Ratio(None, None, None, Comparison.CANNOT_TELL, "iperf3 is not installed or not executable"),
    agreement=Agreement.CANNOT_TELL,
)


def crossed_run() -> RunAnalysis:
    return replace(gateway_run(), cross_checks=(AGREE, UNKNOWN))


def terminal(run: RunAnalysis, width: int) -> str:
    console = Console(width=width, record=True, file=StringIO())
    for part in run_renderables(run):
        console.print(part)
    return console.export_text()


def test_terminal_has_a_line_for_each_test_with_a_second_tool() -> None:
    assert all(len(line) <= 80 for line in terminal(crossed_run(), 80).splitlines())
    text = terminal(crossed_run(), 140)
    line = "c01 tcp-up  agree: iperf3 3.12 101 Mbit/s ±0.990 %, Leadline 100 Mbit/s ±1.00 %; ratio 1.01 (0.990 to 1.03)"
    assert line in text
    assert "c02 tcp-up  cannot tell: iperf3 3.12 –, Leadline 100 Mbit/s" in text
    assert "iperf3 is not installed" in text


def test_page_has_a_row_for_each_test_with_a_second_tool() -> None:
    page = render_html(crossed_run())
    assert 'href="#cross-check"' in page
    assert "0.990 to 1.03" in page
    assert "iperf3 is not installed" in page


def test_run_without_a_second_tool_has_no_section() -> None:
    assert "Cross-check" not in terminal(gateway_run(), 140)
    assert 'id="cross-check"' not in render_html(gateway_run())
