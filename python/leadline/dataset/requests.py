"""The table of a scenario's single requests and transactions, in columns, as agents report them in batches.

One row for each: when it was wanted and what it took, its status and bytes, and why it failed. `at_ns` is the time
since 1970 on the agent's host. Times that did not happen are null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from leadline.dataset import parquet
from leadline.dataset.parquet import ParquetFile, ParquetParts

REQUESTS_SCHEMA: dict[str, Any] = {
    "host": pl.String,
    "trial": pl.String,
    "task": pl.String,
    "group": pl.String,
    "user": pl.Int64,
    # `request` or `transaction`.
    "kind": pl.String,
    "name": pl.String,
    # A JSON object; null without tags.
    "tags": pl.String,
    "due_ns": pl.Int64,
    "at_ns": pl.Int64,
    "elapsed_ns": pl.Int64,
    "before_sent_ns": pl.Int64,
    "first_byte_ns": pl.Int64,
    "status": pl.Int64,
    "sent_bytes": pl.Int64,
    "received_bytes": pl.Int64,
    "group_users": pl.Int64,
    "users": pl.Int64,
    "url": pl.String,
    "cause": pl.String,
    "message": pl.String,
    # Of the connection that was opened for it.
    "dns_ns": pl.Int64,
    "connect_ns": pl.Int64,
    "tls_ns": pl.Int64,
    # Of a transaction.
    "waits_ns": pl.Int64,
    "requests": pl.Int64,
    "failed": pl.Int64,
}
_COLUMNS = {
    "user": "user",
    "elapsed_ns": "elapsed_ns",
    "before_sent_ns": "before_sent_ns",
    "first_byte_ns": "first_byte_ns",
    "status": "status",
    "sent_bytes": "sent_bytes",
    "received_bytes": "received_bytes",
    "group_users": "group_active",
    "users": "all_active",
}
_SOME_ROWS = {
    "failures": ("cause", "message"),
    "openings": ("dns_ns", "connect_ns", "tls_ns"),
    "transactions": ("waits_ns", "requests", "failed"),
}


class RequestTable:
    """The requests and transactions of one parquet file, or of parts of it."""

    def __init__(self, file: ParquetFile | ParquetParts) -> None:
        self._file = file
        self._batches: list[pl.DataFrame] = []
        self._rows = 0
        self.has_rows = False

    def append(self, host: str, event: Mapping[str, Any], offset_ns: int) -> None:
        """Add the rows of a `samples` event of a host whose clock is ahead of the controller's by `offset_ns`.

        Raises:
            LookupError, TypeError, ValueError: it is not as the contract says; nothing is added then.
        """
        rows = batch_frame(host, event, offset_ns)
        if rows.height == 0:
            return
        self.has_rows = True
        self._batches.append(rows)
        self._rows += rows.height
        if self._rows >= parquet.CHUNK_ROWS:
            self._file.add(self.take_chunk())

    def take_chunk(self) -> Callable[[], pl.DataFrame]:
        """What makes the frame of the rows that are not in the file yet; the table is without them then."""
        batches, self._batches, self._rows = self._batches, [], 0
        return partial(_together, batches)


def batch_frame(host: str, event: Mapping[str, Any], offset_ns: int) -> pl.DataFrame:
    """The rows of a `samples` event, with the columns of `REQUESTS_SCHEMA`."""
    batch = event["samples"]
    names = [batch["names"][index] for index in batch["name"]]
    height = len(names)
    columns: dict[str, Sequence[Any]] = {
        "host": [host] * height,
        "trial": [event["trial"]] * height,
        "task": [event["task"]] * height,
        "group": [name["population"] for name in names],
        "kind": [name["kind"] for name in names],
        "name": [name["name"] for name in names],
        "tags": [json.dumps(name["tags"], sort_keys=True) if name.get("tags") else None for name in names],
        "due_ns": [due_ns - offset_ns for due_ns in batch["due_ns"]],
        "at_ns": [due_ns + batch["wall_offset_ns"] for due_ns in batch["due_ns"]],
        "url": batch["urls"] or [None] * height,
        **{own: batch[column] for own, column in _COLUMNS.items()},
    }
    for part, own in _SOME_ROWS.items():
        for name in own:
            column: list[Any] = [None] * height
            for row in batch[part]:
                column[row["row"]] = row[name]
            columns[name] = column
    try:
        return pl.DataFrame({name: columns[name] for name in REQUESTS_SCHEMA}, schema=REQUESTS_SCHEMA, strict=False)
    except pl.exceptions.PolarsError as error:
        raise ValueError(str(error)) from error


def _together(batches: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(batches) if batches else pl.DataFrame(schema=REQUESTS_SCHEMA)
