"""Tables at 80 columns with names of 40 characters: numbers, verdicts and words are whole, names go on below."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console, RenderableType
from sample_runs import gateway_run
from sample_trends import compared, regressed

from leadline.analysis.cross_check_model import Ratio
from leadline.analysis.model import Limit, LimitedBy, RunAnalysis, Validity, Verdict
from leadline.report import run_renderables, run_summary
from leadline.report.comparisons import comparison_blocks
from leadline.report.ladders import ladder_blocks
from leadline.report.names import name_lines, shortened
from leadline.report.text import figures_table
from leadline.report.trends import trend_blocks
from leadline.statistics import Comparison
from made_ladders import PLAIN, TUNNEL, ladders

LONG = "-upload-of-many-large-files-at-night"
SLOWER = Ratio(0.213, 0.187, 0.243, Comparison.SLOWER)


def drawn(*blocks: object, width: int = 80) -> str:
    out = StringIO()
    Console(file=out, width=width, color_system=None, highlight=False).print(*blocks, sep="\n")
    return out.getvalue()


def renamed(analysis: RunAnalysis) -> RunAnalysis:
    """The run with long names of its tests."""
    trials = [
        replace(trial, tests=tuple(replace(test, test=test.test + LONG) for test in trial.tests))
        for trial in analysis.trials
    ]
    summaries = tuple(replace(one, test=one.test + LONG) for one in analysis.summaries)
    targets = tuple(replace(one, target=one.target.replace(".", f"{LONG}.", 1)) for one in analysis.targets)
    return replace(analysis, trials=tuple(trials), summaries=summaries, targets=targets)


def with_limits(analysis: RunAnalysis, verdict: Verdict, by: LimitedBy) -> RunAnalysis:
    limit, validity = Limit(by, "made"), Validity(verdict)
    return replace(
        analysis, summaries=tuple(replace(one, limit=limit, validity=validity) for one in analysis.summaries)
    )


@pytest.mark.parametrize("renderables", [run_renderables, run_summary])
def test_tables_of_a_run_cut_nothing(renderables: Callable[[RunAnalysis], Sequence[RenderableType]]) -> None:
    text = drawn(*renderables(renamed(gateway_run())))
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize(
    ("verdict", "by"),
    [
        (Verdict.UNDETERMINED, LimitedBy.ANSWERING_SIDE),
        (Verdict.DISTURBED, LimitedBy.GATEWAY),
        (Verdict.GENERATOR_LIMITED, LimitedBy.GENERATOR),
        (Verdict.VALID, LimitedBy.OFFERED_RATE),
    ],
)
def test_verdict_of_each_test_is_whole(verdict: Verdict, by: LimitedBy, width: int) -> None:
    run = renamed(with_limits(gateway_run(), verdict, by))
    text = drawn(figures_table(run), width=width)
    word = "" if verdict is Verdict.GENERATOR_LIMITED else "offered" if by is LimitedBy.OFFERED_RATE else by.value
    whole = f"{verdict.value}, {word}" if word else verdict.value
    assert text.count(whole) >= sum(not one.failed for one in run.summaries)
    assert len(re.findall(rf"{verdict.value}, \d of \d failed", text)) == sum(bool(one.failed) for one in run.summaries)
    assert "…" not in text and max(map(len, text.splitlines())) <= width
    for summary in run.summaries:
        assert summary.test in re.sub(r"\s", "", text) or all(part in text for part in summary.test.split("-"))


def test_ratios_to_a_baseline_cut_nothing() -> None:
    run = renamed(gateway_run())
    ratios = {"throughput_bps": SLOWER, "latency_p99_us": SLOWER}
    run = replace(run, baselines={"c02": "c01"}, summaries=tuple(replace(one, ratios=ratios) for one in run.summaries))
    text = drawn(*run_renderables(run))
    assert "…" not in text and text.count("▼ slower") == 2 * len(run.summaries)


def test_comparison_and_trend_cut_nothing() -> None:
    pair = compared()
    figures = tuple(
        replace(one, test=one.test + LONG, metric=f"server_{one.metric}_per_client") for one in pair.figures
    )
    text = drawn(*comparison_blocks([replace(pair, figures=figures)]))
    assert "…" not in text and "? cannot tell" in text and max(map(len, text.splitlines())) <= 80
    wide = tuple(replace(one, low=1234.5, high=12345.6) for one in figures)
    for width in (80, 100):
        text = drawn(*comparison_blocks([replace(pair, figures=wide)]), width=width)
        assert text.count("1234.500 to 12345.600 ") == 3 and max(map(len, text.splitlines())) <= width
        assert all(word in text for word in ("▼ slower", "= equivalent", "? cannot tell"))
    text = drawn(*comparison_blocks([replace(pair, figures=wide)]), width=60)
    assert max(map(len, text.splitlines())) <= 60 and "1234.500" not in text
    assert all(word in text for word in ("▼ slower", "= equivalent", "? cannot tell"))
    trend = regressed()
    histories = tuple(replace(one, test=one.test + LONG) for one in trend.histories)
    text = drawn(*trend_blocks(replace(trend, histories=histories)))
    assert "…" not in text and "▼ -10.0 % (2026-01-15)" in text and max(map(len, text.splitlines())) <= 80


def test_ladder_of_a_server_with_a_long_name_shortens_the_name_alone() -> None:
    found = ladders({"c01": TUNNEL, "c02": PLAIN})
    whole = drawn(*ladder_blocks([found["c01"], found["c02"]]))
    named = replace(found["c01"], sut="gateway-3.measured.example.org")
    text = drawn(*ladder_blocks([named, found["c02"]]))
    assert max(map(len, text.splitlines())) <= 80
    assert "gatewa…e.org" in text
    last = re.compile(r"(?:valid|limited|generator|gateway|link|offered rate|disturbed)$", re.MULTILINE)
    assert last.findall(text) == last.findall(whole)


def test_names_break_after_separators_and_are_never_longer_than_the_line() -> None:
    assert name_lines("upload-of-many-files", 12) == ["upload-of-", "many-files"]
    assert name_lines("short", 12) == ["short"]
    assert name_lines("x" * 25 + "-y", 10) == ["x" * 10, "x" * 10, "xxxxx-y"]
    assert shortened("gateway-3.measured.example.org", 12) == "gatewa…e.org" and shortened("route", 12) == "route"
