"""A load whose CPU time is known: spinner.py CPU SHARE [spin|flood], until its input ends.

Each burst begins after a tick of the kernel's timer and ends before the next one, so that accounting by ticks misses
it. `flood` sends datagrams over a veth meanwhile, whose reception the kernel does in the sender's context; it needs a
network of its own. Says a line of JSON every few ticks: the instant, the CPU time of its thread, that of all tasks on
the CPU (null where the kernel does not tell), the packets that arrived, and what a watch of the clock found: a process
that watches it on the same CPU while the load runs, now and then, at a priority at which it yields to the load as the
soaker does. It says how much CPU time it was charged, and what of that interrupts took. A helper of
test_soaker_truths.py.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

CLOCK_MONOTONIC_COARSE = 6
"""clock_gettime(2): the time of the kernel's last tick."""
TICKS_PER_LINE = 5
GROUP_TIMES = Path("/sys/fs/cgroup/cpuacct/cpuacct.usage_percpu")
FAR_ADDRESS = "02:00:00:00:00:02"
GAP_NS = 5_000
"""Far above the time from one look at the clock to the next."""
WATCHED_NS, RESTED_S = 40_000_000, 0.36
"""A watch is some ticks of the timer long, so that it takes little of what it leaves to the soaker."""
WATCHED = struct.Struct("qq")
"""The CPU time of all watches so far, and what interrupts took of it, ns."""


def last_tick_ns() -> int:
    """When the kernel's timer ticked last."""
    return time.clock_gettime_ns(CLOCK_MONOTONIC_COARSE)


def all_tasks_ns(cpu: int) -> int | None:
    """The CPU time of all tasks on a CPU, as the scheduler measures it."""
    try:
        return int(GROUP_TIMES.read_text().split()[cpu])
    except OSError:
        return None


def arrived() -> int:
    """The packets that the far end of the veth has received."""
    rows = dict(row.split(":") for row in Path("/proc/net/dev").read_text().splitlines()[2:])
    return next((int(row.split()[1]) for name, row in rows.items() if name.strip() == "far"), 0)


def watch_clock() -> tuple[int, int]:
    """The CPU time that this thread was charged in one watch, and what interrupts took of it, ns.

    Interrupts are charged to what they interrupt. They are the gaps in what the thread sees of the clock, less the time
    for which other tasks had the CPU. What a hypervisor takes and does not tell the kernel counts as well.
    """
    gaps_ns, began_ns, charged_ns = 0, time.monotonic_ns(), time.thread_time_ns()
    now_ns = began_ns
    while now_ns < began_ns + WATCHED_NS:
        before_ns, now_ns = now_ns, time.monotonic_ns()
        if now_ns - before_ns > GAP_NS:
            gaps_ns += now_ns - before_ns
    charged_ns = time.thread_time_ns() - charged_ns
    return charged_ns, gaps_ns - (now_ns - began_ns - charged_ns)


def start_watching(found: mmap.mmap) -> int:
    """Start the process that watches the clock, on the CPU of this one; returns its id."""
    parent, child = os.getpid(), os.fork()
    if child != 0:
        return child
    os.close(1)  # its reader waits for the end of the load
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    total_ns = taken_ns = 0
    while os.getppid() == parent:
        charged_ns, interrupts_ns = watch_clock()
        total_ns, taken_ns = total_ns + charged_ns, taken_ns + interrupts_ns
        WATCHED.pack_into(found, 0, total_ns, taken_ns)
        time.sleep(RESTED_S)
    os._exit(0)


def print_times(cpu: int, watched: mmap.mmap) -> None:
    """Print what was used so far as a line of JSON."""
    watched_ns, interrupts_ns = WATCHED.unpack_from(watched)
    line = {
        "t_ns": time.monotonic_ns(),
        "own_ns": time.thread_time_ns(),
        "all_ns": all_tasks_ns(cpu),
        "packets": arrived(),
        "watched_ns": watched_ns,
        "interrupts_ns": interrupts_ns,
    }
    os.write(1, json.dumps(line).encode() + b"\n")


def veth() -> socket.socket:
    """A socket whose datagrams arrive at the far end of a veth, where the kernel looks for a route and drops them."""

    def ip(words: str) -> None:
        subprocess.run(["ip", *words.split()], check=True)

    ip(f"link add near type veth peer name far address {FAR_ADDRESS}")
    ip("addr add 10.99.0.1/24 dev near")
    ip("link set near up")
    ip("link set far up")
    ip(f"neigh replace 10.99.0.2 lladdr {FAR_ADDRESS} dev near nud permanent")
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(("10.99.0.2", 9))
    return sender


def main(cpu: int, share: float, kind: str) -> None:
    """Use the share of the CPU until the input ends."""
    work: Callable[[], object] = time.monotonic_ns
    if kind == "flood":
        work = functools.partial(veth().send, bytes(64))
    os.sched_setaffinity(0, {cpu})
    gc.disable()
    watched = mmap.mmap(-1, WATCHED.size)
    watcher = start_watching(watched)
    # Other tasks are not to delay its bursts; where that is not allowed, they do.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    tick_ns = round(time.clock_getres(CLOCK_MONOTONIC_COARSE) * 1e9)
    free_ns = round(tick_ns * (1 - share) / 2)
    ticks = 0
    while not (ticks % TICKS_PER_LINE == 0 and select.select([0], [], [], 0)[0]):
        begin_ns = last_tick_ns() + tick_ns + free_ns
        time.sleep(max(0, begin_ns - time.monotonic_ns()) / 1e9)
        # In the burst, so that this hides, too.
        if ticks % TICKS_PER_LINE == 0:
            print_times(cpu, watched)
        while time.monotonic_ns() < begin_ns + share * tick_ns:
            work()
        ticks += 1
    os.kill(watcher, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
