"""The table of samples, in columns from the start: a run has millions of rows, and each would be a Python object.

Every event's numbers are one array; their description (metric and labels) is the same from event to event of a host,
and is stored once. Only a chunk's columns become strings, all together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from leadline.dataset import flatten, parquet
from leadline.dataset.parquet import ParquetFile, ParquetParts

SAMPLES_SCHEMA: dict[str, Any] = {
    "host": pl.String,
    "trial": pl.String,
    "t_ns": pl.Int64,
    "metric": pl.String,
    "labels": pl.String,
    "value": pl.Float64,
}

Codes: TypeAlias = NDArray[np.uint32]


class SampleTable:
    """The samples of one parquet file, or of parts of it."""

    def __init__(self, file: ParquetFile | ParquetParts) -> None:
        self._file = file
        self._chunk = _Chunk()

    def append(
        self, host: str, trial: str | None, t_ns: int, parts: Sequence[flatten.Part], values: Sequence[Any]
    ) -> None:
        """Add an event's numbers, from `flatten`: one row for each known number.

        Raises:
            TypeError,
            ValueError: one of them is not a number; none is added then.
        """
        self._chunk.append(host, trial, t_ns, tuple(parts), np.array(values, dtype=np.float64))
        if self._chunk.rows >= parquet.CHUNK_ROWS:
            self._file.add(self.take_chunk())

    def take_chunk(self) -> Callable[[], pl.DataFrame]:
        """What makes the frame of the rows that are not in the file yet; the table is without them then."""
        chunk, self._chunk = self._chunk, _Chunk()
        return chunk.frame


class _Names:
    """Strings by number, in order of first use."""

    def __init__(self) -> None:
        self._codes: dict[str | None, int] = {}

    def code(self, name: str | None) -> int:
        return self._codes.setdefault(name, len(self._codes))

    def column(self, codes: Codes) -> pl.Series:
        """The strings of these numbers."""
        return pl.Series(list(self._codes), dtype=pl.String).gather(codes)


class _Chunk:
    """The rows of some events, and their names."""

    def __init__(self) -> None:
        self.rows = 0
        self._hosts, self._trials, self._metrics, self._labels = _Names(), _Names(), _Names(), _Names()
        # The description of an event's numbers, by its parts: the codes of each one's metric and labels.
        self._shapes: dict[tuple[flatten.Part, ...], tuple[Codes, Codes]] = {}
        # For each event: codes of host and trial, instant, shape, and its numbers.
        self._events: list[tuple[int, int, int, tuple[Codes, Codes]]] = []
        self._values: list[NDArray[np.float64]] = []

    def append(
        self, host: str, trial: str | None, t_ns: int, parts: tuple[flatten.Part, ...], values: NDArray[np.float64]
    ) -> None:
        shape = self._shapes.get(parts)
        if shape is None:
            shape = self._shapes[parts] = self._shape(parts)
        self._events.append((self._hosts.code(host), self._trials.code(trial), t_ns, shape))
        self._values.append(values)
        self.rows += len(values)

    def frame(self) -> pl.DataFrame:
        """The rows with a known value, in order of arrival."""
        if not self._events:
            return pl.DataFrame(schema=SAMPLES_SCHEMA)
        hosts, trials, instants, shapes = zip(*self._events, strict=True)
        lengths = np.array([len(values) for values in self._values])
        rows = pl.DataFrame(
            {
                "host": self._hosts.column(np.repeat(np.array(hosts, dtype=np.uint32), lengths)),
                "trial": self._trials.column(np.repeat(np.array(trials, dtype=np.uint32), lengths)),
                "t_ns": np.repeat(np.array(instants, dtype=np.int64), lengths),
                "metric": self._metrics.column(np.concatenate([metrics for metrics, _ in shapes])),
                "labels": self._labels.column(np.concatenate([labels for _, labels in shapes])),
                "value": np.concatenate(self._values),
            },
            schema=SAMPLES_SCHEMA,
        )
        return rows.filter(pl.col("value").is_not_nan())

    def _shape(self, parts: tuple[flatten.Part, ...]) -> tuple[Codes, Codes]:
        metrics: list[int] = []
        labels: list[int] = []
        for part in parts:
            names, label = flatten.columns(part)
            metrics += [self._metrics.code(name) for name in names]
            labels += [self._labels.code(label)] * len(names)
        return np.array(metrics, dtype=np.uint32), np.array(labels, dtype=np.uint32)
