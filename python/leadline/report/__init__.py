"""Text and HTML from what `analysis` found. Draws; never measures, reads no dataset and writes no file."""

from leadline.report.html import render_html
from leadline.report.measurement import measurement
from leadline.report.text import figures_table, run_renderables

__all__ = ["figures_table", "measurement", "render_html", "run_renderables"]
