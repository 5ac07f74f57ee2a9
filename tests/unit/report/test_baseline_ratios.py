"""Ratios to the plan's baseline in the terminal's tables and in the page."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console
from sample_runs import gateway_run

from leadline.analysis.cross_check_model import Ratio
from leadline.analysis.model import RunAnalysis
from leadline.report import render_html, run_renderables
from leadline.statistics import Comparison

SLOWER = Ratio(0.105, 0.101, 0.109, Comparison.SLOWER)
UNKNOWN = Ratio(0.4, None, None, Comparison.CANNOT_TELL, "2 repeats are too few: 3 of each are needed")


def compared_run() -> RunAnalysis:
    run = gateway_run()
    summaries = tuple(
        replace(one, baseline="c01", ratios={"throughput_bps": SLOWER, "retransmits": UNKNOWN})
        if one.case == "c02" and one.test == "tcp-up"
        else one
        for one in run.summaries
    )
    return replace(run, summaries=summaries, baselines={"c02": "c01", "c03": "c01"})


def terminal(run: RunAnalysis, width: int) -> str:
    console = Console(width=width, record=True, file=StringIO())
    for part in run_renderables(run):
        console.print(part)
    return console.export_text()


def test_terminal_has_the_ratio_in_the_figures_and_a_table_of_all() -> None:
    for width in (80, 140):
        text = terminal(compared_run(), width)
        assert all(len(line) <= width for line in text.splitlines())
        # Where the figures have no room for it, the table of all has it.
        assert ("0.105 ▼" in text) == (width > 80)
        assert "0.105" in text
        assert "0.101 to 0.109  ▼ slower" in text
        assert "2 repeats are too few: 3 of each are needed: c02 tcp-up retransmits" in text


def test_run_without_a_baseline_has_no_ratio() -> None:
    assert "Compared with the baseline" not in terminal(gateway_run(), 140)
    assert ">Ratio<" not in render_html(gateway_run())


def test_page_has_the_ratio_with_its_interval_and_word() -> None:
    page = render_html(compared_run())
    assert "0.105" in page
    assert "0.101 to 0.109<br>slower" in page


def test_ratio_that_is_not_known_is_a_note_and_no_row() -> None:
    nothing = Ratio(None, None, None, Comparison.CANNOT_TELL, "no repeat is left that can be compared")
    run = compared_run()
    summaries = tuple(replace(one, ratios=dict.fromkeys(one.ratios, nothing)) for one in run.summaries)
    text = terminal(replace(run, summaries=summaries), 80)
    title = text.splitlines().index("Compared with the baseline  c01")
    said = "no repeat is left that can be compared: c02 tcp-up throughput_bps, c02 tcp-up"
    assert text.splitlines()[title + 1].strip() == said
