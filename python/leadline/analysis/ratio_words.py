"""Words for the ratio of two systems' figures, and how large an effect it shows: one place, so that no two sentences
disagree.

`as much as`: the interval lies within the margin and holds 1. `slightly less than`, `slightly more than`: it lies
within the margin, on one side of 1. Beyond the margin the ratio itself is the statement; an interval that holds 1 and
reaches beyond the margin says nothing. Pure.
"""

from __future__ import annotations

import math

from leadline.analysis.model import Bound, Metric, Verdict
from leadline.statistics import Comparison

TIMES_FROM = 2
"""Ratios from here on are shown as a number of times, others in percent."""
_SHOWN_AS_1 = 0.0005
"""An interval that ends nearer to 1 than this reads 100.0 %: it counts as holding 1."""


def comparative(low: float | None, high: float | None, word: Comparison) -> str | None:
    """The words between two systems whose ratio lies within the margin; None for other ratios, and without an
    interval."""
    if word is not Comparison.EQUIVALENT or low is None or high is None:
        return None
    if high < 1 - _SHOWN_AS_1:
        return "slightly less than"
    return "slightly more than" if low > 1 + _SHOWN_AS_1 else "as much as"


def share_text(value: float, low: float | None, high: float | None, side: Bound | None) -> str:
    """`21 % (20 to 22 %)`, `about 21 %`, `at least 21 %`; from twice as much on `2.4 times (2.1 to 2.8 times)`."""
    times = value >= TIMES_FROM
    scale, unit = (1.0, " times") if times else (100.0, " %")
    numbers = [one * scale for one in (value, low, high) if one is not None]
    narrow = max(numbers) - min(numbers) < (0.2 if times else 2.0) and len(numbers) > 1
    digits = (1 if times else 0) + (1 if narrow or (not times and value < 0.1) else 0)
    text = f"{value * scale:.{digits}f}{unit}"
    if low is not None and high is not None:
        ends = [f"{bound * scale:.{digits}f}" for bound in (low, high)]
        return text if ends[0] == ends[1] else f"{text} ({ends[0]} to {ends[1]}{unit})"
    words = {Bound.LEAST: "at least", Bound.MOST: "at most"}
    return f"{words.get(side, 'about') if side is not None else 'about'} {text}"


def effect_of(value: float | None, low: float | None, high: float | None, side: Bound | None) -> float:
    """How far a ratio is from 1 for sure, as the logarithm of a factor: of an interval by its end next to 1, of a bound
    by the bound, and of a ratio without either by itself. 0 where none is known."""
    if value is None:
        return 0.0
    if low is not None and high is not None:
        return max(_log(low), -_log(high), 0.0)
    if side is Bound.LEAST:
        return max(_log(value), 0.0)
    return max(-_log(value), 0.0) if side is Bound.MOST else abs(_log(value))


def _log(ratio: float) -> float:
    return math.log(ratio) if ratio > 0 else -math.inf


def is_exact(figure: Metric) -> bool:
    """Whether a figure is valid, and no bound."""
    return figure.verdict is Verdict.VALID and figure.side is None


def bounded_ratio(lead: Metric, base: Metric) -> tuple[float | None, Bound | None]:
    """The bound of the ratio of two figures, one of which is at least what it says, and its side; None if the other one
    is no exact figure."""
    if lead.value is None or base.value is None:
        return None, None
    if lead.is_least and is_exact(base) and (most := base.high or base.value) > 0:
        least = lead.value if lead.low is None else lead.low
        return (least / most, Bound.LEAST) if least > 0 else (None, None)
    if is_exact(lead) and base.is_least:
        least = base.value if base.low is None else base.low
        most = lead.value if lead.high is None else lead.high
        return (most / least, Bound.MOST) if least > 0 else (None, None)
    return None, None
