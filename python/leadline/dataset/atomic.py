"""Whole files or none: written beside the target, then renamed over it. The system's words become `DatasetError`."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from leadline.errors import DatasetError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` make a temporary file in `path`'s folder and renames it to `path`; leaves nothing on failure.

    Raises `DatasetError` when the disk is full, failing, or the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise storage_error(path, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def storage_error(path: Path, error: OSError) -> DatasetError:
    """The line that a user reads when a write failed: which file, why, and what to do."""
    if error.errno in _FULL:
        cause = {errno.EDQUOT: "the disk quota is used up", errno.EFBIG: "the file size limit is reached"}.get(
            error.errno, "no space left on the device"
        )
        hint = "free some space or choose another folder with --out; what was written before is whole"
        return DatasetError(f"cannot write {path}: {cause}", hint=hint)
    if error.errno == errno.EIO:
        return DatasetError(f"cannot write {path}: input/output error", hint="the device or its file system is failing")
    return DatasetError(f"cannot write {path}: {error.strerror or error}")
