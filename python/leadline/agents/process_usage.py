"""CPU time and resident memory of one process of this machine, from /proc. Reads once; watches nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """The resources that a process has used so far, over all its threads."""

    cpu_s: float
    resident_bytes: int


def process_usage(pid: int, proc: Path = _PROC) -> ProcessUsage | None:
    """The usage of a process until now; None if it is gone or its files cannot be read."""
    folder = proc / str(pid)
    try:
        resident = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return ProcessUsage(_cpu_s(folder), resident)
    except (OSError, ValueError, IndexError):
        return None


def _cpu_s(folder: Path) -> float:
    """CPU time from the scheduler's clock, in ns; if the kernel has none, by timer ticks of a hundredth of a
    second."""
    try:
        tasks = [int((task / "schedstat").read_text().split()[0]) for task in (folder / "task").iterdir()]
        if tasks and sum(tasks) > 0:
            return sum(tasks) / 1e9
    except (OSError, ValueError, IndexError):
        pass
    # After the name, which may contain blanks and brackets, utime and stime are the 12th and 13th field.
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
