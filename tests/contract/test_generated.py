"""The schema and Python's models are what the Rust types say now."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = {
    "agent.schema.json": ROOT / "contract" / "agent.schema.json",
    "models.py": ROOT / "python" / "leadline" / "contract" / "models.py",
    "records.py": ROOT / "python" / "leadline" / "contract" / "records.py",
}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed: the contract cannot be generated")
    folder = tmp_path_factory.mktemp("contract")
    generator = ROOT / "contract" / "generate.sh"
    done = subprocess.run(
        [str(generator), str(folder)],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_file_is_not_stale(fresh: Path, name: str) -> None:
    assert (fresh / name).read_text() == GENERATED[name].read_text(), f"{name} is stale: run contract/generate.sh"
