"""Ladders on the terminal and on the page: within 80 columns, with bounds and signs, and the same sentence in both."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console
from sample_runs import gateway_run

from leadline.analysis.ladder_model import Ladder
from leadline.analysis.model import Bound, Limit, LimitedBy, Verdict
from leadline.report import render_html
from leadline.report.ladder_page import ladder_sections
from leadline.report.ladders import bar_text, ladder_blocks
from made_ladders import PLAIN, TUNNEL, ladders

REQUESTS = {"rr-udp": 20_000.0, "rr-tcp": 19_000.0, "http-small": 10_000.0, "https-small": 9_500.0}


def both() -> list[Ladder]:
    doubts = {("c01", rung): (Verdict.GENERATOR_LIMITED, Bound.LEAST) for rung in ("udp", "http")}
    limits = dict.fromkeys(doubts, Limit(LimitedBy.GENERATOR, "its thread was busy"))
    figures = {"c01": {**TUNNEL, **REQUESTS}, "c02": {**PLAIN, **REQUESTS}}
    return list(ladders(figures, doubts=doubts, limits=limits).values())


def shown(found: list[Ladder]) -> str:
    console = Console(width=80, color_system=None, highlight=False)
    with console.capture() as capture:
        for block in ladder_blocks(found, verbose=True):
            console.print(block)
    return capture.get()


def test_terminal_shows_both_paths_side_by_side_in_80_columns() -> None:
    found = both()
    text = shown(found)
    assert max(len(line) for line in text.splitlines()) <= 80
    costs, layers = text[text.index("CPU time") :].split("  layer")[1:]
    assert "…" not in text.replace(costs, "")
    udp = next(line for line in layers.splitlines() if line.startswith("  UDP  ")).strip()
    assert udp.split()[:8] == ["UDP", "970", "Mbit/s", "≥194", "Mbit/s", "≥20.0", "%", "≥20.0"] and udp.endswith(
        "≥ generator"
    )
    assert "Where the payload goes" in text and "Where the requests go" in text
    assert found[0].look_first in " ".join(text.split())


def test_plain_route_alone_has_no_second_column() -> None:
    text = shown(list(ladders({"c02": PLAIN}).values()))
    assert "of route" not in text and "±" in text
    assert "without a plain route beside it: it is a plain route itself" in text


def test_bars_have_eighths_of_a_character() -> None:
    assert bar_text(0.5, 8) == "████    " and bar_text(0.53, 8) == "████▎   "
    assert bar_text(2.0, 3) == "███" and bar_text(-1.0, 3) == "   "


def test_page_has_the_layers_the_waterfall_and_the_sentence() -> None:
    found = both()
    page = render_html(replace(gateway_run(), ladders=tuple(found)))
    assert '<section id="ladder">' in page and '<a href="#ladder">' in page
    assert found[0].look_first in page
    (section,) = ladder_sections(found)
    drawn = sum(len(bars) for _, bars in section.waterfalls)
    assert page.count("<rect class=") == drawn
    assert all(0 <= bar.left <= 100 and 0 < bar.width <= 100.01 for _, bars in section.waterfalls for bar in bars)
    assert "per packet" in page and " ns" in page


def test_page_without_a_ladder_has_no_section() -> None:
    page = render_html(gateway_run())
    assert 'id="ladder"' not in page and 'href="#ladder"' not in page


def test_names_from_a_plan_are_text() -> None:
    hostile = "<script>alert(1)</script>"
    made = [replace(one, sut=hostile, parameters={"sut": hostile}, look_first=hostile) for one in both()]
    assert hostile not in render_html(replace(gateway_run(), ladders=tuple(made)))
