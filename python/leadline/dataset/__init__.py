"""The stored data of a run: its folder, its journal, and the tables that are made from it.

The journal is the only source; every parquet file beside it can be deleted and made again with `rebuild`. Figures
(the meaning of samples) belong to `analysis`, which this package never imports.

The modules that write tables are imported on first use, and only where polars is installed (`optional_tables`): a
journal alone needs no library for columns.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from leadline.dataset.clocks import HostClocks
from leadline.dataset.folder import RunFolder
from leadline.dataset.journal import Entry, Journal, JournalReader, read_journal, reads_strictly
from leadline.dataset.machine_rules import are_machine_rules_off
from leadline.dataset.optional_tables import (
    INSTALL_COMMAND,
    NoTables,
    may_write_tables,
    note_missing_tables,
    table_part_writer,
    table_writer,
    write_results_table,
)
from leadline.dataset.table_parts import TableParts

if TYPE_CHECKING:
    from leadline.dataset.tables import TablePartWriter, TableWriter, rebuild, write_results

__all__ = [
    "INSTALL_COMMAND",
    "Entry",
    "HostClocks",
    "Journal",
    "JournalReader",
    "NoTables",
    "RunFolder",
    "TablePartWriter",
    "TableParts",
    "TableWriter",
    "are_machine_rules_off",
    "may_write_tables",
    "note_missing_tables",
    "read_journal",
    "reads_strictly",
    "rebuild",
    "table_part_writer",
    "table_writer",
    "write_results",
    "write_results_table",
]


def __getattr__(name: str) -> Any:
    if name in ("TablePartWriter", "TableWriter", "rebuild", "write_results"):
        return getattr(import_module("leadline.dataset.tables"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
