"""The journal: one JSON object a line, appended as events come, readable after a kill at any moment.

An append is one `write(2)` on a file opened with O_APPEND, so what was appended is the kernel's to keep: a killed
controller loses nothing. Each `trial-end` hands everything before it to the disk: a power cut loses the trial at hand.
A write that fails half way is taken back; where even that fails, the next line begins with a newline, so that a torn
line never swallows its successor. Reading skips what is torn or garbled and counts it; `analysis` reports the counts.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pydantic_core

from leadline.dataset.atomic import storage_error, sync, sync_folder
from leadline.errors import DatasetError

Entry = dict[str, Any]
"""An event as it came, `{"host", "at_ns", "event"}`, or a record of the controller's, `{"record", "at_ns", ...}`."""

# An agent's line is at most 16 MiB (`LINE_LIMIT_BYTES` in crates/wire); twice that holds its envelope with room to
# spare and bounds what a garbled file can make us hold.
LINE_LIMIT_BYTES = 32 * 1024 * 1024

STRICT_VARIABLE = "LEADLINE_STRICT_JOURNAL"

_BLANK = b"\0 \t\r\n"
# What was measured until then is on the disk once one of these was appended.
_DURABLE = frozenset({"trial-end", "run-end"})


def reads_strictly() -> bool:
    """Whether a line that cannot be read is an error instead of a count. For tests of journals that Leadline wrote
    itself: there such a line is a defect of the writer or of the reader."""
    return os.environ.get(STRICT_VARIABLE) == "1"


class Journal:
    """The writing end. One process and one thread append at a time."""

    def __init__(self, path: Path) -> None:
        """Opens `path` for appending and makes it where it is missing; raises `DatasetError` when that fails."""
        self._path = path
        is_new = not path.exists()
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if is_new:
                sync_folder(path.parent)
        except OSError as error:
            raise storage_error(path, error) from error
        self._torn = self._ends_torn()

    def append(self, entry: Mapping[str, Any]) -> None:
        """Adds one line. Raises `DatasetError` when the disk is full or failing; the journal stays readable."""
        self._write(_encode(entry) + b"\n")
        if entry.get("record") in _DURABLE:
            self._synchronise()

    def append_event(self, host: str, at_ns: int, line: bytes) -> None:
        """Adds an agent's event as the agent wrote it: one JSON object on a line. Raises as `append` does."""
        envelope = b'{"host":%b,"at_ns":%d,"event":' % (pydantic_core.to_json(host), at_ns)
        self._write(envelope + line.strip() + b"}\n")

    @property
    def size_bytes(self) -> int:
        """How long the file is: where the next entry begins."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Hands the lines to the disk and closes the file; a second call does nothing."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        try:
            # Devices and pipes cannot be synchronised; that they are used as a journal at all is a test's affair.
            with contextlib.suppress(OSError):
                os.fsync(fd)
        finally:
            os.close(fd)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        if self._torn:
            line = b"\n" + line
        written = 0
        try:
            while written < len(line):
                written += os.write(self._fd, line[written:])
        except OSError as error:
            self._take_back(written)
            raise storage_error(self._path, error) from error
        self._torn = False

    def _synchronise(self) -> None:
        try:
            sync(self._fd, content_only=True)
        except OSError as error:
            raise storage_error(self._path, error) from error

    def _take_back(self, written: int) -> None:
        """Removes the beginning of a line that did not fit."""
        if written == 0:
            return
        try:
            os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
        except OSError:
            self._torn = True

    def _ends_torn(self) -> bool:
        """Whether the file, as found, ends in the middle of a line."""
        try:
            size = os.fstat(self._fd).st_size
            return size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"
        except OSError:
            return False


class JournalReader:
    """The reading end: iterate for the entries; afterwards `torn` and `damaged` tell what was not readable.

    `torn` is the last line where it ends in the middle, as a kill or a power cut leaves it; `damaged` counts lines
    that hold no JSON object (garbage), or had to be freed from NUL bytes first. While it is iterated, it counts
    what came before the entry at hand. Each entry goes to the `takers` first: what is made of a journal beside its
    figures needs no pass of its own.
    """

    def __init__(self, path: Path, begin_byte: int = 0, takers: Sequence[Callable[[Entry], None]] = ()) -> None:
        self.path = path
        self._begin_byte = begin_byte
        self._takers = tuple(takers)
        self.torn = False
        self.damaged = 0
        self._lines = 0

    def __iter__(self) -> Iterator[Entry]:
        self.torn = False
        self.damaged = 0
        self._lines = 0
        try:
            with self.path.open("rb", buffering=1024 * 1024) as file:
                if self._begin_byte:
                    file.seek(self._begin_byte)
                yield from self._entries(file)
        except OSError as error:
            raise DatasetError(f"cannot read {self.path}: {error.strerror or error}") from error

    def _entries(self, file: BinaryIO) -> Iterator[Entry]:
        while line := file.readline(LINE_LIMIT_BYTES):
            if len(line) == LINE_LIMIT_BYTES and not line.endswith(b"\n"):
                self._skip_line(file)
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
        """Leaves out a line that is longer than any that is written."""
        self._lines += 1
        self._count_damaged()
        while (rest := file.readline(LINE_LIMIT_BYTES)) and not rest.endswith(b"\n"):
            pass

    def _count_damaged(self) -> None:
        self.damaged += 1
        if reads_strictly():
            raise DatasetError(f"{self.path}: line {self._lines} is no entry of a journal")


def read_journal(path: Path, begin_byte: int = 0) -> JournalReader:
    """The entries of a journal, in order, from the line that begins there on; each iteration reads the file again."""
    return JournalReader(path, begin_byte)


def _encode(entry: Mapping[str, Any]) -> bytes:
    try:
        return pydantic_core.to_json(entry, inf_nan_mode="null")
    except pydantic_core.PydanticSerializationError:
        # Text that is not Unicode (a daemon's output, a file name) has surrogates in it, which UTF-8 cannot say.
        return json.dumps(entry, default=str, separators=(",", ":")).encode("ascii")


def _decode(content: bytes) -> Entry | None:
    try:
        value = pydantic_core.from_json(content)
    except ValueError:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None
