"""Adds one thing to pyproject.toml: each archive holds the commit that it was made from, in `leadline/commit`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

TREE = Path(__file__).resolve().parent
COMMIT = Path("leadline") / "commit"


def commit() -> str | None:
    """The commit of this tree: what its sdist says, or git; None where neither knows."""
    packed = TREE / "python" / COMMIT
    if packed.is_file():
        return packed.read_text(encoding="ascii").strip()
    command = ["git", "-C", str(TREE), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def write_commit(packages: Path) -> None:
    """Writes it below the folder that holds the packages."""
    if known := commit():
        (packages / COMMIT).write_text(known + "\n", encoding="ascii")


class BuildWithCommit(build_py):
    """The packages, and the commit; an editable install asks git instead."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            write_commit(Path(self.build_lib))


class SdistWithCommit(sdist):
    """The source tree, and the commit, which git cannot tell there."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        write_commit(Path(base_dir) / "python")


setup(cmdclass={"build_py": BuildWithCommit, "sdist": SdistWithCommit})
