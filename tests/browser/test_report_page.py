"""The report in a real browser: it opens from a file, draws, loads nothing, and runs no foreign script."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from chromium_page import log_of
from sample_runs import gateway_run, many_trials
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from leadline.analysis.cross_check_model import Ratio
from leadline.analysis.model import Bound, Limit, LimitedBy, Verdict
from leadline.analysis.trial_records import FlowSpan, MarkKind, TimeMark
from leadline.report import render_html
from leadline.report.charts import test_charts as charts_of
from leadline.statistics import Comparison
from waiting import WITHIN_S

pytestmark = [pytest.mark.browser, pytest.mark.takes(80)]

HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"

Open = Callable[..., WebDriver]
full = pytest.mark.full_matrix

# Counts the canvases that hold anything but transparent pixels.
PAINTED = """
return [...document.querySelectorAll("canvas")].filter((canvas) =>
  canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value !== 0)).length;
"""


def wait_for(browser: WebDriver, script: str) -> Any:
    return WebDriverWait(browser, WITHIN_S).until(lambda it: it.execute_script(script))


def painted(browser: WebDriver, at_least: int) -> int:
    """Waits until as many canvases are painted; uPlot draws in a microtask."""
    wait = WebDriverWait(browser, WITHIN_S)
    more: int = wait.until(lambda it: max(0, it.execute_script(PAINTED) - at_least + 1))
    return more + at_least - 1


def open_everything(browser: WebDriver, cases: int) -> None:
    """Opens every case, waits for what they hold, and opens that."""
    opening = "document.querySelectorAll('details').forEach((one) => { one.open = true; });"
    browser.execute_script(opening)
    wait_for(browser, f"return document.querySelectorAll('.case > .trial:first-of-type').length >= {cases}")
    browser.execute_script(opening)


def test_opens_from_a_file_without_errors_or_requests(open_page: Open) -> None:
    browser = open_page(render_html(gateway_run()))
    assert painted(browser, 1)
    assert [entry for entry in log_of(browser, "browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    messages = [json.loads(entry["message"])["message"] for entry in log_of(browser, "performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [browser.current_url]
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_answer_is_on_the_first_screen(open_page: Open) -> None:
    browser = open_page(render_html(gateway_run()))
    lines = browser.find_element(By.TAG_NAME, "main").text.splitlines()
    assert lines[:2] == ["What the figures say", "c01"]
    assert lines[2].startswith("The plain route carries 18.4")
    verdict = browser.find_element(By.CSS_SELECTOR, ".verdict")
    assert verdict.text.startswith("! Incomplete. Not everything that should have been measured was.")
    answers = browser.find_elements(By.CSS_SELECTOR, ".answers li")
    assert len(answers) == 3
    assert answers[-1].rect["y"] + answers[-1].rect["height"] < 900, "all of it is on the first screen"
    assert browser.title.startswith("Incomplete: gateway")


def test_charts_of_the_open_trial_and_the_comparisons_are_drawn(open_page: Open) -> None:
    browser = open_page(render_html(gateway_run()))
    # Two comparisons, then tcp and udp with four plots each, rr and http with four plots and a latency curve each.
    assert painted(browser, 20) == 20
    assert browser.execute_script("return document.querySelectorAll('canvas').length") == 20
    labels = browser.execute_script("return [...document.querySelectorAll('.plot')].map(e => e.ariaLabel)")
    assert any(label.startswith("Memory. gateway system under test: mean") for label in labels)


def test_a_trial_is_drawn_when_it_is_opened(open_page: Open) -> None:
    browser = open_page(render_html(gateway_run()))
    painted(browser, 20)
    browser.execute_script("document.querySelectorAll('details.trial')[1].querySelector('summary').click()")
    assert painted(browser, 38) == 38


def test_arrow_keys_move_the_cursor_of_every_plot_of_a_test(open_page: Open) -> None:
    browser = open_page(render_html(gateway_run()))
    painted(browser, 20)
    first = browser.find_element(By.CSS_SELECTOR, ".test .plot")
    first.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.SHIFT + Keys.ARROW_RIGHT)
    times = """
    const found = [...document.querySelector(".test").querySelectorAll(".u-legend .u-series:first-child .u-value")]
      .map((cell) => cell.textContent);
    return found.includes("–") ? null : found;
    """
    shown = wait_for(browser, times)
    assert shown and shown[0].endswith(" s")


MARKS = (TimeMark(MarkKind.OTHER_WORK, 2.0, 4.0, 0.6), TimeMark(MarkKind.STALL, 6.0, 6.5, 0.0))
# The colour of the first plot a few pixels below its top, at a share of its time: the shading, where no line runs.
PIXEL = """
const chart = document.querySelector(".test .u-over"), canvas = document.querySelector(".test canvas");
const over = chart.getBoundingClientRect(), under = canvas.getBoundingClientRect();
const x = (over.left - under.left + over.width * arguments[0]) * devicePixelRatio;
const y = (over.top - under.top + 7) * devicePixelRatio;
return [...canvas.getContext("2d").getImageData(Math.round(x), Math.round(y), 1, 1).data].join();
"""


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=full), "dark"])
def test_disturbed_parts_and_stalls_are_shaded_apart(open_page: Open, scheme: str) -> None:
    run = gateway_run()
    marked = [
        replace(trial, tests=tuple(replace(test, time_marks=MARKS) for test in trial.tests)) for trial in run.trials
    ]
    browser = open_page(render_html(replace(run, trials=tuple(marked))), scheme=scheme)
    painted(browser, 20)
    first, last = charts_of(run.trials[0].tests[0])["span"]
    places = [(at - first) / (last - first) for at in (0.2, 2.9, 6.25, 5.4)]
    head, disturbed, stall, plain = (browser.execute_script(PIXEL, at) for at in places)
    assert len({head, disturbed, stall, plain}) == 4, "each is shaded in a colour of its own"
    legend = browser.find_element(By.CSS_SELECTOR, ".test .shaded")
    assert [entry.text.partition(":")[0] for entry in legend.find_elements(By.TAG_NAME, "li")] == [
        "head and tail",
        "disturbed",
        "stall",
    ]


def test_dark_mode_changes_page_and_charts(open_page: Open) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    ink = "return getComputedStyle(document.querySelector('h1')).color"
    browser = open_page(render_html(gateway_run()))
    light = browser.execute_script(background), browser.execute_script(ink)
    browser = open_page(render_html(gateway_run()), scheme="dark")
    dark = browser.execute_script(background), browser.execute_script(ink)
    assert light != dark
    assert sum(int(part) for part in dark[0].strip("rgb()").split(",")) < 150
    assert painted(browser, 20) == 20


@pytest.mark.parametrize("width", [360, *(pytest.param(width, marks=full) for width in (320, 1600))])
def test_page_does_not_scroll_sideways(open_page: Open, width: int) -> None:
    browser = open_page(render_html(gateway_run()), width=width)
    painted(browser, 20)
    open_everything(browser, cases=3)
    painted(browser, 100)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_tables_of_figures_fit_a_window_of_1200_pixels(open_page: Open) -> None:
    """No column stands beneath the verdicts: of UDP's, with ratios, bounds and what limited each result."""
    run = gateway_run()
    limit = Limit(LimitedBy.GENERATOR, "the busiest generating thread was on a CPU for 97 % of the window")
    ratio = Ratio(0.9592, 0.9581, 0.9603, Comparison.EQUIVALENT, None)
    summaries = tuple(
        replace(
            one,
            metrics={
                name: replace(metric, verdict=Verdict.DISTURBED, bound=Bound.MOST)
                for name, metric in one.metrics.items()
            },
            ratios=dict.fromkeys(one.metrics, ratio),
            limit=limit,
        )
        for one in run.summaries
    )
    browser = open_page(
        render_html(replace(run, summaries=summaries, baselines={"c02": "c01", "c03": "c01"})), width=1200
    )
    cut = browser.execute_script(
        """return [...document.querySelectorAll(".figures")].map((table) => table.closest(".scroll"))
          .filter((box) => box.scrollWidth > box.clientWidth + 1)
          .map((box) => `${box.getAttribute("aria-label")}: ${box.scrollWidth} > ${box.clientWidth}`);"""
    )
    assert cut == []


