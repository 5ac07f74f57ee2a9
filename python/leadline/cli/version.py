"""What `leadline --version` prints: the version, the commit that this installation was built from, and the agent.

Reads the commit from a file of the package, or asks git in a checkout. Asks the agent's program for its version and the
profile that built it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from leadline import __version__
from leadline.errors import MissingBinary

_PACKED = Path(__file__).parents[1] / "commit"
_AGENT_WITHIN_S = 10
_TREE = Path(__file__).resolve().parents[3]


def version_text() -> str:
    """The version and the commit, and below it the agent's."""
    known = commit()
    return f"leadline {__version__} ({f'commit {known}' if known else 'commit unknown'})\n{agent_line()}"


def agent_line() -> str:
    """The agent's version, the profile that built it, and where it is; or why that is not known."""
    from leadline.agents.binary import AGENT_NAME, agent_binary

    try:
        path = agent_binary()
        command = [str(path), "--version"]
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_AGENT_WITHIN_S).stdout
    except MissingBinary:
        return f"{AGENT_NAME} is not installed"
    except (OSError, subprocess.SubprocessError) as error:
        return f"{AGENT_NAME}: version unknown: {error}"
    return f"{' '.join(said.split())} at {path}"


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
