"""The pages of trends and comparisons in a real browser: plots are drawn, nothing is loaded, no foreign text runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from chromium_page import log_of
from sample_trends import compared, regressed
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from leadline.report import render_comparison, render_trend

pytestmark = pytest.mark.browser

HOSTILE = "</title></svg><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
PAGES = {"trend": lambda: render_trend(regressed()), "comparison": lambda: render_comparison([compared()])}

Open = Callable[..., WebDriver]


def check_quiet(browser: WebDriver) -> None:
    """No error on the console, and no request but for the page itself."""
    assert [entry for entry in log_of(browser, "browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    messages = [json.loads(entry["message"])["message"] for entry in log_of(browser, "performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [browser.current_url]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (360, "light"), (2000, "dark")])
def test_page_opens_without_errors_and_fits_the_window(open_page: Open, page: str, width: int, scheme: str) -> None:
    browser = open_page(PAGES[page](), width=width, scheme=scheme)
    check_quiet(browser)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(18, 22, 26)" if scheme == "dark" else "rgb(247, 247, 245)")


def test_history_has_a_point_for_each_run_inside_its_plot(open_page: Open) -> None:
    browser = open_page(render_trend(regressed()))
    assert browser.find_element(By.TAG_NAME, "h1").text.startswith("1 regression in the newest 10 runs")
    plot = browser.find_element(By.CSS_SELECTOR, ".history svg")
    frame = plot.rect
    points = [one.rect for one in plot.find_elements(By.CSS_SELECTOR, "circle")]
    assert len(points) == len(regressed().histories[0].points)
    assert len(plot.find_elements(By.CSS_SELECTOR, ".doubted")) == 1
    assert all(frame["y"] <= one["y"] and one["y"] + one["height"] <= frame["y"] + frame["height"] for one in points)
    across = [one["x"] for one in points]
    assert across == sorted(across) and across[-1] - across[0] > 0.8 * frame["width"]
    # The level falls: on the screen the second one is lower.
    first, second = (one.rect["y"] for one in plot.find_elements(By.CSS_SELECTOR, ".level"))
    assert second > first
    label = plot.find_element(By.TAG_NAME, "text")
    assert label.text == "▼ -10.0 %"


def test_table_of_runs_opens_with_the_keyboard(open_page: Open) -> None:
    browser = open_page(render_trend(regressed()))
    summary = browser.find_element(By.CSS_SELECTOR, ".history summary")
    summary.send_keys(Keys.ENTER)
    rows = browser.find_element(By.CSS_SELECTOR, ".history details").find_elements(By.CSS_SELECTOR, "tbody tr")
    assert len(rows) == len(regressed().histories[0].points) and rows[0].is_displayed()


def test_ratios_lie_where_the_axis_says(open_page: Open) -> None:
    browser = open_page(render_comparison([compared()]))
    words = [one.text for one in browser.find_elements(By.CSS_SELECTOR, ".forest tbody .badge")]
    assert words == ["▼ slower", "= equivalent", "? cannot tell"]
    slower, equivalent, unknown = browser.find_elements(By.CSS_SELECTOR, ".forest tbody .ratios svg")
    one = slower.find_element(By.CSS_SELECTOR, ".same").rect["x"]
    mark, whisker = (slower.find_element(By.CSS_SELECTOR, name).rect for name in (".ratio", ".whisker"))
    assert mark["x"] + mark["width"] < one and whisker["x"] + whisker["width"] < one
    band = equivalent.find_element(By.CSS_SELECTOR, ".margin").rect
    inside = equivalent.find_element(By.CSS_SELECTOR, ".whisker").rect
    assert band["x"] < inside["x"] and inside["x"] + inside["width"] < band["x"] + band["width"]
    assert unknown.find_elements(By.CSS_SELECTOR, ".ratio, .whisker") == []


@pytest.mark.parametrize("page", PAGES)
def test_no_foreign_text_becomes_code(open_page: Open, page: str) -> None:
    trend, pair = regressed(), compared()
    history = replace(trend.histories[0], test=HOSTILE, plan=HOSTILE, machine={HOSTILE: HOSTILE})
    figure = replace(pair.figures[0], test=HOSTILE, reason=HOSTILE)
    markup = {
        "trend": lambda: render_trend(replace(trend, histories=(history,))),
        "comparison": lambda: render_comparison(
            [replace(pair, baseline=HOSTILE, figures=(figure,), missing=(HOSTILE,))]
        ),
    }[page]()
    browser = open_page(markup)
    assert browser.execute_script("return window.pwned") is None
    assert browser.execute_script("return document.querySelectorAll('script, img').length") == 0
    check_quiet(browser)
