"""The journal: one JSON object per line, appended as events arrive, readable after a kill at any time.

An append is one `write(2)` on a file opened with O_APPEND, so a killed controller loses nothing; events that are to be
appended later are written with the next line, or by `flush`. Each `trial-end` synchronises everything before it to the
disk, so a power cut loses only the current trial. A write that fails half way is undone; if even that fails, the next
line begins with a newline, so that a torn line never merges with its successor. Reading skips and counts torn and
garbled lines; `analysis` reports the counts.

The writer keeps some space in reserve: on a full disk no more events are taken, and the records of the end still fit.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, BinaryIO, Self

import pydantic_core

from leadline.dataset.atomic import storage_error, sync, sync_folder, with_report_hint
from leadline.dataset.finite_json import find_infinite, may_be_infinite, replace_infinite
from leadline.errors import DatasetError

Entry = dict[str, Any]
"""An event as it arrived, `{"host", "at_ns", "event"}`, or a record of the controller, `{"record", "at_ns", ...}`."""

# An agent's line is at most 16 MiB (`LINE_LIMIT_BYTES` in crates/wire); twice that has room for its envelope,
# and limits the memory for a garbled file.
LINE_LIMIT_BYTES = 32 * 1024 * 1024

RESERVE_BYTES = 16 * 1024

STRICT_VARIABLE = "LEADLINE_STRICT_JOURNAL"

_BLANK = b"\0 \t\r\n"
# Appending one of these synchronises everything before it to the disk.
_DURABLE = frozenset({"trial-end", "run-end"})


def reads_strictly() -> bool:
    """Whether an unreadable line is an error instead of a count. For tests with journals that Leadline wrote itself:
    there such a line is a defect of the writer or of the reader."""
    return os.environ.get(STRICT_VARIABLE) == "1"


class Journal:
    """The writing end. Only one process and one thread may append at a time."""

    def __init__(self, path: Path) -> None:
        """Open `path` for appending, creating it if needed; raises `DatasetError` if that fails."""
        self._path = path
        is_new = not path.exists()
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if is_new:
                sync_folder(path.parent)
        except OSError as error:
            raise storage_error(path, error) from error
        self._torn = self._ends_torn()
        self._waiting: list[bytes] = []
        self._full: DatasetError | None = None
        self._reserve = _reserve(path) if path.is_file() else None

    def append(self, entry: Mapping[str, Any]) -> None:
        """Append one line. Raises `DatasetError` if the disk is full or failing; the journal stays readable."""
        try:
            self.flush()
        finally:
            self._write(_encode(entry) + b"\n")
        if entry.get("record") in _DURABLE:
            self._synchronise()

    def append_event(self, host: str, at_ns: int, line: bytes) -> None:
        """Append an agent's event as the agent wrote it: one JSON object on a line. Raises like `append`, and once the
        disk was full: what is free then is for the records of the end."""
        self.append_event_later(host, at_ns, line)
        self.flush()

    def append_event_later(self, host: str, at_ns: int, line: bytes) -> None:
        """Append an agent's event together with what comes next, or by `flush`. Raises once the disk was full."""
        if self._full is not None:
            raise self._full
        self._waiting.append(b'{"host":%b,"at_ns":%d,"event":%b}\n' % (_encode_host(host), at_ns, line.strip()))

    def flush(self) -> None:
        """Write the events that were to be appended later. Raises like `append`; the lines that did not fit are
        lost."""
        if self._waiting:
            lines = b"".join(self._waiting)
            self._waiting.clear()
            self._write(lines)

    @property
    def size_bytes(self) -> int:
        """The size of the file: the start of the next entry."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Synchronise the lines to the disk and close the file; a second call does nothing."""
        if self._fd < 0:
            return
        try:
            self.flush()
        finally:
            self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        self._release()
        try:
            # Devices and pipes cannot be synchronised; only tests use them as a journal.
            with contextlib.suppress(OSError):
                os.fsync(fd)
        finally:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, lines: bytes) -> None:
        if self._torn:
            lines = b"\n" + lines
        written = 0
        try:
            while written < len(lines):
                written += os.write(self._fd, lines[written:])
        except OSError as error:
            self._take_back(written - (lines.rfind(b"\n", 0, written) + 1))
            failure = with_report_hint(storage_error(self._path, error), self._path.parent)
            if failure.is_full:
                self._full = failure
                self._release()
            raise failure from error
        self._torn = False

    def _release(self) -> None:
        if self._reserve is not None:
            self._reserve.close()
            self._reserve = None

    def _synchronise(self) -> None:
        try:
            sync(self._fd, content_only=True)
        except OSError as error:
            raise storage_error(self._path, error) from error

    def _take_back(self, written: int) -> None:
        """Remove the beginning of a line that was not written completely, of that many bytes."""
        if written == 0:
            return
        try:
            os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
        except OSError:
            self._torn = True

    def _ends_torn(self) -> bool:
        """Whether the existing file ends in the middle of a line."""
        try:
            size = os.fstat(self._fd).st_size
            return size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"
        except OSError:
            return False