@pytest.mark.parametrize("width", [pytest.param(1400, marks=full), 1024])
def test_verdicts_of_wide_tables_are_in_sight(open_page: Open, width: int) -> None:
    """Of UDP's, with parameters as long as those of real plans."""
    run = gateway_run()
    summaries = tuple(
        replace(
            one, parameters={**one.parameters, "sut.cipher": f"CHACHA20-POLY1305-{index}", "tests.load.flows": index}
        )
        for index, one in enumerate(run.summaries)
    )
    browser = open_page(render_html(replace(run, summaries=summaries)), width=width)
    out_of_sight = browser.execute_script(
        """return [...document.querySelectorAll(".figures tr > :last-child")].filter((cell) => {
          const box = cell.closest(".scroll").getBoundingClientRect(), own = cell.getBoundingClientRect();
          return own.right > box.right + 1 || own.left < box.left;
        }).map((cell) => cell.textContent);"""
    )
    assert browser.execute_script("return document.querySelectorAll('.figures').length") > 0
    assert out_of_sight == []


@pytest.mark.parametrize(("width", "marked"), [(1024, False), (390, True)])
def test_figures_have_their_mark_where_the_verdict_is_out_of_sight(open_page: Open, width: int, marked: bool) -> None:
    browser = open_page(render_html(gateway_run()), width=width)
    marks = browser.execute_script(
        """return [...document.querySelectorAll(".figures tbody tr")].map((row) => [
          row.querySelector(".badge span").textContent,
          getComputedStyle(row.querySelector(".lead"), "::before").content.match(/"([^"]+)"/)?.[1].trim() ?? null]);"""
    )
    doubtful = [(badge, mark) for badge, mark in marks if badge in ("!", "≈")]
    assert doubtful, marks
    assert [mark for _, mark in doubtful] == [badge if marked else None for badge, _ in doubtful]
    assert all(mark is None for badge, mark in marks if badge == "✓")


