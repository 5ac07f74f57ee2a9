"""Files that only their owner may read: keys, and configurations that contain keys."""

from __future__ import annotations

import os
from pathlib import Path

from leadline.dataset.atomic import storage_error


def private_folder(path: Path) -> Path:
    """Create the folder with mode 700, and each missing folder above it.

    Raises:
        DatasetError: there is no space, or no permission.
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
    """Write a new file with its mode from the first byte on; replaces an older file of that name, and never reopens
    it.

    Raises:
        DatasetError: there is no space, or no permission.
    """
    try:
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise storage_error(path, error) from error
    return path
