"""Samples the call stacks of a system under test while a test runs; `flame_graphs` draws them.

Profiling slows the processes down; compare the figures of a profiled run only with those of profiled runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from leadline.agents import Agent
from leadline.contract.models import ProfileWorkload
from leadline.errors import AgentError, TaskFailed
from leadline.trial.environment import Environment

TASK = "profile"
# A prime, so that it does not align with periodic work; each sample keeps 16 KiB of stack.
_HZ = 199
_READY_WITHIN_S = 30.0
# perf resolves the symbols of its samples after the end, some thousand per second.
_RESOLVED_WITHIN_S = 300.0
_NO_PROCESS = "no_such_process"


@asynccontextmanager
async def profiled(label: str, processes: Sequence[str], env: Environment) -> AsyncIterator[None]:
    """Sample the processes while the block runs, on each gateway that runs one; the results are in the journal
    afterwards.

    Raises:
        TaskFailed: a gateway cannot sample.
        AgentLost: one is gone.
    """
    sampled: list[Agent] = []
    try:
        for host in env.gateways if processes else ():
            try:
                workload = ProfileWorkload(processes=list(processes), frequency_hz=_HZ)
                await env.agents[host].prepare(label, TASK, workload, _READY_WITHIN_S)
            except TaskFailed as error:
                if error.code != _NO_PROCESS:
                    raise
            else:
                sampled.append(env.agents[host])
        yield
    finally:
        for agent in sampled:
            await _end(label, agent)


async def _end(label: str, agent: Agent) -> None:
    try:
        await agent.stop(label, TASK)
        await agent.profiled(label, TASK, _RESOLVED_WITHIN_S)
    except AgentError:
        # The test's own result reports its outcome; only the picture is missing.
        return
