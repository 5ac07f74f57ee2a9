"""Draws the requests and transactions of a scenario while it runs, as lines of 80 columns below the live figures."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from leadline import quantities
from leadline.trial import LiveLabel

_NAME, _COLUMNS = 34, (11, 10, 9, 10)
_FEWEST_LINES = 3


def live_label_lines(labels: Sequence[LiveLabel], room: int) -> list[Text]:
    """A head and a line for each name, transactions first; those that ended most often if not all fit."""
    if not labels or room < _FEWEST_LINES:
        return []
    fits = room - 1 if len(labels) <= room - 1 else room - 2
    kept = sorted(labels, key=lambda label: -label.ended)[:fits]
    shown = [label for label in labels if label in kept]
    lines = [Text(_line("", ("ended", "1/s", "failed", "p95")), style="dim")]
    for label in shown:
        name = f"{label.name}:" if label.is_transaction else f"  {label.name}"
        p95 = "" if label.p95_us is None else quantities.microseconds(label.p95_us)
        cells = (f"{label.ended:,}", f"{label.per_s:,.0f}", f"{label.failed:,}" if label.failed else "", p95)
        lines.append(Text(_line(name, cells), style="red" if label.failed else ""))
    if len(shown) < len(labels):
        lines.append(Text(f"  and {len(labels) - len(shown)} more", style="dim"))
    return lines


def _line(name: str, cells: Sequence[str]) -> str:
    name = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
    return f"  {name:{_NAME}}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, _COLUMNS, strict=True))
