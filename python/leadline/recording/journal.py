"""The journal of a recording, a line of JSON per exchange, and the HAR file that is made of it.

Lines are written as exchanges end, so that a recorder that is killed loses none. Only one entry at a time is in memory:
the journal is read twice, first for pages, then for the entries in order.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from leadline import __version__
from leadline.errors import InputError
from leadline.recording.pages import Page, Row, assign_pages, read_row


@dataclass(frozen=True, slots=True)
class Recording:
    """What a journal has, without its bodies."""

    path: Path
    rows: list[Row]
    offsets: list[int]
    """Where the line of each row begins."""
    pages: list[Page]
    page_of: list[Page | None]
    unreadable: int
    """Lines that a kill or a full disk has cut."""

    @property
    def hosts(self) -> list[str]:
        """The hosts of all requests, in the order of their first ones."""
        return list(dict.fromkeys(urlsplit(row.url).hostname or "" for row in self.rows))


def open_journal(path: Path) -> int:
    """Make a journal that only its user may read, and lock it while it is written. Returns its file descriptor."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def append(fd: int, start_s: float, end_s: float, entry: dict[str, Any]) -> None:
    """Write an entry as one line. Raises OSError."""
    line = json.dumps({"start_s": start_s, "end_s": end_s, "entry": entry}, ensure_ascii=True).encode() + b"\n"
    while line:
        line = line[os.write(fd, line) :]


def is_being_written(path: Path) -> bool:
    """Whether a recorder still writes a journal."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def read_recording(path: Path) -> Recording:
    """Read the rows of a journal, in the order in which their requests began.

    Raises:
        InputError: it cannot be read, or is no journal.
    """
    found: list[tuple[Row, int]] = []
    unreadable = 0
    try:
        with path.open("rb") as file:
            for offset, line in _lines(file):
                row = _parse_row(line)
                if row is None:
                    unreadable += 1
                else:
                    found.append((row, offset))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", hint="name the journal of a recording") from None
    if unreadable and not found:
        raise InputError(f"{path}: it is no journal of a recording", hint="leadline record names the ones that it left")
    found.sort(key=lambda one: one[0].start_s)
    rows = [row for row, _ in found]
    pages, page_of = assign_pages(rows)
    return Recording(path, rows, [offset for _, offset in found], pages, page_of, unreadable)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    offset = 0
    for line in file:
        yield offset, line
        offset += len(line)


def _parse_row(line: bytes) -> Row | None:
    """The row of a whole line; None for any other."""
    try:
        document = json.loads(line)
        return read_row(float(document["start_s"]), float(document["end_s"]), document["entry"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def write_har(recording: Recording, out: BinaryIO, *, with_binary: bool = True) -> None:
    """Write a recording as HAR 1.2. Without `with_binary`, answers that are no text have no bodies."""
    creator = {"name": "leadline record", "version": __version__}
    pages = [
        {"startedDateTime": _iso(page.start_s), "id": page.name, "title": page.title, "pageTimings": {}}
        for page in recording.pages
    ]
    head = json.dumps({"version": "1.2", "creator": creator, "pages": pages})
    out.write(f'{{"log": {head[:-1]}, "entries": ['.encode())
    with recording.path.open("rb") as file:
        for number, (offset, page) in enumerate(zip(recording.offsets, recording.page_of, strict=True)):
            file.seek(offset)
            entry = json.loads(file.readline())["entry"]
            if page is not None:
                entry = {"pageref": page.name, **entry}
            content = entry["response"]["content"]
            if not with_binary and content.get("encoding") == "base64":
                del content["text"], content["encoding"]
            out.write(b",\n" if number else b"\n")
            out.write(json.dumps(entry).encode())
    out.write(b"\n]}}\n")


def _iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="microseconds")
