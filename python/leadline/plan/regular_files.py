"""Reads the files of a plan: only regular files, up to a size limit. A FIFO could block its reader, and a device may
be endless.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


class NotRegular(OSError):
    """The path is not a regular file, or too large. The text is for the user and begins with 'is'."""


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The content of a file.

    Raises:
        NotRegular: a folder, a FIFO, a device or a socket; or more than `most_bytes`.
        OSError: it cannot be opened or read.
    """
    # With O_NONBLOCK, a FIFO without a writer opens at once; regular files ignore the flag.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise NotRegular(f"is {_kind(mode)}, not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        return _read(file, most_bytes)


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """The content of a file of any type; may block. Raises like `read_regular`."""
    with path.open("rb") as file:
        return _read(file, most_bytes)


def _read(file: BinaryIO, most_bytes: int) -> bytes:
    content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise NotRegular(f"is too large; at most {_size(most_bytes)}")
    return content


def _kind(mode: int) -> str:
    return next((words for is_such, words in _KINDS if is_such(mode)), "something else")


def _size(number: int) -> str:
    return f"{number // 2**20} MiB" if number >= 2**20 else f"{number // 2**10} KiB"


_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)
