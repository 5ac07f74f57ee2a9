"""Whether this machine is quiet enough for a test whose truth needs a CPU to itself."""

from __future__ import annotations

import time
from pathlib import Path

WATCHED_S = 0.5
MAX_BUSY_CPUS = 0.25
"""What may be busy, in CPUs, before a test begins that needs one to itself: an idle machine uses a few hundredths."""
_TICKS_PER_S = 100
_IDLE = (3, 4)
"""Fields of /proc/stat (proc_stat(5)): idle, and waiting for a disk."""


def why_not_quiet() -> str | None:
    """What keeps this machine from being quiet; None where nothing does."""
    began, before = time.monotonic(), _busy_ticks()
    time.sleep(WATCHED_S)
    busy = (_busy_ticks() - before) / _TICKS_PER_S / (time.monotonic() - began)
    if busy <= MAX_BUSY_CPUS:
        return None
    return f"the machine is not quiet: before this test {busy:.2f} CPUs were busy, and it needs one to itself"


def _busy_ticks() -> int:
    """The ticks in which a CPU worked, or a hypervisor had it."""
    _, *fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
    return sum(int(field) for number, field in enumerate(fields[:8]) if number not in _IDLE)
