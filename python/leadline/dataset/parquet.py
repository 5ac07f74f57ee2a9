"""Writes one parquet file of any length in chunks, with only a few chunks in memory.

Full chunks are encoded in the background. Several at a time go to an unnamed file, and from there to the final file,
which appears complete or not at all. Until then they are in Arrow's IPC format: as short as parquet when compressed,
and encoded in a fifth of the time.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, cast

import polars as pl

from leadline.dataset import atomic

CHUNK_ROWS = 200_000
"""Number of rows of a table in memory: about 20 MB as columns, 100 MB as Python objects."""


MAX_PARTS_BYTES = 4 * 1024 * 1024
"""Of a table's chunks in memory in Arrow's format: some 400,000 rows. A hundred million are some 300 files."""


class ParquetParts:
    """Chunks of a parquet file that another process writes: each one a small file of Arrow's format in memory."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def add(self, make: Callable[[], pl.DataFrame]) -> None:
        """Make and store a chunk."""
        frame = make()
        if frame.height > 0:
            self._parts.append(bytes(_in_arrow(frame)))

    def take(self, last: Callable[[], pl.DataFrame]) -> tuple[bytes, ...]:
        """All chunks and the last rows."""
        self.add(last)
        parts, self._parts = tuple(self._parts), []
        return parts


class ParquetFile:
    """Chunks of one parquet file: functions that make their frames, called on a separate thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: list[bytes | memoryview] = []
        self._parts_bytes = 0
        self._set_aside: list[IO[bytes]] = []
        self._files = ExitStack()
        self._writer: ThreadPoolExecutor | None = None
        self._under_way: Future[None] | None = None

    def add(self, make: Callable[[], pl.DataFrame]) -> None:
        """Make and store a chunk in the background. Raises the error of the previous chunk: `DatasetError`."""
        self._in_background(lambda: self._keep([_in_arrow(make())]))

    def add_parts(self, parts: Sequence[bytes]) -> None:
        """Store what a `ParquetParts` of another process has. Raises like `add`."""
        if parts:
            self._in_background(partial(self._keep, parts))

    def write(self, last: Callable[[], pl.DataFrame]) -> None:
        """Write the file from all chunks and the last rows; frees the memory. Raises `DatasetError`."""
        if self._writer is None:
            content = _in_parquet(last())
            atomic.replace(self._path, lambda temporary: _write_bytes(temporary, content))
            return
        self.add(last)
        self._settle()
        if self._set_aside:
            if self._parts:
                self._set_parts_aside()
            # By their descriptors, since they have no names: a killed process leaves no files behind.
            whole = pl.scan_ipc([f"/proc/self/fd/{file.fileno()}" for file in self._set_aside], glob=False)
        else:
            whole = _scan(self._parts)
        atomic.replace(self._path, lambda temporary: _stream(whole, temporary))
        self.close()

    def close(self) -> None:
        """Discard the stored chunks."""
        if self._under_way is not None:
            wait((self._under_way,))
        self._files.close()
        self._parts, self._set_aside = [], []
        self._parts_bytes = 0
        self._writer = self._under_way = None

    def _in_background(self, work: Callable[[], None]) -> None:
        """Do the work after the previous one, so that at most two chunks are in memory as columns."""
        if self._writer is None:
            self._writer = self._files.enter_context(ThreadPoolExecutor(1, "parquet"))
        self._settle()
        self._under_way = self._writer.submit(work)

    def _settle(self) -> None:
        if self._under_way is not None:
            self._under_way.result()
            self._under_way = None

    def _keep(self, parts: Sequence[bytes | memoryview]) -> None:
        self._parts += parts
        self._parts_bytes += sum(map(len, parts))
        if self._parts_bytes >= MAX_PARTS_BYTES:
            self._set_parts_aside()

    def _set_parts_aside(self) -> None:
        """Write all parts to one file: each open file takes a descriptor, and a run has thousands of stretches."""
        try:
            file = self._files.enter_context(_unnamed_file(self._path.parent))
            self._set_aside.append(file)
            with _naming_errors(file) as sink:
                _scan(self._parts).sink_ipc(sink, compression="zstd", maintain_order=True)
            file.flush()
        except OSError as error:
            raise atomic.storage_error(self._path, error) from error
        self._parts, self._parts_bytes = [], 0


def _unnamed_file(folder: Path) -> IO[bytes]:
    """A file that disappears when it is closed, or with the process."""
    return TemporaryFile(dir=folder)


def _scan(parts: Sequence[bytes | memoryview]) -> pl.LazyFrame:
    return pl.scan_ipc(list(map(bytes, parts)), glob=False)


def _in_parquet(frame: pl.DataFrame) -> memoryview:
    """Encode in memory: polars reports a full disk as a damaged file, the system call reports the real error."""
    content = io.BytesIO()
    frame.write_parquet(content, compression="zstd")
    return content.getbuffer()


def _in_arrow(frame: pl.DataFrame) -> memoryview:
    """Encode in Arrow's IPC format, in memory as well."""
    content = io.BytesIO()
    frame.write_ipc(content, compression="zstd")
    return content.getbuffer()


def _stream(rows: pl.LazyFrame, path: Path) -> None:
    """Write chunk by chunk to one file, in order."""
    with path.open("wb") as file, _naming_errors(file) as sink:
        rows.sink_parquet(sink, compression="zstd", row_group_size=CHUNK_ROWS, maintain_order=True)


@contextmanager
def _naming_errors(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """A file for polars, which reports a full disk as a damaged file: raises the system's own error instead."""
    sink = _Sink(file)
    try:
        yield cast(IO[bytes], sink)
    except (pl.exceptions.PolarsError, OSError):
        if sink.error is not None:
            raise sink.error from None
        raise


class _Sink(io.RawIOBase):
    """Keeps the system's own error of a failed write."""

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
