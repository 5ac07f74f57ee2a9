"""Draws whether second tools agree with the figures of tests, for a terminal and for the page.

Arranges the results of `analysis`; computes no figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from leadline import quantities
from leadline.analysis.cross_check_model import Agreement, Bounded, CrossCheck

_TONES = {Agreement.AGREE: "green", Agreement.DIFFER: "yellow", Agreement.CANNOT_TELL: "dim"}
_TITLE = "Cross-check"


@dataclass(frozen=True, slots=True)
class CrossCheckRow:
    """A cross-check as text."""

    case: str
    test: str
    tool: str
    own: str
    other: str
    ratio: str
    interval: str
    word: str
    notes: tuple[str, ...]


def cross_check_rows(found: Sequence[CrossCheck]) -> list[CrossCheckRow]:
    """A row for each cross-check."""
    return [
        CrossCheckRow(
            case=one.case,
            test=one.test,
            tool=" ".join((one.tool, *one.versions)),
            own=_figure(one.own, one.unit),
            other=_figure(one.other, one.unit),
            ratio=quantities.number(one.ratio.value),
            interval=_interval(one.ratio.low, one.ratio.high),
            word=one.agreement.value,
            notes=_notes(one),
        )
        for one in found
    ]


def cross_check_lines(found: Sequence[CrossCheck]) -> RenderableType | None:
    """A line for each case and test; below, what is doubtful. None without a cross-check."""
    if not found:
        return None
    margins = ", ".join(dict.fromkeys(f"{100 * one.margin:g} %" for one in found))
    head = Text.assemble((_TITLE, "bold underline"), (f"  the same load by a second tool; margin {margins}", "dim"))
    lines = []
    for one in found:
        lines.append(cross_check_line(one))
        lines += [Text(f"  {note}", style="dim") for note in _notes(one)]
    return Group(head, *(Padding(line, (0, 0, 0, 2), expand=False) for line in lines))


def cross_check_line(one: CrossCheck) -> Text:
    """Whether the two agree, and both figures."""
    (row,) = cross_check_rows([one])
    ratio = f"; ratio {row.ratio} ({row.interval})" if row.interval else ""
    figures = f": {row.tool} {row.other}, Leadline {row.own}{ratio}"
    return Text.assemble((f"{row.case} {row.test}  ".lstrip(), "bold"), (row.word, _TONES[one.agreement]), figures)


def _notes(one: CrossCheck) -> tuple[str, ...]:
    """Why it cannot tell, or the repeats that were left out."""
    return (one.ratio.reason,) if one.ratio.reason else one.troubles


def _figure(mean: Bounded, unit: str) -> str:
    value, low, high = mean
    if value is None:
        return quantities.UNKNOWN
    shown = quantities.bit_rate(value) if unit == "bit/s" else quantities.per_second(value)
    if low is None or high is None:
        return shown
    return f"{shown} ±{quantities.significant(50 * (high - low) / value)} %" if value else shown


def _interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return f"{quantities.significant(low)} to {quantities.significant(high)}"
