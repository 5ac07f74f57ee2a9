"""Raw samples, provenance, units: the run folder, its journal, and the tables that are rebuilt from it.

The journal is the only source; every parquet file beside it can be deleted and made again with `rebuild`.
Figures (what the samples mean) belong to `analysis`, which this package never imports.
"""

from leadline.dataset.clocks import HostClocks
from leadline.dataset.folder import RunFolder
from leadline.dataset.journal import Entry, Journal, JournalReader, read_journal
from leadline.dataset.tables import rebuild, write_results

__all__ = [
    "Entry",
    "HostClocks",
    "Journal",
    "JournalReader",
    "RunFolder",
    "read_journal",
    "rebuild",
    "write_results",
]
