"""The tables of frames by size and by flow, for a terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from leadline import quantities
from leadline.report.page_tables import PageTable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.analysis.model import TestResult
    from leadline.analysis.packet_model import PacketPart

_MAX_FLOWS = 16
_SIZES, _FLOWS = ("size", "sent", "received", "lost", "share"), ("flow", "sent", "received", "lost", "share")


def page_tables(result: TestResult) -> list[PageTable]:
    """Sizes if there are several, and flows if there are several: those that lost the most first."""
    found = result.packets
    if found is None:
        return []
    tables = []
    if len(found.sizes) > 1:
        rows = tuple(_row(f"{part.number:,} B", part) for part in found.sizes)
        tables.append(PageTable("Packets by size", _SIZES, rows))
    if len(found.flows) > 1:
        shown = _worst(found.flows)
        rows = tuple(_row(f"{part.number:,}", part) for part in shown)
        tables.append(PageTable("Packets by flow", _FLOWS, rows, len(found.flows) - len(shown)))
    return tables


def terminal_tables(result: TestResult, *, is_brief: bool = False) -> list[RenderableType]:
    """The same for a terminal; flows of which none lost a frame are left out of a short summary."""
    from rich.padding import Padding
    from rich.table import Table

    tables: list[RenderableType] = []
    is_clean = result.packets is None or not any(part.lost for part in result.packets.flows)
    for one in page_tables(result):
        if is_brief and is_clean and one.columns is _FLOWS:
            continue
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        for number, title in enumerate(one.columns):
            table.add_column(title, justify="right" if number else "left", no_wrap=True)
        for row in one.rows:
            table.add_row(*row)
        tables.append(Padding(table, (1, 0, 0, 2), expand=False))
    return tables


def _worst(flows: Iterable[PacketPart]) -> Sequence[PacketPart]:
    return sorted(flows, key=lambda part: (-(part.lost or 0), part.number))[:_MAX_FLOWS]


def _row(name: str, part: PacketPart) -> tuple[str, ...]:
    share = None if part.lost is None or not part.sent else part.lost / part.sent
    counts = (quantities.count(number) for number in (part.sent, part.received, part.lost))
    return (name, *counts, quantities.share(share))
