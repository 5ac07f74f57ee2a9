"""Plots of scaling and the ladder's section in a real browser: light, dark, narrow and printed, and nothing on the
console."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from chromium_page import log_of
from sample_runs import gateway_run
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from test_report_page import painted

from leadline.analysis.scaling import fit
from leadline.analysis.scaling_model import Scaling
from leadline.report import render_html
from made_ladders import PLAIN, TUNNEL, ladders

pytestmark = [pytest.mark.browser, pytest.mark.takes(25)]

Open = Callable[..., WebDriver]

# Another test opens the page wide and light.
WIDE = pytest.param(1200, "light", "", marks=pytest.mark.full_matrix)
LOOKS = [WIDE, (1200, "dark", ""), (360, "light", ""), (703, "light", "print")]
SIZES = (1, 2, 4, 8, 16, 32, 64)


def grown() -> tuple[Scaling, ...]:
    """A rate with a knee and a peak, a time over several decades, a memory that is linear, and a flat figure."""
    noise = random.Random(4)

    def points(figure: Callable[[int], float]) -> list[tuple[float, float | None]]:
        return [(float(n), figure(n) * noise.uniform(0.96, 1.04)) for n in SIZES for _ in range(3)]

    return (
        fit("requests_per_s", "1/s", points(lambda n: 9e3 * n / (1 + 0.05 * (n - 1) + 0.001 * n * (n - 1)))),
        fit("latency_p99_us", "us", points(lambda n: 90.0 * n**1.4)),
        fit("memory_bytes", "bytes", points(lambda n: 3e7 + 2e6 * n)),
        fit("gateway_cpu_percent", "percent", points(lambda n: 40.0 + 0.1 * n)),
    )


def page() -> str:
    found = ladders({"c01": TUNNEL, "c02": PLAIN})
    return render_html(replace(gateway_run(), scaling={"http": grown()}, ladders=tuple(found.values())))


def opened(open_page: Open, width: int, scheme: str, media: str) -> WebDriver:
    browser = open_page(page(), width=width, scheme=scheme)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    painted(browser, 24)
    return browser


@pytest.mark.parametrize(("width", "scheme", "media"), LOOKS)
def test_page_is_quiet_and_fits(open_page: Open, width: int, scheme: str, media: str) -> None:
    browser = opened(open_page, width, scheme, media)
    try:
        assert [one for one in log_of(browser, "browser") if one["level"] in ("SEVERE", "WARNING")] == []
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_each_figure_has_a_plot_with_its_fit_and_its_scale(open_page: Open) -> None:
    browser = opened(open_page, 1200, "light", "")
    plots = browser.find_elements(By.CSS_SELECTOR, "#scaling .chart")
    captions = [one.find_element(By.TAG_NAME, "figcaption").text for one in plots]
    assert captions == [
        "Requests k/s · numbers logarithmic",
        "Latency p99 · both axes logarithmic",
        "Fleet memory MiB · numbers logarithmic",
        "Gateway CPU % · numbers logarithmic",
    ]
    fits = [one.find_elements(By.CSS_SELECTOR, ".u-series .u-label")[-1].text for one in plots]
    assert fits == ["Universal Scalability Law", "clients ** 1.40", "clients ** 0.38", "clients ** 0.04"]
    spoken = plots[1].find_element(By.CSS_SELECTOR, ".plot").get_attribute("aria-label")
    assert spoken is not None and spoken.startswith("Latency p99: ") and spoken.endswith(" ms at 64")


def test_waterfall_shows_bars_and_amounts_in_a_narrow_window(open_page: Open) -> None:
    browser = opened(open_page, 360, "light", "")
    cut = """return [...document.querySelectorAll("#ladder .waterfall")].map((table) => table.closest(".scroll"))
      .filter((box) => box.scrollWidth > box.clientWidth + 1).length;"""
    assert browser.execute_script("return document.querySelectorAll('#ladder .waterfall rect').length") > 10
    assert browser.execute_script(cut) == 0
    assert "not known" not in browser.find_element(By.CSS_SELECTOR, "#ladder .ladder").text
