"""Spins: `spin_loop.py CPU` on one CPU until it is killed, after a line of output; `spin_loop.py --for SECONDS` on any
CPU for this much CPU time. Helpers of tests start it."""

from __future__ import annotations

import os
import sys
import time


def spin_for(cpu_s: float) -> None:
    """Use this much CPU time."""
    begin_s = time.process_time()
    while time.process_time() - begin_s < cpu_s:
        pass


def spin_on(cpu: int) -> None:
    """Use a CPU for ever."""
    os.sched_setaffinity(0, [cpu])
    print(flush=True)
    while True:
        pass


if __name__ == "__main__":
    if sys.argv[1] == "--for":
        spin_for(float(sys.argv[2]))
    else:
        spin_on(int(sys.argv[1]))
