"""One measurement of a VPN's protocol in memory, by an agent on this host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from leadline.agents import Agent, Event, Launch, UnreadObservation, agent_binary
from leadline.analysis.crypto import CryptoFigure, CryptoResult, judge_crypto, stolen_share
from leadline.contract.models import (
    CryptoWorkload,
    MachineSample,
    Outcome,
    ProfileWorkload,
    Progress,
)
from leadline.trial.interrupt import Interrupt, stop_when_asked

HERE = "this host"
_TRIAL, _TASK, _PROFILE = "c01/1", "crypto", "profile"
# The agent's own name among its processes.
_AGENT = "agent"
# A prime, so that it does not align with periodic work.
PROFILE_HZ = 499
# perf resolves the symbols of its samples after the end.
_PROFILED_WITHIN_S = 120.0
_OBSERVE_PERIOD_MS = 250
# Handshakes need certificates, which take a few milliseconds; a busy host takes longer.
_READY_WITHIN_S = 30.0
# Each figure takes its time; before opening packets, as many are sealed. 3DES is slow on large memory.
_SLOWER = 10
_END_WITHIN_S = 60.0


async def measure_crypto(
    workload: CryptoWorkload, figures: int, interrupt: Interrupt, done: Callable[[int], None], *, profile: bool = False
) -> tuple[CryptoResult, str | None]:
    """Measure `figures` figures; calls `done` after each. An interrupted measurement returns what it has.

    With `profile`, the agent's call stacks are sampled; the second result is the folded stacks.

    Raises:
        TaskFailed: the agent could not measure it.
        AgentLost: the agent is gone.
    """
    machine: list[MachineSample] = []

    def on_event(_host: str, event: Event, _line: bytes) -> None:
        if isinstance(event, UnreadObservation):
            sample = event.read().machine
            machine.extend([] if sample is None else [sample])
        elif isinstance(event, Progress):
            for row in event.flows:
                done(row.sent_units or 0)

    agent = await Agent.start(HERE, Launch((str(agent_binary()),)), sink=on_event)
    folded = None
    try:
        if profile:
            watched = ProfileWorkload(processes=[_AGENT], frequency_hz=PROFILE_HZ)
            await agent.prepare(_TRIAL, _PROFILE, watched, _READY_WITHIN_S)
        await agent.prepare(_TRIAL, _TASK, workload, _READY_WITHIN_S)
        await agent.observe(_TRIAL, _OBSERVE_PERIOD_MS, True)
        stopper = asyncio.create_task(stop_when_asked(interrupt, agent, _TRIAL, _TASK))
        try:
            await agent.begin(_TRIAL, 0)
            limit_s = figures * workload.duration_ms / 1000 * _SLOWER + _END_WITHIN_S
            finished = await agent.finished(_TRIAL, _TASK, limit_s)
        finally:
            stopper.cancel()
        if profile:
            await agent.stop(_TRIAL, _PROFILE)
            folded = (await agent.profiled(_TRIAL, _PROFILE, _PROFILED_WITHIN_S)).folded
    finally:
        await agent.close()
    result = result_of(finished.outcome, machine, whole=not interrupt.asked.is_set(), profiled=profile)
    return replace(result, build_profile=agent.hello.build_profile), folded


def result_of(outcome: Outcome, machine: list[MachineSample], *, whole: bool, profiled: bool = False) -> CryptoResult:
    """The agent's figures, with a verdict from the data of its thread and the machine."""
    found = [
        CryptoFigure(one.what, one.algorithm, one.bytes, one.operations, one.cpu_ns, one.wall_ns)
        for one in outcome.crypto or []
    ]
    waits = [
        (thread.runnable_wait_s, thread.wall_s)
        for thread in outcome.generator.threads
        if thread.runnable_wait_s is not None and thread.wall_s
    ]
    waited = max((wait_s / wall_s for wait_s, wall_s in waits), default=None)
    stolen = stolen_share(machine[0].cpus, machine[-1].cpus) if machine else None
    return judge_crypto(found, whole=whole, waited=waited, stolen=stolen, profiled=profiled)
