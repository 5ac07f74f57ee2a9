"""Writes one parquet file of any length in chunks, with only a few chunks in memory.

Full chunks are written to unnamed files in the background, and from there to the final file, which appears complete
or not at all. Until then they are in Arrow's IPC format: as short as parquet when compressed, and encoded in a fifth of
the time.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, cast

import polars as pl

from leadline.dataset import atomic

CHUNK_ROWS = 200_000
"""Number of rows of a table in memory: about 20 MB as columns, 100 MB as Python objects."""


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
        self._parts: list[bytes] = []
        self._chunks: list[IO[bytes]] = []
        self._files = ExitStack()
        self._writer: ThreadPoolExecutor | None = None
        self._under_way: Future[None] | None = None

    def add(self, make: Callable[[], pl.DataFrame]) -> None:
        """Make and store a chunk in the background. Raises the error of the previous chunk: `DatasetError`."""
        if self._writer is None:
            self._writer = self._files.enter_context(ThreadPoolExecutor(1, "parquet"))
        self._settle()
        self._under_way = self._writer.submit(self._set_aside, make)

    def add_parts(self, parts: Sequence[bytes]) -> None:
        """Add what a `ParquetParts` of another process has, which is all of the file then."""
        self._parts += parts

    def write(self, last: Callable[[], pl.DataFrame]) -> None:
        """Write the file from all chunks and the last rows; frees the memory. Raises `DatasetError`."""
        if self._parts:
            assert self._writer is None and last().is_empty()
            parts = pl.scan_ipc(self._parts, glob=False)
            atomic.replace(self._path, lambda temporary: _stream(parts, temporary))
            self.close()
            return
        if self._writer is None:
            content = _in_parquet(last())
            atomic.replace(self._path, lambda temporary: _write_bytes(temporary, content))
            return
        self.add(last)
        self._settle()
        # By their descriptors, since they have no names: a killed process leaves no files behind.
        whole = pl.scan_ipc([f"/proc/self/fd/{chunk.fileno()}" for chunk in self._chunks], glob=False)
        atomic.replace(self._path, lambda temporary: _stream(whole, temporary))
        self.close()

    def close(self) -> None:
        """Discard the stored chunks."""
        if self._under_way is not None:
            wait((self._under_way,))
        self._files.close()
        self._chunks, self._parts = [], []
        self._writer = self._under_way = None

    def _settle(self) -> None:
        """Wait for the previous chunk, so that at most two are in memory."""
        if self._under_way is not None:
            self._under_way.result()
            self._under_way = None

    def _set_aside(self, make: Callable[[], pl.DataFrame]) -> None:
        try:
            chunk = _unnamed_file(self._path.parent)
            self._chunks.append(chunk)
            self._files.push(chunk)
            chunk.write(_in_arrow(make()))
            chunk.flush()
        except OSError as error:
            raise atomic.storage_error(self._path, error) from error


def _unnamed_file(folder: Path) -> IO[bytes]:
    """A file that disappears when it is closed, or with the process."""
    return TemporaryFile(dir=folder)


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
    with path.open("wb") as file:
        sink = _Sink(file)
        try:
            target = cast(IO[bytes], sink)
            rows.sink_parquet(target, compression="zstd", row_group_size=CHUNK_ROWS, maintain_order=True)
        except pl.exceptions.PolarsError:
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
