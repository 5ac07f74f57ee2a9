"""The parquet tables of a run, rebuilt from its journal alone: the same way for one that was killed.

Instants (`t_ns`, `due_ns`, `start_ns`, `end_ns`) are ns of the controller's monotonic clock. `labels` and `parameters`
are JSON objects in strings: DuckDB reads them with `labels->>'cpu'`, Polars with `str.json_path_match('$.cpu')`, pandas
with `json.loads`, and a new label changes no schema. `hdr_v2` is the mergeable histogram as HdrHistogram's tools for
every language take it. What is not known is null or has no row. See `flatten` for the names of metrics.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, cast

import polars as pl

from leadline.dataset import atomic, flatten
from leadline.dataset.clocks import HostClocks
from leadline.dataset.folder import RunFolder
from leadline.dataset.journal import Entry, read_journal, reads_strictly

SAMPLES_SCHEMA: dict[str, Any] = {
    "host": pl.String,
    "trial": pl.String,
    "t_ns": pl.Int64,
    "metric": pl.String,
    "labels": pl.String,
    "value": pl.Float64,
}
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
    # When each step of its first success, else of its last attempt, was done: ns since `due_ns`.
    "sent_ns": pl.Int64,
    "answered_ns": pl.Int64,
    "tls_ns": pl.Int64,
    "keys_ns": pl.Int64,
    "pushed_ns": pl.Int64,
    "configured_ns": pl.Int64,
    # When its last attempt or tunnel ended, and when its server was last heard.
    "ended_ns": pl.Int64,
    "heard_ns": pl.Int64,
    "attempts": pl.Int64,
    "retransmits": pl.Int64,
    # A JSON list.
    "addresses": pl.String,
    "peer_id": pl.Int64,
    "cipher": pl.String,
    "local": pl.String,
    # Counts of what went through its tunnel, a JSON object.
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
    # When each step was done, and when the attempt or its tunnel ended: ns since `due_ns`.
    "sent_ns": pl.Int64,
    "answered_ns": pl.Int64,
    "tls_ns": pl.Int64,
    "keys_ns": pl.Int64,
    "pushed_ns": pl.Int64,
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
    # Null for the whole task's histogram; else the end of the interval that this one is of.
    "interval_end_ns": pl.Int64,
    "count": pl.Int64,
    "hdr_v2": pl.String,
}
RESULTS_SCHEMA: dict[str, Any] = {
    "case": pl.String,
    # Null in a row that sums a case's repeats up; then `low` and `high` bound the mean at 95 %.
    "trial": pl.String,
    "test": pl.String,
    "kind": pl.String,
    "parameters": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "unit": pl.String,
    "low": pl.Float64,
    "high": pl.Float64,
    # Whether the value is a lower bound, as operations were outstanding when observation ended.
    "censored": pl.Boolean,
    "validity": pl.String,
    # Codes of the verdict's reasons, a JSON list.
    "reasons": pl.String,
}

# Rows of a table that are held at a time, first as Python objects: about 100 MB at most, whatever the journal's size.
_CHUNK_ROWS = 200_000
_INSTANTS = ("due_ns", "start_ns", "end_ns")


def rebuild(run: RunFolder) -> int:
    """Makes `samples.parquet`, `flows.parquet` and `histograms.parquet` again from the journal; `clients.parquet`, one
    row per client, and `attempts.parquet`, one per attempt, where it tells of a fleet. Returns how many events lack
    what their type promises: they have no rows.

    Each file is written beside its place and renamed, so that a reader sees the old or the new one, whole.
    Raises `DatasetError` where the journal cannot be read or a table cannot be written.
    """
    tables = _Tables(run.path)
    with ExitStack() as stack:
        for table in tables.all:
            stack.callback(table.close)
        for entry in read_journal(run.journal_path):
            tables.take(entry)
        for table in tables.all:
            if table in tables.always or table.has_rows:
                table.write()
    return tables.malformed


def write_results(run: RunFolder, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes `results.parquet` from plain rows that have `RESULTS_SCHEMA`'s columns; absent ones become null.

    `parameters` and `reasons` may be given as objects; they are stored as JSON. Raises `DatasetError`.
    """
    table = _Table(RESULTS_SCHEMA, run.path / "results.parquet")
    with closing(table):
        for row in rows:
            table.append(tuple(_plain(row.get(name)) for name in RESULTS_SCHEMA))
        table.write()


class _Table:
    """Rows on their way into one parquet file. Full chunks wait in unnamed files, and stream from there."""

    def __init__(self, schema: dict[str, Any], path: Path) -> None:
        self._schema = schema
        self._path = path
        self._rows: list[tuple[Any, ...]] = []
        self._chunks: list[IO[bytes]] = []
        self._files = ExitStack()

    @property
    def has_rows(self) -> bool:
        """Whether anything was appended."""
        return bool(self._rows or self._chunks)

    def append(self, row: tuple[Any, ...]) -> None:
        self._rows.append(row)
        if len(self._rows) >= _CHUNK_ROWS:
            self._set_aside()

    def write(self) -> None:
        """Make the file; the table is empty then."""
        if not self._chunks:
            content = _in_parquet(self._frame())
            atomic.replace(self._path, lambda temporary: _write_bytes(temporary, content))
            return
        self._set_aside()
        # By their descriptors, as they have no names: a process that is killed leaves none of them behind.
        whole = pl.scan_parquet([f"/proc/self/fd/{chunk.fileno()}" for chunk in self._chunks], glob=False)
        atomic.replace(self._path, lambda temporary: _stream(whole, temporary))
        self.close()

    def close(self) -> None:
        """Give up what is set aside."""
        self._files.close()
        self._chunks = []

    def _set_aside(self) -> None:
        if not self._rows:
            return
        try:
            chunk = self._files.enter_context(_unnamed_file(self._path.parent))
            self._chunks.append(chunk)
            chunk.write(_in_parquet(self._frame()))
            chunk.flush()
        except OSError as error:
            raise atomic.storage_error(self._path, error) from error
        self._rows = []

    def _frame(self) -> pl.DataFrame:
        return pl.DataFrame(self._rows, schema=self._schema, orient="row", strict=False)


