"""Text and HTML from the results of `analysis`. Draws only: measures nothing, reads no dataset and writes no file.

Pages are imported on first use: a terminal needs no templates.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from leadline.report.comparisons import comparison_blocks
from leadline.report.hdr_log import hdr_log
from leadline.report.headlines import interval_line, test_headline, trial_headline
from leadline.report.measurement import measurement
from leadline.report.peer_formats import HttpRequested, ab_text, wrk_text
from leadline.report.repeated import repeated_measurement
from leadline.report.run_summary import run_summary
from leadline.report.scalings import scaling_table
from leadline.report.text import figures_table, run_renderables
from leadline.report.trends import trend_blocks

if TYPE_CHECKING:
    from leadline.report.html import render_html
    from leadline.report.plain_pages import render_comparison, render_trend

__all__ = [
    "HttpRequested",
    "ab_text",
    "comparison_blocks",
    "figures_table",
    "hdr_log",
    "interval_line",
    "measurement",
    "render_comparison",
    "render_html",
    "render_trend",
    "repeated_measurement",
    "run_renderables",
    "run_summary",
    "scaling_table",
    "test_headline",
    "trend_blocks",
    "trial_headline",
    "wrk_text",
]


_PAGES = {
    "render_html": "leadline.report.html",
    "render_comparison": "leadline.report.plain_pages",
    "render_trend": "leadline.report.plain_pages",
}


def __getattr__(name: str) -> Any:
    if name in _PAGES:
        return getattr(import_module(_PAGES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
