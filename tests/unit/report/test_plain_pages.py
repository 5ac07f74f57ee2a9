"""Pages of trends and comparisons, and the same on the terminal: what they say, and that no text becomes markup."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO

import pytest
from rich.console import Console
from sample_trends import compared, regressed, stopped

from leadline.analysis.trend import trend_of
from leadline.report import comparison_blocks, render_comparison, render_trend, trend_blocks
from leadline.report.history_plot import history_plot
from leadline.report.trends import answer as answer_of


class Words(HTMLParser):
    """The text of a page, and the names of its elements."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.text = ""
        self.elements: list[str] = []
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.elements.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def lines(*blocks: object) -> list[str]:
    out = StringIO()
    Console(file=out, width=80).print(*blocks, sep="\n")
    return out.getvalue().splitlines()


def test_page_of_a_trend_says_where_and_by_how_much() -> None:
    page = Words(render_trend(regressed()))
    assert "1 regression in the newest 10 runs (22 runs, 1 of 2 histories judged)." in page.text
    assert "-10.0 %: 943 Mbit/s -> 849 Mbit/s" in page.text
    assert "near 20260101T020000Z-nightly-000014 (2026-01-15), 6 runs since, new; Leadline: 0.1.0 -> 0.2.0" in page.text
    assert "from 20260101T020000Z-nightly-000020 on (tcp-up): kernel: 6.18 -> 6.19" in page.text
    assert "2 of 2 runs are valid: 10 are needed" in page.text
    assert page.elements.count("svg") == 2 and "script" not in page.elements


def test_terminal_shows_the_same_within_80_columns() -> None:
    shown = lines(*trend_blocks(regressed()))
    assert shown[0] == "1 regression in the newest 10 runs (22 runs, 1 of 2 histories judged)."
    assert all(len(line) <= 80 for line in shown)
    joined = " ".join(" ".join(shown).split())
    assert "▼ regression tcp-up sut=openvpn throughput_bps -10.0 %: 943 Mbit/s -> 849 Mbit/s" in joined


@pytest.mark.parametrize(
    ("newest", "answer"),
    [
        (3, "1 figure has no value to judge in the newest 3 runs; 1 regression before (23 runs, 1 of 1 history"),
        (5, "No regression in the newest 5 runs; 1 regression before (23 runs, 1 of 1 history"),
    ],
)
def test_figure_that_the_newest_runs_lack_is_named(newest: int, answer: str) -> None:
    trend = stopped(newest)
    place = "no value to judge in the newest 3 runs, the last one is of 20260101T020000Z-nightly-000019 (2026-01-20)"
    shown = lines(*trend_blocks(trend))
    assert all(len(line) <= 80 for line in shown)
    for text in (" ".join(" ".join(shown).split()), Words(render_trend(trend)).text):
        assert answer in text and text.count(f"tcp-up sut=openvpn throughput_bps: {place}") == 1


def test_claim_of_no_regression_is_made_of_other_figures_alone() -> None:
    trend = stopped(3)
    other = replace(trend.histories[0], metric="rtt_mean_us", changes=())
    text = answer_of(replace(trend, histories=(*trend.histories, other)))
    assert text.startswith("1 figure has no value to judge in the newest 3 runs; no regression of the others")


def test_bound_has_its_sign_and_a_hollow_point() -> None:
    history = regressed().histories[0]
    points = (replace(history.points[0], bound="at least"), *history.points[1:])
    plot = history_plot(replace(history, points=points))
    assert not plot.marks[0].is_judged and plot.rows[0][2].startswith("≥ ")


def test_bound_has_its_sign_in_a_comparison() -> None:
    pair = compared()
    figures = (replace(pair.figures[2], candidate=1.9e6, baseline_bound="at least", candidate_bound="at most"),)
    bounded = replace(pair, figures=figures)
    for text in ("\n".join(lines(*comparison_blocks([bounded]))), Words(render_comparison([bounded])).text):
        assert "≥ 900,000,000" in text and "≤ 1,900,000" in text


def test_plot_stays_inside_of_its_frame() -> None:
    plot = history_plot(regressed().histories[0])
    assert all(0 <= mark.y <= 100 and 0 <= mark.x <= 100 for mark in plot.marks)
    assert [mark.is_judged for mark in plot.marks].count(False) == 1
    assert [text for _, text in plot.labels] == sorted((text for _, text in plot.labels), reverse=True)


def test_equal_figures_and_a_single_run_are_drawn() -> None:
    trend = regressed()
    history = trend.histories[0]
    for points in (history.points[:1], tuple(replace(one, value=0.0, low=None, high=None) for one in history.points)):
        plot = history_plot(replace(history, points=points, levels=(), changes=()))
        assert all(0 <= mark.y <= 100 for mark in plot.marks)


def test_trend_of_no_runs_is_a_page_with_one_sentence() -> None:
    page = Words(render_trend(trend_of([])))
    assert "No run was found: there is nothing to judge." in page.text and "svg" not in page.elements


def test_page_of_a_comparison_has_the_words_and_what_differs() -> None:
    page = Words(render_comparison([compared()]))
    assert "1 slower, 1 equivalent, 1 cannot tell" in page.text
    assert "0.790 to 0.850" in page.text and "differs: kernel: 6.18 -> 6.19" in page.text
    assert "not compared: udp (sut=route): only in" in page.text
    assert "script" not in page.elements


def test_page_of_several_comparisons_has_a_section_for_each() -> None:
    pair = compared()
    page = Words(render_comparison([pair, replace(pair, candidate="another run")]))
    assert page.elements.count("section") == 2 and "2 comparisons" in page.text


def test_comparison_fits_into_80_columns_without_cutting_names() -> None:
    shown = lines(*comparison_blocks([compared()]))
    assert all(len(line) <= 80 for line in shown)
    text = "\n".join(shown)
    assert "throughput_bps" in text and "▼ slower" in text and "? cannot tell" in text and "…" not in text
