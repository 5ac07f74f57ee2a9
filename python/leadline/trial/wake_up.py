"""Measures on each machine how long an idle CPU takes to wake up, before its tests begin.

Hosts that share a machine share its CPUs, so one of them measures for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

from leadline.agents import Agent
from leadline.registry import KINDS
from leadline.trial.event_log import EventLog


class WokenKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def woken(self) -> tuple[str, ...]:
        """The sides that wake up once per operation."""


def waits_for_idle_cpus(kinds: Iterable[str]) -> bool:
    """Whether one of these kinds of test has latencies that wake-ups may dominate."""
    found: list[WokenKind] = [KINDS.find(kind) for kind in kinds]
    return any(kind.woken for kind in found)


async def record_wake_ups(agents: Mapping[str, Agent], event_log: EventLog) -> None:
    """Measure on all machines at once, and record the figures for each host; null where a machine was too busy.

    Raises:
        AgentLost: one is gone.
    """
    machines: dict[str, list[str]] = {}
    for name, agent in agents.items():
        machines.setdefault(agent.hello.host.boot_id or name, []).append(name)
    found = await asyncio.gather(*(agents[hosts[0]].measure_wake_up() for hosts in machines.values()))
    for hosts, one in zip(machines.values(), found, strict=True):
        event_log.record("wake-up", hosts=hosts, found=None if one is None else one.model_dump())
