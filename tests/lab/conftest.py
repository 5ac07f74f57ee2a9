"""Fixtures of this folder: those of `openvpn_place`, the command without its start for `cli_runs`, and short
calibrations.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import cli_runs
import pytest
from openvpn_place import keys, place

__all__ = ["keys", "place"]


@pytest.fixture(scope="session", autouse=True)
def short_calibrations() -> Iterator[None]:
    """No test here says what a ceiling is; one is measured for each shape of an HTTP load."""
    with mock.patch.dict(os.environ, {"LEADLINE_CALIBRATION_MS": "200"}):
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_runs(quick_command: Path) -> None:
    cli_runs.quick_command = quick_command
