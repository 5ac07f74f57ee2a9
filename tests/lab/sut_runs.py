"""Runs of `sut_trial.py`, each in a jail of its own, for the tests of systems under test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest

from leadline.agents import agent_binary
from leadline.errors import MissingBinary

PROGRAM = Path(__file__).with_name("sut_trial.py")
SOURCES = Path(__file__).resolve().parents[2] / "python"
WITHIN_S = 180


@pytest.fixture(scope="module")
def lab_is_possible() -> None:
    """Skips where no lab can be made."""
    try:
        agent_binary()
    except MissingBinary as error:
        pytest.skip(str(error))
    tried = _call(sys.executable, "-c", "from leadline.lab import jail; print(jail.available().reason or '')")
    if tried.stdout.strip():
        pytest.skip(tried.stdout.strip())


def run(folder: Path, prefix: tuple[str, ...] = (), **spec: Any) -> dict[str, Any]:
    """What the trial says of itself; fails if something outlived its take-down."""
    # The server of the command has root's rights.
    interpreter = (*prefix, sys.executable) if prefix else (str(cli.quick_command),)
    done = _call(*interpreter, str(PROGRAM), json.dumps(spec), str(folder))
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["left"] == [], "tunnel devices or daemons outlived the take-down"
    return said


def states(said: dict[str, Any]) -> list[str]:
    """The state of each client."""
    assert "up" in said, said
    return [client["state"] for client in said["up"]["clients"]]


def _call(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
