"""Writes pages without a script, as those of trends, comparisons and benchmarks: one HTML file each that opens offline
and loads nothing.

Plots are SVG that the browser scales: their coordinates are percent. Every string is escaped by the template, and the
page's policy allows no script at all. Computes no figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from leadline import __version__
from leadline.analysis.comparison import ComparedRuns
from leadline.analysis.trend import Shift, Trend
from leadline.report import forest_plot, history_plot, trends

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def render_trend(trend: Trend) -> str:
    """The page of `leadline trend`: the answer, the shifts with their places, and a plot of each history."""
    return render_page(
        "trend.html",
        title=trends.answer(trend),
        tone=_tone_of_trend(trend),
        trend=trend,
        shifts=[history_plot.shift_row(*found) for found in trends.shown_shifts(trend)],
        plots=[history_plot.history_plot(history) for history in history_plot.by_interest(trend.histories)],
        reasons=trends.reasons_of(trend),
        stale=trends.stale_of(trend.stale),
        separations=trends.separations_of(trend.separations),
    )


def render_comparison(compared: Sequence[ComparedRuns]) -> str:
    """The page of `leadline compare`: for each pair the words, and a plot of ratios with their intervals."""
    plots = [forest_plot.forest_plot(one) for one in compared]
    title = plots[0].sentence if len(plots) == 1 else f"{len(plots)} comparisons"
    return render_page("comparison.html", title=title, tone="bounded", plots=plots)


def render_page(template: str, **values: object) -> str:
    """A page by its template, with the styles and the policy of all of them."""
    styles = Markup(_static("report.css") + _static("plain_pages.css"))
    return _environment().get_template(template).render(styles=styles, policy=_POLICY, version=__version__, **values)


def _tone_of_trend(trend: Trend) -> str:
    if not trend.judged:
        return "doubtful"
    if trend.of_shift(Shift.REGRESSION, is_new=True):
        return "bad"
    return "doubtful" if trend.silent else "good"


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("leadline.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _static(name: str) -> str:
    return resources.files("leadline.report").joinpath("static", name).read_text(encoding="utf-8")
