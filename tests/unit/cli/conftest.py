"""Fixtures of this folder: the command without its start for `started_command`, a host without a folder for temporary
files, and a full disk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
import started_command

from leadline.dataset import Journal
from leadline.errors import DatasetError


@pytest.fixture(scope="session", autouse=True)
def quick_starts(quick_command: Path) -> None:
    started_command.program = str(quick_command)


@pytest.fixture
def no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with `--read-only`. `tmp_path` is made before."""

    def refuse(*_: object, **__: object) -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("tempfile.gettempdir", refuse)
    monkeypatch.setattr("tempfile.mkstemp", refuse)


@pytest.fixture
def fill_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Leaves journals no room for the first line that contains some bytes, and for none after it."""
    write = Journal._write

    def fill_at(part: bytes) -> None:
        is_full = False

        def write_until_full(journal: Journal, line: bytes) -> None:
            nonlocal is_full
            is_full = is_full or part in line
            if is_full:
                raise DatasetError("journal.ndjson: no space left on the device")
            write(journal, line)

        monkeypatch.setattr(Journal, "_write", write_until_full)

    return fill_at
