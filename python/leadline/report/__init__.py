"""Text and HTML from what `analysis` found. Draws; never measures, reads no dataset and writes no file."""

from leadline.report.ab_layout import ab_text
from leadline.report.hdr_log import hdr_log
from leadline.report.html import render_html
from leadline.report.measurement import measurement
from leadline.report.request import HttpRequested
from leadline.report.text import figures_table, run_renderables
from leadline.report.wrk_layout import wrk_text

__all__ = [
    "HttpRequested",
    "ab_text",
    "figures_table",
    "hdr_log",
    "measurement",
    "render_html",
    "run_renderables",
    "wrk_text",
]
