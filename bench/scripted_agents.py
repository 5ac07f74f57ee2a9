"""The stdout of many scripted agents: `scripted_agents.py FOLDER LINES AGENTS EVENTS RATE`.

Makes a FIFO for each agent in FOLDER, and writes the greeting of file LINES (its first line) into each. A line on stdin
begins the events: EVENTS of them to each agent, RATE per second and agent (0: as fast as they are read), spread over
the agents, with a heartbeat each second as an agent has. Event n is a further line of LINES with `"t_ns":n`. Then it
ends, and the agents with it. Standard library only: it starts fast.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

_INSTANT = re.compile(rb'(?<="t_ns":)\d+')
_GROUP = 5
_HEARTBEAT = b'{"type":"heartbeat","t_ns":1}\n'


def main() -> None:
    """The command line."""
    folder, lines, agents, events, rate = Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:6])
    greeting, *samples = lines.read_bytes().splitlines(keepends=True)
    parts = [(line[: found.start()], line[found.end() :]) for line in samples if (found := _INSTANT.search(line))]
    pipes = []
    for number in range(agents):
        os.mkfifo(folder / str(number))
        # Open for reading too: that does not wait for the other end.
        pipes.append(os.open(folder / str(number), os.O_RDWR))
        os.write(pipes[-1], greeting)
    print("ready", flush=True)
    sys.stdin.readline()
    began_s = time.monotonic()
    for event in range(events):
        head, tail = parts[event % len(parts)]
        line = b"%b%d%b" % (head, event, tail)
        if rate and event % rate == 0:
            line = _HEARTBEAT + line
        for number, pipe in enumerate(pipes):
            # In groups, as a sleep costs more than a line.
            if rate and number % _GROUP == 0:
                time.sleep(max(0.0, began_s + (event + number / agents) / rate - time.monotonic()))
            _write(pipe, line)


def _write(pipe: int, line: bytes) -> None:
    while line:
        line = line[os.write(pipe, line) :]


if __name__ == "__main__":
    main()
