"""A load whose CPU time is known: spinner.py CPU SHARE [spin|flood], until its input ends.

Each burst begins after a tick of the kernel's timer and ends before the next one, so that accounting by ticks misses
it. `flood` sends datagrams over a veth meanwhile, whose reception the kernel does in the sender's context; it needs a
network of its own. Says a line of JSON every few ticks: the instant, the CPU time of its thread, that of all tasks on
the CPU (null where the kernel does not tell), the packets that arrived, and the share of the time by which interrupts
held up this thread while it did nothing but look at the clock. A helper of test_soaker_truths.py.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import select
import socket
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
WATCHES, WATCHED_NS = 5, 200_000_000


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


def held_up() -> float:
    """The share of its own CPU time that a thread loses to interrupts, and to a hypervisor that does not say so.

    It sums the gaps in what the thread sees of the clock, less the time for which other tasks had the CPU.
    """
    gaps_ns, began_ns, charged_ns = 0, time.monotonic_ns(), time.thread_time_ns()
    now_ns = began_ns
    while now_ns < began_ns + WATCHED_NS:
        before_ns, now_ns = now_ns, time.monotonic_ns()
        if now_ns - before_ns > GAP_NS:
            gaps_ns += now_ns - before_ns
    charged_ns = time.thread_time_ns() - charged_ns
    return (gaps_ns - (now_ns - began_ns - charged_ns)) / charged_ns


def say(cpu: int, held: float) -> None:
    """One line of what was used so far."""
    line = {
        "t_ns": time.monotonic_ns(),
        "own_ns": time.thread_time_ns(),
        "all_ns": all_tasks_ns(cpu),
        "packets": arrived(),
        "held_up": held,
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
    # Other tasks that come and go disturb a watch; interrupts of the timer are in each.
    held = min(held_up() for _ in range(WATCHES))
    tick_ns = round(time.clock_getres(CLOCK_MONOTONIC_COARSE) * 1e9)
    free_ns = round(tick_ns * (1 - share) / 2)
    ticks = 0
    while not (ticks % TICKS_PER_LINE == 0 and select.select([0], [], [], 0)[0]):
        begin_ns = last_tick_ns() + tick_ns + free_ns
        time.sleep(max(0, begin_ns - time.monotonic_ns()) / 1e9)
        # In the burst, so that this hides, too.
        if ticks % TICKS_PER_LINE == 0:
            say(cpu, held)
        while time.monotonic_ns() < begin_ns + share * tick_ns:
            work()
        ticks += 1


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
