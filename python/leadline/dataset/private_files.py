"""Files that only their owner may read: keys, and configurations that hold keys."""

from __future__ import annotations

import os
from pathlib import Path

from leadline.dataset.atomic import storage_error


def private_folder(path: Path) -> Path:
    """Make the folder with mode 700, and so each folder above it that is not there yet.

    Raises:
        DatasetError: there is no room for it, or no right to it.
    """
    try:
        for folder in (*reversed(path.parents), path):
            if not folder.is_dir():
                folder.mkdir(mode=0o700, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise storage_error(path, error) from error
    return path


def write_private(path: Path, content: bytes | str, *, mode: int = 0o600) -> Path:
    """Write a new file with its mode from its first byte on; an older one of that name is replaced, never reopened.

    Raises:
        DatasetError: there is no room for it, or no right to it.
    """
    try:
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise storage_error(path, error) from error
    return path
