"""`scripts/build_agent.py`: what it says while the agent is built; cargo's errors and exit code pass through."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "build_agent.py"


def build(folder: Path, printed: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the script with a cargo that prints this on stderr."""
    cargo = folder / "cargo"
    cargo.write_text(f"#!/bin/sh\necho \"$@\" >{folder}/arguments\nprintf '{printed}' >&2\nexit {code}\n")
    cargo.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    argv = [sys.executable, str(SCRIPT), "quick"]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.processes
def test_parts_are_counted_and_named(tmp_path: Path) -> None:
    said = r"    Updating crates.io index\r Downloading 8 crates\r   Compiling aws-lc-sys v0.1\n"
    bar = r"\033[1;36m    Building\033[0m [====>    ] 66/254: aws-lc-sys(build), serde\r"
    done = build(tmp_path, said + bar)
    first, last = done.stderr.splitlines()
    assert first == "building the agent: 66 of 254 parts; aws-lc-sys, serde"
    assert last.startswith("the agent is built, after ")
    assert (tmp_path / "arguments").read_text() == "build --locked --profile quick --package leadline-agent\n"


@pytest.mark.processes
def test_errors_of_the_compiler_pass_through(tmp_path: Path) -> None:
    done = build(tmp_path, r"error[E0308]: mismatched types\n --> crates/a.rs:1:2\nwarning: unused\n", code=101)
    assert done.returncode == 101
    assert done.stderr == "error[E0308]: mismatched types\n --> crates/a.rs:1:2\nwarning: unused\n"


@pytest.mark.processes
def test_build_of_nothing_says_nothing(tmp_path: Path) -> None:
    assert build(tmp_path, r"    Finished `quick` profile [optimized] target(s) in 0.1s\n").stderr == ""


def test_time_left_is_that_of_builds_at_the_same_point() -> None:
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        format_left = importlib.import_module("build_agent").format_left
    finally:
        sys.path.remove(str(SCRIPT.parent))
    assert format_left(0.57, 42.0) == ", about 58 s left", "42 % of the time is over when 57 % of the parts are done"
    assert format_left(0.57, 84.0) == ", about 2 min left"
    assert format_left(0.01, 10.0) == "", "too early"
    assert format_left(1.0, 100.0) == ", about 1 s left"
