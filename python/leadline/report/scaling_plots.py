"""Prepares the data of the page's plots of scaling: what was measured, its means with intervals, and the fitted curve.

`analysis` has fitted it; `static/report.js` draws it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from leadline import quantities
from leadline.analysis.scaling_model import Scaling
from leadline.report import scalings

MOST_PLOTS = 24
"""Maximum number of plots of a page; the table has every figure."""
# Two points always lie on a line.
_LEAST_NUMBERS = 3
# Units as `analysis` spells them -> that of the plot, and how many of it one is.
_UNITS = {
    "us": ("µs", 1.0),
    "ms": ("µs", 1e3),
    "s": ("µs", 1e6),
    "1/s": ("/s", 1.0),
    "bps": ("bit/s", 1.0),
    "percent": ("%", 1.0),
    "bytes": ("B", 1.0),
    "count": ("", 1.0),
    "1": ("", 1.0),
}


def scaling_plots(found: Sequence[Scaling]) -> list[dict[str, Any]]:
    """A plot of each figure that was measured at three numbers or more."""
    return [_plot(one) for one in found if len(one.means) >= _LEAST_NUMBERS]


def _plot(one: Scaling) -> dict[str, Any]:
    unit, scale = _UNITS.get(one.unit, (one.unit, 1.0))
    curve = one.law.curve if one.law is not None else one.line
    return {
        "title": scalings.spoken(one.metric).capitalize().replace("cpu", "CPU"),
        "unit": unit,
        "axis": _axis(one.axis),
        "points": [[number, _digits(value * scale)] for number, value in one.points],
        "means": [
            [at.number, *(_digits(v * scale) if v is not None else None for v in (at.mean, at.low, at.high))]
            for at in one.means
        ],
        "fit": _fit(one),
        "curve": [[_digits(number), _digits(value * scale)] for number, value in curve],
        "marks": list(_marks(one)),
        "spoken": "; ".join(f"{_written(at.mean, one.unit)} at {at.number:g}" for at in one.means),
    }


def _fit(one: Scaling) -> str:
    """What the curve is."""
    if one.law is not None:
        return "Universal Scalability Law"
    return "" if one.exponent is None else f"{_axis(one.axis)} ** {one.exponent:.2f}"


def _marks(one: Scaling) -> Iterator[dict[str, Any]]:
    """The knee and the peak, where they lie within the measured numbers."""
    if one.law is None:
        return
    first, last = one.means[0].number, one.means[-1].number
    for name, at in (("knee", one.law.knee), ("peak", one.law.peak)):
        if at is not None and first <= at <= last:
            yield {"name": f"{name} {at:.3g}", "at": _digits(at)}


def _axis(name: str) -> str:
    """`clients` of `clients.count`, `flows` of `tests.load.flows`."""
    parts = [part for part in name.split(".") if part != "count"]
    return parts[-1] if parts else name


def _written(value: float, unit: str) -> str:
    # Fitted figures in bytes are always memory.
    return quantities.memory(value) if unit == "bytes" else quantities.metric(value, unit)


def _digits(value: float) -> float:
    return float(f"{value:.5g}")