class JournalReader:
    """The reading end: iterate for the entries; afterwards `torn` and `damaged` describe the unreadable lines.

    `torn` is whether the last line is incomplete, as after a kill or a power cut; `damaged` counts lines that are not
    a JSON object, have NaN or a number beyond a double's range, or needed NUL bytes removed. During iteration, the
    counts are of the lines before the current entry. Each entry goes to the `takers` first, so that tables and figures
    need only one pass. Lines that `skips` chooses are not even decoded; another reader has them.
    """

    def __init__(
        self,
        path: Path,
        begin_byte: int = 0,
        takers: Sequence[Callable[[Entry], None]] = (),
        *,
        end_byte: int | None = None,
        skips: Callable[[bytes], object] | None = None,
    ) -> None:
        self.path = path
        self._begin_byte = begin_byte
        self._end_byte = end_byte
        self._takers = tuple(takers)
        self._skips = skips
        self.line_begin_byte = begin_byte
        """Where the line of the current entry begins."""
        self.line_end_byte = begin_byte
        """Where it ends."""
        self.torn = False
        self.damaged = 0
        self._lines = 0

    def __iter__(self) -> Iterator[Entry]:
        self.torn = False
        self.damaged = 0
        self._lines = 0
        self.line_end_byte = self._begin_byte
        try:
            with self.path.open("rb", buffering=1024 * 1024) as file:
                if self._begin_byte:
                    file.seek(self._begin_byte)
                yield from self._entries(file)
        except OSError as error:
            raise DatasetError(f"cannot read {self.path}: {error.strerror or error}") from error

    def _entries(self, file: BinaryIO) -> Iterator[Entry]:
        while self.line_end_byte != self._end_byte and (line := file.readline(LINE_LIMIT_BYTES)):
            self.line_begin_byte = self.line_end_byte
            self.line_end_byte += len(line)
            if len(line) == LINE_LIMIT_BYTES and not line.endswith(b"\n"):
                self._skip_line(file)
                continue
            if self._skips is not None and self._skips(line):
                continue
            content = line.strip(_BLANK)
            entry = _decode(content) if content else None
            self._lines += bool(content)
            if entry is None and not line.endswith(b"\n"):
                self.torn = True
            elif (entry is None and content) or b"\0" in line:
                self._count_damaged()
            if entry is not None:
                for take in self._takers:
                    take(entry)
                yield entry

    def _skip_line(self, file: BinaryIO) -> None:
        """Skip a line that is longer than any that Leadline writes."""
        self._lines += 1
        self._count_damaged()
        while rest := file.readline(LINE_LIMIT_BYTES):
            self.line_end_byte += len(rest)
            if rest.endswith(b"\n"):
                break

    def _count_damaged(self) -> None:
        self.damaged += 1
        if reads_strictly():
            raise DatasetError(f"{self.path}: line {self._lines} is not an entry of a journal")


def read_journal(path: Path, begin_byte: int = 0) -> JournalReader:
    """The entries of a journal, in order, starting at the line at that byte; each iteration reads the file again."""
    return JournalReader(path, begin_byte)


def _reserve(path: Path) -> IO[bytes] | None:
    """A file without a name in the folder of `path`, which occupies space until it is closed, and no longer than this
    process lives."""
    try:
        file = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115 (the journal closes it)
    except OSError:
        return None
    try:
        os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
    except OSError:  # no space, or a file system that reserves none
        file.close()
        return None
    return file


@lru_cache(maxsize=4096)
def _encode_host(host: str) -> bytes:
    return pydantic_core.to_json(host)


def _encode(entry: Mapping[str, Any]) -> bytes:
    try:
        return pydantic_core.to_json(entry, inf_nan_mode="null")
    except pydantic_core.PydanticSerializationError:
        # Text that is not Unicode (a daemon's output, a file name) contains surrogates, which UTF-8 cannot encode.
        return json.dumps(replace_infinite(entry), default=str, separators=(",", ":")).encode("ascii")


def _decode(content: bytes) -> Entry | None:
    try:
        value = pydantic_core.from_json(content)
    except ValueError:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            return None
    if may_be_infinite(content) and find_infinite(value) is not None:
        return None
    return value if isinstance(value, dict) else None
