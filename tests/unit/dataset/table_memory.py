"""Writes a table of samples of any length as the end of a run does: `table_memory.py chunks|parts ROWS FOLDER`.

Prints the most memory that it had resident, in bytes. `parts` are what other processes hand over, one for each trial.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from leadline.dataset.parquet import CHUNK_ROWS, ParquetFile, ParquetParts

TRIAL_ROWS = 20_000


def frame(first: int, rows: int) -> pl.DataFrame:
    """Samples whose values compress badly, as real ones do."""
    numbers = np.arange(first, first + rows)
    values = np.random.default_rng(first).random(rows)
    columns = {
        "host": pl.Series([f"client{number}" for number in range(50)]).gather(numbers % 50),
        "trial": pl.repeat(f"c01/{first // TRIAL_ROWS}", rows, eager=True),
        "t_ns": numbers * 1_000_003,
        "metric": pl.Series([f"cpu_{number}_s" for number in range(7)]).gather(numbers % 7),
        "labels": pl.repeat('{"cpu": 1}', rows, eager=True),
        "value": values,
    }
    return pl.DataFrame(columns)


def main() -> None:
    """The command line."""
    how, rows, path = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]) / "samples.parquet"
    file = ParquetFile(path)
    if how == "chunks":
        for first in range(0, rows, CHUNK_ROWS):
            file.add(partial(frame, first, CHUNK_ROWS))
    else:
        for first in range(0, rows, TRIAL_ROWS):
            file.add_parts(ParquetParts().take(partial(frame, first, TRIAL_ROWS)))
    file.write(partial(frame, 0, 0))
    counted = pl.scan_parquet(path).select(pl.len()).collect().item()
    assert counted == rows, counted
    lines = Path("/proc/self/status").read_text().splitlines()
    # Not ru_maxrss: that has the parent's size in it.
    print(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")))


main()
