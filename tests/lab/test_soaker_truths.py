"""The soaker against loads whose CPU time is known, on one core, in bursts that accounting by ticks misses.

The truth of an interval is what is left of the core after everything that is known to have used it: the load by its
thread's own CPU clock, other tasks by the scheduler's account of the core, and interrupts by what they took of a thread
that watched the clock there while the load ran, and that yielded to it as the soaker does: the load's own timer, and
what the kernel does for the load afterwards, interrupt whatever has the CPU then. What a hypervisor took makes the
truth uncertain by as much.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from leadline.agents import Agent, Event, Launch, UnreadObservation, agent_binary
from leadline.analysis.host_usage import CpuUse, between
from leadline.contract.models import CpuSample, ObservationEvent, SoakerSample
from leadline.errors import AgentLost

pytestmark = [pytest.mark.lab, pytest.mark.exclusive]
full = pytest.mark.full_matrix

SPINNER = Path(__file__).with_name("spinner.py")
INTERVAL_MS = 500
WANTED, TRIED = 8, 40
"""Clean intervals that a comparison needs, and intervals after which it is given up."""
WITHIN = 0.03
MOST_STEAL, MOST_OTHER, SAME_SPEED = 0.03, 0.3, 0.02
OFF_ITS_SHARE = 0.1
"""By more than that, other tasks disturbed the load itself."""
MOST_INTERRUPTS = 0.05
"""Above that share of the core, other tasks or a hypervisor disturbed the watching of the clock."""
TICKS = ("user", "system", "irq", "softirq", "steal")
"""What /proc/stat counts as used, without what it counts as niced: that is the soaker."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One interval of the core, as shares of it."""

    used: float
    """By the load."""
    other: float
    """By all tasks but the load and the soaker."""
    steal: float
    truth: float
    """What was left."""
    left: float
    """What the soaker found."""
    by_ticks: float
    """What was left by /proc/stat."""
    packets: int

    @property
    def error(self) -> float:
        """By how much the soaker is wrong, beyond what the hypervisor makes uncertain."""
        return max(0.0, abs(self.left - self.truth + self.steal / 2) - self.steal / 2)


@dataclass(frozen=True, slots=True)
class Known:
    """The lines of the load."""

    lines: list[dict[str, Any]]

    def grown(self, figure: str, before_ns: int, after_ns: int) -> float:
        """By how much a figure grew between two instants."""
        return self._at(figure, after_ns) - self._at(figure, before_ns)

    def interrupts(self) -> float:
        """The share of its CPU time that interrupts took of the thread that watched the clock."""
        watched_ns = self.lines[-1]["watched_ns"]
        return float(self.lines[-1]["interrupts_ns"] / watched_ns) if watched_ns else 0.0

    def _at(self, figure: str, t_ns: int) -> float:
        place = bisect_left(self.lines, t_ns, key=lambda line: line["t_ns"])
        first, last = self.lines[place - 1], self.lines[place]
        part = (t_ns - first["t_ns"]) / (last["t_ns"] - first["t_ns"])
        return float(first[figure] + part * (last[figure] - first[figure]))


def of_cpu(rows: Sequence[Any], cpu: int) -> Any:
    """The row of a CPU; None if there is none."""
    return next((row for row in rows if row.cpu == cpu), None)


def compared(
    before: ObservationEvent, after: ObservationEvent, cpu: int, known: Known, share: float | None
) -> Compared | None:
    """An interval; None if it is not clean. `share` is what the load was to use, where that is known."""
    length_ns = after.t_ns - before.t_ns
    usage = between(before, after, began_ns=before.t_ns)
    assert usage is not None
    found: CpuUse = of_cpu(usage.cpus, cpu)
    soaked: list[SoakerSample | None] = [of_cpu(one.soaker or (), cpu) for one in (before, after)]
    if found.left is None or found.speed is None or soaked[0] is None or soaked[1] is None:
        return None
    soaker = ((soaked[1].cpu_s or 0.0) - (soaked[0].cpu_s or 0.0)) * 1e9 / length_ns
    used, tasks = (known.grown(figure, before.t_ns, after.t_ns) / length_ns for figure in ("own_ns", "all_ns"))
    other = tasks - used - soaker
    # Interrupts are charged to what they interrupt: to the soaker those that came in its time.
    interrupts = soaker * known.interrupts()
    # Other tasks that take all that the load leaves leave nothing to compare.
    disturbed = found.steal > MOST_STEAL or other > MOST_OTHER * (1 - used) or interrupts > MOST_INTERRUPTS
    if disturbed or 1 - found.speed > SAME_SPEED or (share is not None and abs(used - share) > OFF_ITS_SHARE):
        return None
    used_by_ticks = sum(ticks(before, after, cpu)) * 1e9 / length_ns
    return Compared(
        used=used,
        other=other,
        steal=found.steal,
        truth=1 - used - other - interrupts,
        left=found.left,
        by_ticks=1 - used_by_ticks,
        packets=round(known.grown("packets", before.t_ns, after.t_ns)),
    )