class _Tables:
    """Routes each entry to the table that it belongs to."""

    def __init__(self, folder: Path) -> None:
        self.samples = _Table(SAMPLES_SCHEMA, folder / "samples.parquet")
        self.flows = _Table(FLOWS_SCHEMA, folder / "flows.parquet")
        self.histograms = _Table(HISTOGRAMS_SCHEMA, folder / "histograms.parquet")
        self.clients = _Table(CLIENTS_SCHEMA, folder / "clients.parquet")
        self.attempts = _Table(ATTEMPTS_SCHEMA, folder / "attempts.parquet")
        self.always = (self.samples, self.flows, self.histograms)
        self.all = (*self.always, self.clients, self.attempts)
        self._clocks = HostClocks()
        self._trial: str | None = None
        self.malformed = 0

    def take(self, entry: Entry) -> None:
        """An entry that lacks what its type promises is counted and left out."""
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
        except (KeyError, TypeError, ValueError, AttributeError):
            if reads_strictly():
                raise
            self.malformed += 1

    def _event(self, entry: Entry, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind not in ("observation", "progress", "finished"):
            return
        host, offset_ns = entry["host"], self._clocks.offset_ns(entry)
        trial = event.get("trial") or self._trial
        t_ns = event["t_ns"] - offset_ns
        if kind == "finished":
            self._outcome(host, trial, event["task"], event["outcome"], offset_ns)
            return
        rows: list[tuple[str, str, float]] = []
        reader = flatten.observation if kind == "observation" else flatten.progress
        reader(event, lambda *row: rows.append(row))
        for metric, labels, value in rows:
            self.samples.append((host, trial, t_ns, metric, labels, float(value)))
        for report in event.get("histograms", ()):
            self._histogram(host, trial, event["task"], report, t_ns)

    def _outcome(self, host: str, trial: str | None, task: str, outcome: dict[str, Any], offset_ns: int) -> None:
        for flow in outcome["flows"]:
            instants = {name: flow[name] - offset_ns for name in _INSTANTS if flow.get(name) is not None}
            row = {**flow, **instants, "host": host, "trial": trial, "task": task}
            self.flows.append(tuple(row.get(name) for name in FLOWS_SCHEMA))
        for report in outcome["histograms"]:
            self._histogram(host, trial, task, report, None)
        for client in (outcome.get("tunnel") or {}).get("clients") or ():
            due_ns, first_due_ns = client["due_ns"] - offset_ns, client["first_due_ns"] - offset_ns
            due = {"due_ns": due_ns, "first_due_ns": first_due_ns}
            row = {**client, **due, "host": host, "trial": trial, "task": task}
            self.clients.append(tuple(_plain(row.get(name)) for name in CLIENTS_SCHEMA))
        for attempt in (outcome.get("tunnel") or {}).get("attempts") or ():
            row = {**attempt, "due_ns": attempt["due_ns"] - offset_ns, "host": host, "trial": trial, "task": task}
            self.attempts.append(tuple(_plain(row.get(name)) for name in ATTEMPTS_SCHEMA))

    def _histogram(
        self, host: str, trial: str | None, task: str, report: dict[str, Any], interval_end_ns: int | None
    ) -> None:
        self.histograms.append(
            (host, trial, task, report["metric"], interval_end_ns, report["count"], report["hdr_v2"])
        )


def _unnamed_file(folder: Path) -> IO[bytes]:
    """A file that is gone when it is closed, or with the process."""
    return TemporaryFile(dir=folder)


def _in_parquet(frame: pl.DataFrame) -> memoryview:
    """Through memory: polars words a full disk as a damaged file, the system call as what it is."""
    content = io.BytesIO()
    frame.write_parquet(content, compression="zstd")
    return content.getbuffer()


def _stream(rows: pl.LazyFrame, path: Path) -> None:
    """Chunk by chunk into one file, in their order."""
    with path.open("wb") as file:
        sink = _Sink(file)
        try:
            target = cast(IO[bytes], sink)
            rows.sink_parquet(target, compression="zstd", row_group_size=_CHUNK_ROWS, maintain_order=True)
        except pl.exceptions.PolarsError:
            if sink.error is not None:
                raise sink.error from None
            raise


class _Sink(io.RawIOBase):
    """Keeps the system's own error of a write that fails."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        try:
            return self._write_out(data)
        except OSError as error:
            self.error = error
            raise

    def _write_out(self, data: Any) -> int:
        return self._file.write(data)


def _write_bytes(path: Path, content: memoryview) -> None:
    path.write_bytes(content)


def _plain(value: Any) -> Any:
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return value
