"""The schema and Python's models are what the Rust types say now."""

from __future__ import annotations

import hashlib
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


def test_files_and_their_sources_are_those_of_the_last_generation() -> None:
    """Compiling the types takes a minute; their sums say whether anything has changed since."""
    lines = (ROOT / "contract" / "generated.sha256").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    assert {name for name in sums if name.startswith("crates/wire/src/")} == {
        str(path.relative_to(ROOT)) for path in (ROOT / "crates" / "wire" / "src").rglob("*.rs")
    }
    assert {str(path.relative_to(ROOT)) for path in GENERATED.values()} < sums.keys()
    changed = [
        name for name, digest in sums.items() if hashlib.sha256((ROOT / name).read_bytes()).hexdigest() != digest
    ]
    assert changed == [], "run `make contract`"


@pytest.mark.full_matrix
@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_file_is_not_stale(fresh: Path, name: str) -> None:
    assert (fresh / name).read_text() == GENERATED[name].read_text(), f"{name} is stale: run contract/generate.sh"
