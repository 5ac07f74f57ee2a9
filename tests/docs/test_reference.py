"""The generated reference of commands is what the commands are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_is_not_stale(tmp_path: Path) -> None:
    renewed = tmp_path / "commands.md"
    typer = Path(sys.executable).parent / "typer"
    argv = [str(typer), "leadline.cli.app", "utils", "docs", "--name", "leadline", "--output", str(renewed)]
    subprocess.run(argv, check=True, capture_output=True)
    committed = ROOT / "docs" / "reference" / "commands.md"
    assert renewed.read_text() == committed.read_text(), "stale: run `make reference`"
