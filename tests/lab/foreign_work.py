"""What other processes and a hypervisor took of this machine's CPUs, read from the kernel, for tests of verdicts.

Owns reading /proc/stat and a spinner of a test's own. Says nothing about what is right: that is the tests'.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

_SPIN_LOOP = str(Path(__file__).with_name("spin_loop.py"))
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_USER, _NICE, _SYSTEM, _STEAL = 0, 1, 2, 7


@dataclass(slots=True)
class Taken:
    """CPU time that others took while a block ran, s; known when it has ended."""

    foreign_s: float = 0.0
    """Of processes that are neither this one nor its ended children."""
    stolen_s: float = 0.0


@contextmanager
def taken_by_others() -> Iterator[Taken]:
    """Reads it around a block that ends all processes that it starts."""
    taken = Taken()
    busy, stolen, own = _machine(), _machine(_STEAL), _own_s()
    yield taken
    taken.foreign_s = max(0.0, _machine() - busy - (_own_s() - own))
    taken.stolen_s = _machine(_STEAL) - stolen


def _machine(*kinds: int) -> float:
    """CPU time of the machine's processes, or of some kinds, s."""
    counts = [int(count) for count in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return sum(counts[kind] for kind in kinds or (_USER, _NICE, _SYSTEM)) / _TICKS_PER_S


def _own_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@contextmanager
def spinners() -> Iterator[None]:
    """A spin loop on every CPU, outside of each control group that a lab makes."""
    with ExitStack() as stack:
        for cpu in sorted(os.sched_getaffinity(0)):
            process = subprocess.Popen([sys.executable, _SPIN_LOOP, str(cpu)], stdout=subprocess.PIPE)
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
            stack.callback(process.stdout.close)
        yield