def ticks(before: ObservationEvent, after: ObservationEvent, cpu: int) -> Iterator[float]:
    """Seconds of each kind that /proc/stat counts as used."""
    assert before.machine is not None
    assert after.machine is not None
    first: CpuSample = of_cpu(before.machine.cpus, cpu)
    last: CpuSample = of_cpu(after.machine.cpus, cpu)
    for kind in TICKS:
        yield getattr(last, f"{kind}_s") - getattr(first, f"{kind}_s")
    yield first.nice_s - last.nice_s  # a part of `user`


class Samples:
    """The samples of an agent."""

    def __init__(self) -> None:
        self._queue = asyncio.Queue[ObservationEvent]()

    def on_event(self, _host: str, event: Event, _line: bytes) -> None:
        """Take an event; others than samples are ignored."""
        if isinstance(event, UnreadObservation):
            self._queue.put_nowait(event.read())

    async def next(self, agent: Agent) -> ObservationEvent:
        """The next sample; raises AgentLost if the agent is lost before."""
        taking, lost = asyncio.create_task(self._queue.get()), asyncio.create_task(agent.failure())
        try:
            await asyncio.wait([taking, lost], return_when=asyncio.FIRST_COMPLETED)
            if taking.done():
                return taking.result()
            raise lost.result()
        finally:
            taking.cancel()
            lost.cancel()


async def observed(share: float, kind: str, cpu: int) -> list[Compared]:
    """Clean intervals of a core with this load, or as many as there were."""
    wrap = ["unshare", "--net"] if kind == "flood" else []
    argv = [*wrap, sys.executable, str(SPINNER), str(cpu), str(share), kind]
    pipe = asyncio.subprocess.PIPE
    load = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
    assert load.stdin is not None
    assert load.stdout is not None
    wanted = share if kind == "spin" else None
    known, samples = Known([]), Samples()
    clean: list[Compared] = []

    async def line_after(t_ns: int) -> None:
        assert load.stdout is not None
        while not known.lines or known.lines[-1]["t_ns"] <= t_ns:
            line = await load.stdout.readline()
            assert line, "the load ended"
            known.lines.append(json.loads(line))
        if known.lines[0]["all_ns"] is None:
            pytest.skip("this kernel does not tell the CPU time of all tasks on a core (cgroup v1 cpuacct)")

    try:
        await line_after(0)
        agent = await Agent.start("this host", Launch((str(agent_binary()),)), sink=samples.on_event)
        try:
            await agent.observe("soak", INTERVAL_MS, True, soak=True)
            await samples.next(agent)
            seen = [await samples.next(agent)]  # from here on the soaker runs on every core
            while len(clean) < WANTED and len(seen) <= TRIED:
                seen.append(await samples.next(agent))
                await line_after(seen[-1].t_ns)
                clean = [one for pair in pairwise(seen) if (one := compared(*pair, cpu, known, wanted)) is not None]
        finally:
            await agent.close()
    finally:
        load.stdin.close()
        await load.communicate()
    print(f"interrupts: {known.interrupts():.2%} of the thread that watched the clock")
    return clean


def clean_intervals(share: float, kind: str) -> list[Compared]:
    """Intervals to compare; skips the test if there are too few."""
    cpu = max(os.sched_getaffinity(0))
    found = asyncio.run(observed(share, kind, cpu))
    for one in found:
        print(
            f"used {one.used:.3f}, other {one.other:.3f}, steal {one.steal:.3f}; left: truth {one.truth:.3f}, "
            f"soaker {one.left:.3f}, ticks {one.by_ticks:.3f}; packets {one.packets}"
        )
    if len(found) < WANTED:
        pytest.skip(f"only {len(found)} of {TRIED} intervals were clean: the machine or its hypervisor is busy")
    return found


def check(found: list[Compared]) -> None:
    """The soaker is within the tolerance, and nearer to the truth than the count of ticks."""
    errors = [one.error for one in found]
    assert statistics.median(errors) <= WITHIN
    assert sum(error <= WITHIN for error in errors) >= 0.75 * len(errors), errors
    of_ticks = [abs(one.by_ticks - one.truth) for one in found]
    assert statistics.median(errors) < statistics.median(of_ticks), (errors, of_ticks)


def test_lost_agent_ends_the_wait_for_samples() -> None:
    async def lose() -> None:
        samples = Samples()
        agent = await Agent.start("this host", Launch((str(agent_binary()),)), sink=samples.on_event)
        try:
            await agent.observe("soak", INTERVAL_MS, True, soak=True)
            os.kill(agent.hello.pid, signal.SIGKILL)
            while True:
                await samples.next(agent)
        finally:
            await agent.close()

    with pytest.raises(AgentLost, match="SIGKILL"):
        asyncio.run(lose())


@pytest.mark.parametrize("percent", [*(pytest.param(percent, marks=full) for percent in (10, 30, 60)), 90])
def test_bursts_between_ticks_are_found(percent: int) -> None:
    check(clean_intervals(percent / 100, "spin"))


@pytest.mark.full_matrix
@pytest.mark.skipif(os.geteuid() != 0, reason="a veth needs root")
def test_soft_interrupts_of_a_packet_flood_are_found() -> None:
    found = clean_intervals(0.5, "flood")
    # Some µs each: the kernel's part of the load, without which it would be a spin.
    assert min(one.packets for one in found) > 1000
    check(found)
