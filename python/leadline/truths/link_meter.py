"""Reads what arrives at an interface every 10 ms: `link_meter.py INTERFACE`.

Prints a line once it reads. When its stdin ends it prints its readings as one line of JSON: time of the monotonic clock
in s, bytes and packets so far, each as it changes. Runs in the namespace of the interface, and imports nothing of
Leadline.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from contextlib import suppress

_PERIOD_S = 0.010
Reading = tuple[float, int, int]


def read(interface: str) -> Reading:
    """What has arrived so far."""
    with open("/proc/thread-self/net/dev", encoding="ascii") as file:  # noqa: PTH123 - pathlib takes long to import
        line = next(line for line in file if line.lstrip().startswith(f"{interface}:"))
    fields = line.partition(":")[2].split()
    return time.monotonic(), int(fields[0]), int(fields[1])


def readings_until_end(interface: str) -> list[Reading]:
    """The readings that differ from the one before, until stdin ends."""
    found = [read(interface)]
    while not select.select([0], [], [], _PERIOD_S)[0]:
        now = read(interface)
        if now[1:] != found[-1][1:]:
            found.append(now)
    return found


if __name__ == "__main__":
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -15)  # so that readings are not late
    print("reading", flush=True)
    sys.stdout.write(json.dumps(readings_until_end(sys.argv[1])))
    sys.stdout.flush()
    os._exit(0)
