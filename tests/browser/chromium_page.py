"""Chromium for the page's tests: headless, offline, with an empty profile; skipped where it is not installed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

# The sample runs are the unit tests' own.
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report"))

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

Open = Callable[..., webdriver.Chrome]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("Chromium is not installed (Debian: chromium and chromium-driver)")
    os.environ["SE_OFFLINE"] = "true"
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    session = webdriver.Chrome(options=options, service=Service(driver))
    yield session
    session.quit()


@pytest.fixture
def open_page(chromium: webdriver.Chrome, tmp_path: Path) -> Open:
    """Opens markup as a file, in a window of a given width and colour scheme; earlier logs are thrown away."""

    def opened(markup: str, *, width: int = 1200, scheme: str = "light") -> webdriver.Chrome:
        page = tmp_path / "report.html"
        page.write_text(markup, encoding="utf-8")
        chromium.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        chromium.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )
        log_of(chromium, "browser")
        log_of(chromium, "performance")
        chromium.get(page.as_uri())
        return chromium

    return opened


def log_of(browser: webdriver.Chrome, kind: str) -> list[dict[str, Any]]:
    """The entries of a log of Chromium's since it was read last."""
    entries: list[dict[str, Any]] = browser.get_log(kind)  # type: ignore[no-untyped-call]
    return entries
