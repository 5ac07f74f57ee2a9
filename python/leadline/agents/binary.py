"""The search for the agent's program on this machine. Starts nothing."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from leadline.errors import MissingBinary

AGENT_NAME = "leadline-agent"
AGENT_VARIABLE = "LEADLINE_AGENT"
LOG_VARIABLE = "LEADLINE_LOG"
"""What agents write to their stderr, as `leadline-agent --help` says. Those of this machine inherit it."""


def agent_binary() -> Path:
    """The agent for this machine: $LEADLINE_AGENT, else next to the interpreter, else in PATH, else built in this
    source tree.

    Raises:
        MissingBinary: none of these exists, or $LEADLINE_AGENT names a file that cannot be run.
    """
    named = os.environ.get(AGENT_VARIABLE)
    if named:
        if not is_executable(Path(named)):
            raise MissingBinary(named, hint=f"{AGENT_VARIABLE} must name the {AGENT_NAME} program")
        return Path(named)
    beside = Path(sys.executable).parent / AGENT_NAME
    if is_executable(beside):
        return beside
    in_path = shutil.which(AGENT_NAME)
    if in_path:
        return Path(in_path)
    built = _built_in_tree()
    if built:
        return built
    raise MissingBinary(AGENT_NAME, hint=f"install it, build it with `make build`, or set {AGENT_VARIABLE} to its path")


def _built_in_tree() -> Path | None:
    """The newest build if this file is in a source tree. An old build would run outdated code."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "crates" / "agent" / "Cargo.toml").is_file():
        return None
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    patterns = ("release", "debug", "*/release", "*/debug")
    found = {path for pattern in patterns for path in target.glob(f"{pattern}/{AGENT_NAME}") if is_executable(path)}
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def is_executable(path: Path) -> bool:
    """Whether the path is a program."""
    return path.is_file() and os.access(path, os.X_OK)
