"""What `test_ray.py` runs on the head of a Ray cluster: agents on its nodes, one line of JSON for each thing that
happens. Between two parts it waits for a line on its stdin, during which the test does something to the cluster.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from leadline.agents import Agent, Launch, agent_binary
from leadline.agents import agent as agent_module
from leadline.agents.binary import AGENT_NAME
from leadline.agents.launchers.ray import RayCluster, RayHost
from leadline.errors import AgentLost, LeadlineError

HELLO_WITHIN_S = 120.0
PERIOD_MS = 200


def print_line(**what: Any) -> None:
    """Print one line of JSON."""
    os.write(1, json.dumps(what, default=str).encode() + b"\n")


async def go_on() -> None:
    """Wait for a line on stdin. Not in a thread, for which an interrupted loop would wait."""
    is_ready = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(0, is_ready.set)
    await is_ready.wait()
    loop.remove_reader(0)
    assert os.read(0, 1), "stdin has ended"


async def start(hosts: Sequence[RayHost]) -> list[Agent]:
    """An agent on each host, side by side."""

    def launch(host: RayHost) -> Launch:
        return Launch((AGENT_NAME,), hello_within_s=HELLO_WITHIN_S, launcher=host)

    return list(
        await asyncio.gather(*(Agent.start(host.address, launch(host), sink=lambda *_: None) for host in hosts))
    )


async def prepare(cluster: RayCluster) -> None:
    """Put the agent on each host."""
    await cluster.install(AGENT_NAME, {os.uname().machine: agent_binary()})
    assert not any(host.refusals for host in cluster.hosts), [host.refusals for host in cluster.hosts]


async def watch_losses(cluster: RayCluster) -> None:
    """Agents on all hosts, of which some are lost after the first line of stdin; says how each ends and after what
    time, and at the next line what the others still do."""
    await prepare(cluster)
    began = time.monotonic()
    agents = await start(cluster.hosts)
    print_line(
        started=[agent.name for agent in agents],
        after_s=time.monotonic() - began,
        host_pids=[a.hello.pid for a in agents],
    )
    for agent in agents:
        await agent.observe("t", PERIOD_MS, machine=True)

    async def watch(agent: Agent) -> None:
        failure = await agent.failure()
        print_line(lost=agent.name, reason=str(failure), kind=type(failure).__name__, after_s=time.monotonic() - began)

    watching = [asyncio.create_task(watch(agent)) for agent in agents]
    try:
        await go_on()
        began = time.monotonic()
        print_line(watching=True)
        await go_on()
        living = [agent for agent in agents if agent.lost is None]
        clocks = await asyncio.gather(*(agent.compare_clocks(4) for agent in living))
        print_line(living=[clock.host for clock in clocks])
        await go_on()
    finally:
        for task in watching:
            task.cancel()
        began = time.monotonic()
        await asyncio.gather(*(agent.close() for agent in agents))
    print_line(closed=True, after_s=time.monotonic() - began)


async def measure(cluster: RayCluster) -> None:
    """What the way through Ray costs: round trips, bounds of clocks, CPU of this process."""
    # As on hosts of another kernel: with one clock for all, the bounds are 0.
    agent_module._own_boot_id = lambda: None
    began = time.monotonic()
    await prepare(cluster)
    installed = time.monotonic()
    agents = await start(cluster.hosts)
    print_line(installed_s=installed - began, started_s=time.monotonic() - installed)
    try:
        clocks = [await agent.compare_clocks(64) for agent in agents]
        print_line(bounds_ms=_spread([clock.bound_ns / 1e6 for clock in clocks]))
        trips = []
        for agent in agents[:5]:
            for _ in range(200):
                at = time.perf_counter()
                await agent.compare_clocks(1)
                trips.append((time.perf_counter() - at) * 1000)
        print_line(round_trip_ms=_spread(trips))
        used, at = _cpu_s(), time.monotonic()
        for agent in agents:
            await agent.observe("t", 100, machine=True)
        await asyncio.sleep(10)
        elapsed = time.monotonic() - at
        print_line(controller_cpu_share=(_cpu_s() - used) / elapsed, agents=len(agents), samples_per_s=10 * len(agents))
    finally:
        await asyncio.gather(*(agent.close() for agent in agents))


def _spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"min": ordered[0], "p50": ordered[len(ordered) // 2], "p99": ordered[int(len(ordered) * 0.99)]}


def _cpu_s() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


PARTS: dict[str, Callable[[RayCluster], Awaitable[None]]] = {
    "watch_losses": watch_losses, "measure": measure,
}  # fmt: skip


async def main(part: str, head: str, hosts: int, log: str) -> int:
    """Run one part; a failure that users would see is a line too."""
    began = time.monotonic()
    try:
        async with RayCluster(head or None, hosts, place_within_s=10, log=Path(log)) as cluster:
            print_line(hosts=[host.address for host in cluster.hosts], after_s=time.monotonic() - began)
            await PARTS[part](cluster)
            began = time.monotonic()
        print_line(given_back=True, after_s=time.monotonic() - began)
    except LeadlineError as error:
        print_line(error=str(error), exit_code=error.exit_code, lost=isinstance(error, AgentLost))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])))
