"""Writes whole files or none, even after a power cut: to a temporary file, synchronised, then renamed.

System errors of a run's files become `DatasetError`.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from leadline.errors import DatasetError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Devices, pipes and some file systems cannot be synchronised; that is not a failed write.
_NOT_SYNCHRONISED = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EROFS}


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Replace a file of a run as `exchange` does.

    Raises `DatasetError` if the disk is full or failing, or the folder is not writable.
    """
    try:
        exchange(path, write)
    except OSError as error:
        raise storage_error(path, error) from error


def exchange(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` create a temporary file in `path`'s folder, then rename it to `path`; leaves nothing on failure.

    Raises OSError if the disk is full or failing, or the folder is not writable.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        # Without these a rename may reach the disk before the content does, and leave an empty file after a power cut.
        _sync_path(temporary, os.O_RDONLY)
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException:
        # On a read-only file system even the removal of a missing file is refused.
        with suppress(OSError):
            temporary.unlink()
        raise


def sync_folder(path: Path) -> None:
    """Synchronise a folder's entries to the disk, so that new and renamed files survive a power cut.

    Raises OSError if the disk fails.
    """
    _sync_path(path, os.O_RDONLY | os.O_DIRECTORY)


def sync(fd: int, *, content_only: bool = False) -> None:
    """Synchronise a file to the disk, as far as its file system supports it. Raises OSError if the disk fails."""
    try:
        if content_only:
            os.fdatasync(fd)
        else:
            os.fsync(fd)
    except OSError as error:
        if error.errno not in _NOT_SYNCHRONISED:
            raise


def _sync_path(path: Path, flags: int) -> None:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)


def storage_error(path: Path, error: OSError) -> DatasetError:
    """The user's message for a failed write: the file, the cause, and the advice."""
    if error.errno in _FULL:
        cause = {errno.EDQUOT: "the disk quota is used up", errno.EFBIG: "the file size limit is reached"}.get(
            error.errno, "no space left on the device"
        )
        hint = "free some space or choose another folder with --out; everything written before is complete"
        return DatasetError(f"cannot write {path}: {cause}", hint=hint, is_full=True)
    if error.errno == errno.EIO:
        return DatasetError(f"cannot write {path}: input/output error", hint="the device or its file system is failing")
    return DatasetError(f"cannot write {path}: {error.strerror or error}")


def with_report_hint(error: DatasetError, folder: Path) -> DatasetError:
    """The error, and for a full disk how to get the tables and the page of what the run's folder has."""
    if not error.is_full:
        return error
    hint = f"free some space, then `leadline report {shlex.quote(str(folder))}`: everything before is kept"
    return DatasetError(error.message, hint=hint, is_full=True)
