"""Text and HTML from the results of `analysis`. Draws only: measures nothing, reads no dataset and writes no file.

The page is imported on first use: a terminal needs no templates.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from leadline.report.comparisons import comparison_blocks
from leadline.report.hdr_log import hdr_log
from leadline.report.headlines import interval_line, test_headline
from leadline.report.measurement import measurement
from leadline.report.peer_formats import HttpRequested, ab_text, wrk_text
from leadline.report.repeated import repeated_measurement
from leadline.report.scalings import scaling_table
from leadline.report.text import figures_table, run_renderables

if TYPE_CHECKING:
    from leadline.report.html import render_html

__all__ = [
    "HttpRequested",
    "ab_text",
    "comparison_blocks",
    "figures_table",
    "hdr_log",
    "interval_line",
    "measurement",
    "render_html",
    "repeated_measurement",
    "run_renderables",
    "scaling_table",
    "test_headline",
    "wrk_text",
]


def __getattr__(name: str) -> Any:
    if name == "render_html":
        return getattr(import_module("leadline.report.html"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