def test_hostile_strings_are_inert(open_page: Open) -> None:
    run = gateway_run(name=HOSTILE, plan_text=HOSTILE, command=HOSTILE)
    test = run.trials[0].tests[0]
    test = replace(test, test=HOSTILE, series=tuple(replace(one, label=HOSTILE, host=HOSTILE) for one in test.series))
    trial = replace(run.trials[0], error=HOSTILE, status="failed", tests=(test,))
    browser = open_page(render_html(replace(run, trials=(trial, *run.trials[1:]))))
    painted(browser, 1)
    assert browser.execute_script("return window.pwned") is None
    assert browser.find_elements(By.TAG_NAME, "img") == []
    assert HOSTILE in browser.find_element(By.ID, "troubles").text


def test_two_hundred_trials_open_quickly_and_draw_only_what_is_open(open_page: Open) -> None:
    browser = open_page(render_html(many_trials(200)))
    assert painted(browser, 4) == 4
    trials = "return document.querySelectorAll('.case > .trial').length"
    assert browser.execute_script(trials) == 5
    link = "document.querySelector('a[href=\"#case-c40\"]').click();"
    browser.execute_script(link)
    assert wait_for(browser, "return document.querySelectorAll('#case-c40 > .trial').length") == 5
    assert browser.execute_script(trials) == 10, "the other cases stay packed"
    browser.execute_script("document.querySelector('#case-c40 > .trial > summary').click()")
    assert painted(browser, 8) == 8


def test_case_that_is_opened_again_is_not_drawn_twice(open_page: Open) -> None:
    browser = open_page(render_html(many_trials(200)))
    painted(browser, 4)
    toggle = "document.querySelector('.case > summary').click()"
    for _ in range(2):
        browser.execute_script(toggle)
    assert wait_for(browser, "return document.querySelector('.case').open")
    assert browser.execute_script("return document.querySelectorAll('.case > .trial').length") == 5
    assert painted(browser, 4) == 4


def test_printed_page_has_the_summary_of_every_case_and_what_is_open(open_page: Open) -> None:
    browser = open_page(render_html(many_trials(200)))
    painted(browser, 4)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        text = browser.find_element(By.TAG_NAME, "body").text
        assert all(f"c{number:02}" in text for number in range(1, 41))
        assert browser.execute_script("return document.querySelectorAll('.figures tbody tr').length") == 40
        assert "Repeat 1" in text
        assert painted(browser, 4) == 4
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_tables_and_plots_are_named_for_those_who_do_not_see_them(open_page: Open) -> None:
    browser = open_page(render_html(gateway_run()))
    painted(browser, 20)
    nameless = """
    return [...document.querySelectorAll("[tabindex],[role=region],[role=group]")]
      .filter((element) => !element.getAttribute("aria-label")).length;
    """
    assert browser.execute_script(nameless) == 0
    assert browser.execute_script("return document.documentElement.lang") == "en"


FOCUSED = "const one = document.activeElement; return [one.tagName, one.textContent.trim().split(/\\s/)[0]]"


def focused(browser: WebDriver) -> list[str]:
    found: list[str] = browser.execute_script(FOCUSED)
    return found


