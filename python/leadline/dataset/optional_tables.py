"""Chooses what takes a journal's rows: the tables where polars is installed (`leadline[parquet]`), else nothing.

Owns that choice, so that everything else of a run needs no library for columns
(`docs/decisions/0016-small-installation.md`). The journal has all that the tables are made of: they can be made later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.dataset.clocks import HostClocks
from leadline.dataset.folder import RunFolder
from leadline.dataset.journal import Entry
from leadline.dataset.table_parts import TableParts

if TYPE_CHECKING:
    from leadline.dataset.tables import TablePartWriter, TableWriter

INSTALL_COMMAND = "pip install polars"


def may_write_tables() -> bool:
    """Whether the library that writes tables is installed."""
    return find_spec("polars") is not None


def table_writer(folder: Path) -> TableWriter | NoTables:
    """What takes the entries of a folder's journal and writes its tables."""
    if not may_write_tables():
        return NoTables()
    from leadline.dataset.tables import TableWriter

    return TableWriter(folder)


def table_part_writer(clocks: HostClocks) -> TablePartWriter | NoTables:
    """What takes the entries of one stretch of a journal; `clocks` is what was known before it."""
    if not may_write_tables():
        return NoTables()
    from leadline.dataset.tables import TablePartWriter

    return TablePartWriter(clocks)


def write_results_table(run: RunFolder, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write `results.parquet`, if tables can be written. Raises `DatasetError`."""
    if may_write_tables():
        from leadline.dataset.tables import write_results

        write_results(run, rows)


def note_missing_tables(run: RunFolder) -> str | None:
    """Why a folder gets no tables and how to make them; None where they are written."""
    if may_write_tables():
        return None
    are_old = any(run.path.glob("*.parquet"))
    found = "the parquet tables are of an earlier report" if are_old else "no parquet tables"
    return f"{found}: polars is not installed; `{INSTALL_COMMAND}`, then `leadline report {run.path}` writes them"


class NoTables:
    """Takes entries as the tables do, and keeps nothing."""

    malformed = 0

    def __enter__(self) -> NoTables:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def take(self, entry: Entry) -> None:
        """Leave the entry out."""

    def add(self, parts: TableParts) -> None:
        """Leave the rows out."""

    def parts(self) -> TableParts:
        """No rows."""
        return TableParts({}, 0)

    def write(self) -> None:
        """Write no file."""
