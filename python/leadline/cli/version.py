"""What `leadline --version` prints: the version, and the commit that this installation was built from.

Reads the commit from a file of the package, or asks git in a checkout.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from leadline import __version__

_PACKED = Path(__file__).parents[1] / "commit"
_TREE = Path(__file__).resolve().parents[3]


def version_line() -> str:
    """The version and the commit."""
    known = commit()
    return f"leadline {__version__} ({f'commit {known}' if known else 'commit unknown'})"


def commit() -> str | None:
    """Twelve digits of the commit, with `-dirty` if files differ from it; None if it is unknown."""
    if _PACKED.is_file():
        return _PACKED.read_text(encoding="ascii").strip()
    if not (_TREE / ".git").exists():
        return None
    command = ["git", "-C", str(_TREE), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