def press(browser: WebDriver, *keys: str) -> None:
    for key in keys:
        browser.switch_to.active_element.send_keys(key)


def test_keyboard_goes_from_the_skip_link_through_the_cases(open_page: Open) -> None:
    browser = open_page(render_html(gateway_run()))
    painted(browser, 20)
    press(browser, Keys.TAB)
    assert focused(browser) == ["A", "Skip"]
    press(browser, Keys.ENTER, Keys.TAB)
    assert focused(browser) == ["A", "c01"], "past the contents, at the first answer's evidence"
    browser.execute_script("document.querySelector('#case-c02 > summary').focus()")
    assert browser.execute_script("return document.querySelector('#case-c02').open")
    press(browser, Keys.ESCAPE)
    assert not browser.execute_script("return document.querySelector('#case-c02').open")
    assert focused(browser) == ["SUMMARY", "c02"], "the focus stays"
    press(browser, Keys.TAB)
    assert focused(browser) == ["SUMMARY", "c03"], "a closed case is one step"
    press(browser, Keys.ENTER)
    assert not browser.execute_script("return document.querySelector('#case-c03').open")


def test_focus_is_visible(open_page: Open) -> None:
    browser = open_page(render_html(gateway_run()))
    press(browser, Keys.TAB)
    box = browser.switch_to.active_element.rect
    assert box["x"] >= 0 and box["width"] > 50, "the skip link is on the screen while it has the focus"
    press(browser, Keys.TAB)
    assert browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=full), "dark"])
def test_paper_cuts_no_table_and_is_black_on_white(open_page: Open, scheme: str) -> None:
    """At the width that A4 leaves between the page's margins."""
    browser = open_page(render_html(gateway_run()), width=703, scheme=scheme)
    painted(browser, 20)
    open_everything(browser, cases=3)
    media = {"media": "print", "features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        cut = """return [...document.querySelectorAll(".scroll, pre")]
          .filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.getAttribute("aria-label"));"""
        assert browser.execute_script(cut) == []
        looks = browser.execute_script(
            "const looks = getComputedStyle(document.body); return [looks.color, looks.backgroundColor]"
        )
        assert looks == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_print_to_pdf_opens_what_is_folded_and_folds_it_again(open_page: Open) -> None:
    browser = open_page(render_html(many_trials(200)))
    painted(browser, 4)
    folded = "return document.querySelectorAll('details.more:not([open])').length"
    assert browser.execute_script(folded) == 2, "more sentences than the page shows at once, and a table of intervals"
    browser.execute_script(
        "addEventListener('beforeprint', () => { window.whilePrinting = "
        "document.querySelectorAll('details.more:not([open])').length; })"
    )
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    assert len(printed["data"]) > 20_000
    assert browser.execute_script("return window.whilePrinting") == 0
    assert wait_for(browser, f"return ({folded.removeprefix('return ')}) === 2")


def test_flows_have_bars_on_the_plots_axis(open_page: Open) -> None:
    run = gateway_run()
    spans = (FlowSpan("client1 0 up", 1, 0.0, 0.0, 0.0, 9.0, 9.0), FlowSpan("client2 0 up", 1, 0.2, 0.5, 0.5, 9.9, 9.9))
    first = run.trials[0]
    tests = tuple(replace(test, flow_spans=spans) for test in first.tests)
    browser = open_page(render_html(replace(run, trials=(replace(first, tests=tests), *run.trials[1:]))))
    painted(browser, 20)
    bars = "return document.querySelectorAll('svg.flows .all').length"
    assert browser.execute_script(bars) == 2 * len(tests)
    ends = """
    const plot = document.querySelector(".test .u-over"), flows = document.querySelector("svg.flows");
    if (!flows.style.width) return null;
    const [over, under] = [plot, flows].map((one) => one.getBoundingClientRect());
    return [Math.abs(over.left - under.left), Math.abs(over.right - under.right)];
    """
    assert max(wait_for(browser, ends)) <= 1.5
    label = browser.execute_script("return document.querySelector('svg.flows').ariaLabel")
    assert label == "2 flows. the first began at 0 s, the last at 500 ms; the first ended at 9.00 s, the last at 9.90 s"


def test_reduced_motion_is_respected(open_page: Open) -> None:
    browser = open_page(render_html(gateway_run()))
    motion = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", motion)
    assert browser.execute_script("return getComputedStyle(document.documentElement).scrollBehavior") == "auto"
