"""Whether this machine is quiet enough for a test whose truth needs a CPU to itself."""

from __future__ import annotations

import time
from pathlib import Path

WATCHED_S = 0.5
LOOKS = 6
"""What the test before left may take this many looks to end; other work that comes in bursts shows in one of them."""
MAX_BUSY_CPUS = 0.25
"""What may be busy, in CPUs, before a test begins that needs one to itself: an idle machine uses a few hundredths."""
_TICKS_PER_S = 100
_IDLE = (3, 4)
"""Fields of /proc/stat (proc_stat(5)): idle, and waiting for a disk."""
_busy_before = list[float]()
"""Of tests that found this machine busy for all looks: those after them look once."""


def why_not_quiet() -> str | None:
    """What keeps this machine from being quiet before a test; None as soon as nothing does."""
    busy = 0.0
    for _ in range(1 if _busy_before else LOOKS):
        busy = _busy_cpus()
        if busy <= MAX_BUSY_CPUS:
            _busy_before.clear()
            return None
    _busy_before.append(busy)
    return f"the machine is not quiet: {busy:.2f} CPUs were busy, and this test needs one to itself"


def why_disturbed() -> str | None:
    """What a look at this machine finds after a test that failed; None if it is quiet each time."""
    busiest = max(_busy_cpus() for _ in range(LOOKS))
    return f"the machine is not quiet: {busiest:.2f} CPUs were busy after it" if busiest > MAX_BUSY_CPUS else None


def _busy_cpus() -> float:
    began, before = time.monotonic(), _busy_ticks()
    time.sleep(WATCHED_S)
    return (_busy_ticks() - before) / _TICKS_PER_S / (time.monotonic() - began)


def _busy_ticks() -> int:
    """The ticks in which a CPU worked, or a hypervisor had it."""
    _, *fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
    return sum(int(field) for number, field in enumerate(fields[:8]) if number not in _IDLE)
