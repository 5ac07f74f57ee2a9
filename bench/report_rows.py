"""Rows of a long run's report: time, memory and the page's size, of a journal with ten million rows of samples.

The journal is a short run's on hosts made here, over and over (`made_journal`): its lines are what agents wrote.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import made_journal
from programs import program, run
from rows import Rounds, Row, at_most, bounded

_ROWS = 10_000_000
"""About three hundred copies of a trial of `_PLAN`, in a hundred cases: as many as the page's bound is about."""
_MOST_S, _MOST_MB, _MOST_PAGE_MB = at_most(20, " s"), at_most(1000, " MB"), at_most(3, " MB")
_PLAN = """\
name: long
topology: remote-access
sut: {kind: route}
tests:
  - {name: tcp-up, kind: tcp, duration: 6s, warmup: 1s}
  - {name: udp, kind: udp, rate: 100mbit, duration: 6s}
  - {name: rr, kind: rr, duration: 6s}
  - {name: http, kind: http, connections: 8, rate: 1000/s, duration: 6s}
"""


def report(rounds: Rounds) -> Iterator[Row]:
    """`leadline report` of a whole run, from its journal."""
    del rounds  # Once: it is long by itself.
    with tempfile.TemporaryDirectory() as place:
        plan = Path(place) / "plan.yaml"
        plan.write_text(_PLAN)
        run(["leadline", "run", str(plan), "--out", place])
        short = next(path for path in Path(place).iterdir() if path.is_dir())
        folder = Path(place) / "long"
        rows = made_journal.make(short, folder, _ROWS)
        seconds, peak_mb = _report(folder)
        size_mb = (folder / "report.html").stat().st_size / 1e6
    what = f"report of {rows / 1e6:.1f} M rows of samples"
    yield bounded(f"{what}, time", seconds, f"{seconds:.1f} s", _MOST_S)
    yield bounded(f"{what}, memory", peak_mb, f"{peak_mb:.0f} MB", _MOST_MB)
    yield bounded(f"{what}, page", size_mb, f"{size_mb:.2f} MB", _MOST_PAGE_MB)


def _report(folder: Path) -> tuple[float, float]:
    """Time and peak memory of one report, on all CPUs."""
    began_s = time.monotonic()
    process = subprocess.Popen(
        [program("leadline"), "report", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"leadline report exited with {process.returncode}")
    return time.monotonic() - began_s, usage.ru_maxrss * 1024 / 1e6
