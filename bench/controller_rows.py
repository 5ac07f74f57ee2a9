"""Rows of the controller: the CPU time of its process for each event of an agent, from the pipe to the journal.

The events are observations that a real agent wrote on this host, which scripted agents (`scripted_agents.py`) repeat;
each is a process of its own, and what they take is not the controller's.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from rows import Rounds, Row, at_most, bounded

from leadline.agents import Agent, Event, Launch, agent_binary
from leadline.contract.models import Observe
from leadline.dataset import Journal
from leadline.trial.event_log import EventLog

_MOST_US, _MOST_SHARE = at_most(12, " us"), at_most(0.6)
_STREAM_EVENTS = 20_000
_AGENTS, _RATE = 1000, 10
_SAMPLES = 20
_STARTS_AT_ONCE = 50
_HELLO_WITHIN_S = 60.0
_EVENT = re.compile(rb'^\{"host":"(\d+)",[^\n]*?"event":\{"type":"observation",[^\n]*?"t_ns":(\d+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a number of events cost the controller."""

    events: int
    """Events in the journal, each of them once."""
    lost: int
    """Events that are not in the journal, or there more than once."""
    cpu_s: float
    """Of this process, user and system."""
    wall_s: float

    @property
    def each_us(self) -> float:
        """CPU time for each event, us."""
        return self.cpu_s / self.events * 1e6


def controller(rounds: Rounds) -> Iterator[Row]:
    """One agent that writes as fast as it is read, and a thousand agents that write ten events a second each."""
    with tempfile.TemporaryDirectory() as place:
        lines = Path(place) / "lines"
        lines.write_bytes(b"".join(real_lines(_SAMPLES)))
        costs = [follow(lines, 1, _STREAM_EVENTS, 0) for _ in range(rounds.count)]
        each_us = sorted(cost.each_us for cost in costs)
        median_us = statistics.median(each_us)
        shown = f"{median_us:.1f} us of CPU ({each_us[0]:.1f} to {each_us[-1]:.1f} us in {rounds.count} rounds)"
        yield bounded("controller, an observation journalled", median_us, shown, _MOST_US)
        many = follow(lines, _AGENTS, _RATE * rounds.seconds * 2, _RATE)
    # Of the time that the events are spread over: on a busy machine they take longer.
    share = many.each_us / 1e6 * _AGENTS * _RATE
    shown = f"{share:.0%} of one core ({many.each_us:.1f} us an event, {many.events / many.wall_s:,.0f} events/s)"
    yield bounded(f"controller of {_AGENTS:,} scripted agents at {_RATE} events/s each", share, shown, _MOST_SHARE)
    what = f"events lost of {many.events + many.lost:,} of {_AGENTS:,} scripted agents"
    yield bounded(what, many.lost, str(many.lost), at_most(0))


def real_lines(samples: int) -> list[bytes]:
    """The lines of an agent of this host: its greeting, and as many observations of it, a tenth of a second apart."""
    command = Observe(trial="bench/1", period_ms=100, machine=True).model_dump_json().encode()
    with subprocess.Popen([agent_binary()], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(command + b"\n")
        process.stdin.flush()
        greeting = process.stdout.readline()
        observations = (line for line in process.stdout if line.startswith(b'{"type":"observation"'))
        found = list(islice(observations, samples))
        process.stdin.close()
        process.stdout.read()
    return [greeting, *found]


def follow(lines: Path, agents: int, events: int, rate: int) -> Cost:
    """Journal the events of scripted agents; `rate` per second and agent, or 0 as fast as they are read."""
    with tempfile.TemporaryDirectory() as place:
        fifos, journal = Path(place) / "fifos", Path(place) / "journal.ndjson"
        fifos.mkdir()
        given = Path(__file__).with_name("scripted_agents.py"), fifos, lines, agents, events, rate
        with subprocess.Popen(
            [sys.executable, "-I", *map(str, given)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as script:
            try:
                cpu_s, wall_s = asyncio.run(_follow(script, fifos, journal, agents, agents * events))
            finally:
                script.kill()
        found = Counter(_EVENT.findall(journal.read_bytes()))
    wanted = [(b"%d" % agent, b"%d" % event) for agent in range(agents) for event in range(events)]
    once = sum(found[one] == 1 for one in wanted)
    return Cost(once, len(wanted) - once, cpu_s, wall_s)


async def _follow(
    script: subprocess.Popen[bytes], fifos: Path, path: Path, agents: int, events: int
) -> tuple[float, float]:
    assert script.stdin is not None
    assert script.stdout is not None
    script.stdout.readline()
    heard, all_heard = 0, asyncio.Event()
    with Journal(path) as journal:
        event_log = EventLog(journal)

        def take(host: str, event: Event, line: bytes) -> None:
            nonlocal heard
            event_log.on_event(host, event, line)
            heard += event.type == "observation"
            if heard == events:
                all_heard.set()

        started: list[Agent] = []
        try:
            for first in range(0, agents, _STARTS_AT_ONCE):
                numbers = range(first, min(first + _STARTS_AT_ONCE, agents))
                launches = (Launch(("cat", str(fifos / str(number))), _HELLO_WITHIN_S) for number in numbers)
                starts = map(partial(Agent.start, sink=take), map(str, numbers), launches)
                started += await asyncio.gather(*starts)
            script.stdin.write(b"\n")
            script.stdin.flush()
            began_s, began_cpu_s = time.monotonic(), time.process_time()
            # The agents end after their last event: whatever is lost, this ends too.
            ends: list[asyncio.Task[Any]] = [asyncio.create_task(one) for one in (_ends(started), all_heard.wait())]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return time.process_time() - began_cpu_s, time.monotonic() - began_s
        finally:
            script.kill()  # Its FIFOs are closed then, and the agents end.
            await asyncio.gather(*(agent.close() for agent in started))


async def _ends(agents: list[Agent]) -> None:
    for agent in agents:
        await agent.failure()
