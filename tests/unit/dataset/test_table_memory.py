"""The memory for writing a table does not grow with its rows, whether chunks come from here or from other processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("table_memory.py")
FEW_ROWS, MANY_ROWS = 2_000_000, 10_000_000


def peak_bytes(how: str, rows: int, folder: Path) -> int:
    argv = [sys.executable, str(PROGRAM), how, str(rows), str(folder)]
    return int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


@pytest.mark.processes
@pytest.mark.takes(12)
@pytest.mark.parametrize("how", ["parts", pytest.param("chunks", marks=pytest.mark.full_matrix)])
def test_five_times_the_rows_take_the_same_memory(tmp_path: Path, how: str) -> None:
    few, many = (peak_bytes(how, rows, tmp_path) for rows in (FEW_ROWS, MANY_ROWS))
    assert many < 1.3 * few, f"{few:,} bytes for {FEW_ROWS:,} rows, {many:,} for {MANY_ROWS:,}"
    assert [path.name for path in tmp_path.iterdir()] == ["samples.parquet"]
