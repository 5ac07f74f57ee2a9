"""Fixtures of this folder: those of `openvpn_place`, and the command without its start for `cli_runs`."""

from __future__ import annotations

from pathlib import Path

import cli_runs
import pytest
from openvpn_place import keys, place

__all__ = ["keys", "place"]


@pytest.fixture(scope="session", autouse=True)
def quick_runs(quick_command: Path) -> None:
    cli_runs.quick_command = quick_command
