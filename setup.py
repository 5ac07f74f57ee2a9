"""Adds to pyproject.toml what it cannot say: the agent beside the command, the commit that an archive was made from, in
`leadline/commit`, and the examples, in `leadline/examples`.

With LEADLINE_WITHOUT_AGENT set, no agent is built: `make build` builds it beside this, and shows how far it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from setuptools_rust import RustBin

TREE = Path(__file__).resolve().parent
COMMIT = Path("leadline") / "commit"
AGENT = [RustBin("leadline-agent", path="crates/agent/Cargo.toml", debug=False)]


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


class BuildWithExtras(build_py):
    """The packages, the commit and the examples; an editable install asks git, and reads them in the source tree."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            write_commit(Path(self.build_lib))
            shutil.copytree(TREE / "examples", Path(self.build_lib) / "leadline" / "examples", dirs_exist_ok=True)


class SdistWithCommit(sdist):
    """The source tree, and the commit, which git cannot tell there."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        write_commit(Path(base_dir) / "python")


setup(
    cmdclass={"build_py": BuildWithExtras, "sdist": SdistWithCommit},
    rust_extensions=[] if os.environ.get("LEADLINE_WITHOUT_AGENT") else AGENT,
)
