"""The parquet tables of a run, made from its journal alone, also for a killed run.

Instants (`t_ns`, `due_ns`, `start_ns`, `end_ns`) are ns of the controller's monotonic clock. `labels` and
`parameters` are JSON objects in strings: DuckDB reads them with `labels->>'cpu'`, Polars with
`str.json_path_match('$.cpu')`, pandas with `json.loads`, and a new label changes no schema. `hdr_v2` is the mergeable
histogram in the format of HdrHistogram's tools for every language. Unknown values are null or have no row. See
`flatten` for the names of metrics.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from leadline.dataset import flatten, parquet
from leadline.dataset.clocks import HostClocks
from leadline.dataset.folder import RunFolder
from leadline.dataset.journal import Entry, read_journal, reads_strictly
from leadline.dataset.parquet import ParquetFile, ParquetParts
from leadline.dataset.requests import RequestTable
from leadline.dataset.samples import SampleTable
from leadline.dataset.table_parts import TableParts

FLOWS_SCHEMA: dict[str, Any] = {
    "host": pl.String,
    "trial": pl.String,
    "task": pl.String,
    "flow": pl.Int64,
    "direction": pl.String,
    "due_ns": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "sent_bytes": pl.Int64,
    "received_bytes": pl.Int64,
    "sent_units": pl.Int64,
    "received_units": pl.Int64,
    "lost": pl.Int64,
    "duplicates": pl.Int64,
    "reordered": pl.Int64,
    "jitter_us": pl.Float64,
    "latency_mean_us": pl.Float64,
    "latency_max_us": pl.Float64,
    "retransmits": pl.Int64,
    "rtt_mean_us": pl.Float64,
    "congestion": pl.String,
    "local": pl.String,
    "remote": pl.String,
}
CLIENTS_SCHEMA: dict[str, Any] = {
    "host": pl.String,
    "trial": pl.String,
    "task": pl.String,
    "client": pl.Int64,
    "state": pl.String,
    "cause": pl.String,
    "due_ns": pl.Int64,
    "first_due_ns": pl.Int64,
    # End of each step of its first success, else of its last attempt: ns since `due_ns`.
    "sent_ns": pl.Int64,
    "answered_ns": pl.Int64,
    "tls_ns": pl.Int64,
    "keys_ns": pl.Int64,
    "pushed_ns": pl.Int64,
    "ike_up_ns": pl.Int64,
    "ip_assigned_ns": pl.Int64,
    "child_up_ns": pl.Int64,
    "configured_ns": pl.Int64,
    # End of its last attempt or tunnel, and the last packet from its server.
    "ended_ns": pl.Int64,
    "heard_ns": pl.Int64,
    "attempts": pl.Int64,
    "retransmits": pl.Int64,
    # A JSON list.
    "addresses": pl.String,
    "peer_id": pl.Int64,
    "cipher": pl.String,
    "local": pl.String,
    # Counts of the traffic in its tunnel, a JSON object.
    "inside": pl.String,
}
ATTEMPTS_SCHEMA: dict[str, Any] = {
    "host": pl.String,
    "trial": pl.String,
    "task": pl.String,
    "client": pl.Int64,
    "attempt": pl.Int64,
    # `arrival`, `retry` or `reconnect`.
    "occasion": pl.String,
    "due_ns": pl.Int64,
    # End of each step, and end of the attempt or its tunnel: ns since `due_ns`.
    "sent_ns": pl.Int64,
    "answered_ns": pl.Int64,
    "tls_ns": pl.Int64,
    "keys_ns": pl.Int64,
    "pushed_ns": pl.Int64,
    "ike_up_ns": pl.Int64,
    "ip_assigned_ns": pl.Int64,
    "child_up_ns": pl.Int64,
    "configured_ns": pl.Int64,
    "ended_ns": pl.Int64,
    "cause": pl.String,
    "server": pl.String,
    "local": pl.String,
    # A JSON list.
    "addresses": pl.String,
    "peer_id": pl.Int64,
}
HISTOGRAMS_SCHEMA: dict[str, Any] = {
    "host": pl.String,
    "trial": pl.String,
    "task": pl.String,
    "metric": pl.String,
    # Null for the whole task's histogram; else the end of the histogram's interval.
    "interval_end_ns": pl.Int64,
    "count": pl.Int64,
    "hdr_v2": pl.String,
}
RESULTS_SCHEMA: dict[str, Any] = {
    "case": pl.String,
    # Null in a row about all repeats of a case; then `low` and `high` bound the mean at 95 %.
    "trial": pl.String,
    "test": pl.String,
    "kind": pl.String,
    "parameters": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "unit": pl.String,
    "low": pl.Float64,
    "high": pl.Float64,
    # Why one of them is null; null if neither is, or if the value itself is.
    "unbounded": pl.String,
    # Whether the value is a lower bound because operations were outstanding at the end.
    "censored": pl.Boolean,
    # On which side of the value the true figure lies: at least, at most or not known; null if the value is exact.
    "bound": pl.String,
    "validity": pl.String,
    # Codes of the verdict's reasons, a JSON list.
    "reasons": pl.String,
    # The case that the plan compares it with, and the figure by that case's; null without a baseline.
    "baseline": pl.String,
    "ratio": pl.Float64,
    "ratio_low": pl.Float64,
    "ratio_high": pl.Float64,
    # faster, slower, equivalent or cannot tell.
    "comparison": pl.String,
}

_INSTANTS = ("due_ns", "start_ns", "end_ns")


def rebuild(run: RunFolder) -> int:
    """Make `samples.parquet`, `flows.parquet` and `histograms.parquet` from the journal; for fleets also
    `clients.parquet` (one row per client) and `attempts.parquet` (one per attempt), for scenarios whose single requests
    were asked for `requests.parquet`. Returns the number of events that lack required fields and thus have no rows.

    Each file is written to a temporary file and renamed, so that a reader sees the old or the new file, complete.
    Raises `DatasetError` if the journal cannot be read or a table cannot be written.
    """
    with TableWriter(run.path) as tables:
        for entry in read_journal(run.journal_path):
            tables.take(entry)
        tables.write()
        return tables.malformed


def write_results(run: RunFolder, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write `results.parquet` from plain rows with the columns of `RESULTS_SCHEMA`; missing ones become null.

    `parameters` and `reasons` may be objects; they are stored as JSON. Raises `DatasetError`.
    """
    file = ParquetFile(run.path / "results.parquet")
    table = _Table(RESULTS_SCHEMA, file)
    plain = _PlainCells()
    with closing(file):
        for row in rows:
            table.append(tuple(plain.cell(name, row.get(name)) for name in RESULTS_SCHEMA))
        file.write(table.take_chunk())


