"""The rows of a stretch of a journal, as processes hand them to each other. Needs no library for columns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableParts:
    """The rows of a stretch of a journal: chunks of each table, each one a small file of Arrow's format, and the number
    of events that lack required fields."""

    chunks: dict[str, tuple[bytes, ...]]
    malformed: int
