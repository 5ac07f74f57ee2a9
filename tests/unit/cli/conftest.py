"""Fixture of this folder: the command without its start for `started_command`."""

from __future__ import annotations

from pathlib import Path

import pytest
import started_command


@pytest.fixture(scope="session", autouse=True)
def quick_starts(quick_command: Path) -> None:
    started_command.program = str(quick_command)