class _PlainCells:
    """Cells in a table's form. An object that repeats in the next row is encoded as JSON once."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[Any, Any]] = {}

    def cell(self, column: str, value: Any) -> Any:
        """The cell of a column."""
        if value is None or isinstance(value, (str, float, bool)):
            return value
        latest = self._latest.get(column)
        if latest is None or latest[0] is not value:
            latest = self._latest[column] = (value, _plain(value))
        return latest[1]


class _Table:
    """The rows of one parquet file, or of parts of it."""

    def __init__(self, schema: dict[str, Any], file: ParquetFile | ParquetParts) -> None:
        self._schema = schema
        self._file = file
        self._rows: list[tuple[Any, ...]] = []
        self.has_rows = False

    def append(self, row: tuple[Any, ...]) -> None:
        self.has_rows = True
        self._rows.append(row)
        if len(self._rows) >= parquet.CHUNK_ROWS:
            self._file.add(self.take_chunk())

    def take_chunk(self) -> Callable[[], pl.DataFrame]:
        """What makes the frame of the rows that are not in the file yet; the table is without them then."""
        rows, self._rows = self._rows, []
        return partial(pl.DataFrame, rows, schema=self._schema, orient="row", strict=False)


class _Tables:
    """Routes each entry to its table."""

    def __init__(self, file: Callable[[str], ParquetFile | ParquetParts], clocks: HostClocks) -> None:
        self._samples = SampleTable(file("samples"))
        self._flows = _Table(FLOWS_SCHEMA, file("flows"))
        self._histograms = _Table(HISTOGRAMS_SCHEMA, file("histograms"))
        self._clients = _Table(CLIENTS_SCHEMA, file("clients"))
        self._attempts = _Table(ATTEMPTS_SCHEMA, file("attempts"))
        self._requests = RequestTable(file("requests"))
        self._clocks = clocks
        self._trial: str | None = None
        self.malformed = 0
        """Number of events that lack required fields; they have no rows."""

    @property
    def _all(self) -> dict[str, SampleTable | _Table | RequestTable]:
        return {
            "samples": self._samples,
            "flows": self._flows,
            "histograms": self._histograms,
            "clients": self._clients,
            "attempts": self._attempts,
            "requests": self._requests,
        }

    def take(self, entry: Entry) -> None:
        """Add an entry; one that lacks required fields is counted and left out."""
        record = entry.get("record")
        if record == "clock":
            self._clocks.note(entry)
        elif record == "trial-begin":
            self._trial = entry.get("trial")
        elif record == "trial-end":
            self._trial = None
        event = entry.get("event")
        if not isinstance(event, dict):
            return
        try:
            self._event(entry, event)
        except (LookupError, TypeError, ValueError, AttributeError):
            if reads_strictly():
                raise
            self.malformed += 1

    def _event(self, entry: Entry, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind not in ("observation", "progress", "finished", "samples"):
            return
        host, offset_ns = entry["host"], self._clocks.offset_ns(entry)
        if kind == "samples":
            self._requests.append(host, event, offset_ns)
            return
        trial = event.get("trial") or self._trial
        t_ns = event["t_ns"] - offset_ns
        if kind == "finished":
            self._outcome(host, trial, event["task"], event["outcome"], offset_ns)
            return
        values: list[Any] = []
        parts = flatten.observation(event, values) if kind == "observation" else flatten.progress(event, values)
        self._samples.append(host, trial, t_ns, parts, values)
        for report in event.get("histograms", ()):
            self._histogram(host, trial, event["task"], report, t_ns)

    def _outcome(self, host: str, trial: str | None, task: str, outcome: dict[str, Any], offset_ns: int) -> None:
        for flow in outcome["flows"]:
            instants = {name: flow[name] - offset_ns for name in _INSTANTS if flow.get(name) is not None}
            row = {**flow, **instants, "host": host, "trial": trial, "task": task}
            self._flows.append(tuple(row.get(name) for name in FLOWS_SCHEMA))
        for report in outcome["histograms"]:
            self._histogram(host, trial, task, report, None)
        for client in (outcome.get("tunnel") or {}).get("clients") or ():
            due_ns, first_due_ns = client["due_ns"] - offset_ns, client["first_due_ns"] - offset_ns
            due = {"due_ns": due_ns, "first_due_ns": first_due_ns}
            row = {**client, **due, "host": host, "trial": trial, "task": task}
            self._clients.append(tuple(_plain(row.get(name)) for name in CLIENTS_SCHEMA))
        for attempt in (outcome.get("tunnel") or {}).get("attempts") or ():
            row = {**attempt, "due_ns": attempt["due_ns"] - offset_ns, "host": host, "trial": trial, "task": task}
            self._attempts.append(tuple(_plain(row.get(name)) for name in ATTEMPTS_SCHEMA))

    def _histogram(
        self, host: str, trial: str | None, task: str, report: dict[str, Any], interval_end_ns: int | None
    ) -> None:
        self._histograms.append(
            (host, trial, task, report["metric"], interval_end_ns, report["count"], report["hdr_v2"])
        )


class TableWriter(_Tables):
    """The tables of a folder, from a journal's entries or from parts that other processes made of them."""

    def __init__(self, folder: Path) -> None:
        names = ("samples", "flows", "histograms", "clients", "attempts", "requests")
        self._files = {name: ParquetFile(folder / f"{name}.parquet") for name in names}
        self._optional = {"clients", "attempts", "requests"}
        super().__init__(self._files.__getitem__, HostClocks())

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def add(self, parts: TableParts) -> None:
        """Add the rows of a stretch of the journal, whose entries are not taken here."""
        for name, chunks in parts.chunks.items():
            self._files[name].add_parts(chunks)
            if chunks:
                self._optional.discard(name)
        self.malformed += parts.malformed

    def write(self) -> None:
        """Write every file to a temporary file and rename it; those of clients, attempts and requests only if there
        are any.

        Raises:
            DatasetError: one cannot be written.
        """
        for name, table in self._all.items():
            if name not in self._optional or (isinstance(table, _Table | RequestTable) and table.has_rows):
                self._files[name].write(table.take_chunk())


class TablePartWriter(_Tables):
    """The tables' rows of one stretch of a journal, in memory; `clocks` is what was known before it."""

    def __init__(self, clocks: HostClocks) -> None:
        self._parts: defaultdict[str, ParquetParts] = defaultdict(ParquetParts)
        super().__init__(self._parts.__getitem__, clocks)

    def parts(self) -> TableParts:
        """All rows; the tables are empty then."""
        chunks = {name: self._parts[name].take(table.take_chunk()) for name, table in self._all.items()}
        return TableParts(chunks, self.malformed)


def _plain(value: Any) -> Any:
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return value
