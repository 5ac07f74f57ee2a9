"""Hosts, their agents, and their clocks. This is the only package that talks to an agent.

Owns how an agent is started and supervised (`agent`), the format of its lines (`messages`), how a host of a plan is
reached (`hosts`, by one of `launchers`) and gets the agent (`deployment`), and the comparison of clocks (`clocks`).
Knows nothing of labs, gateways or plans.

Its modules are imported on first use: to find the agent's program (`binary`), nothing has to know its messages.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadline.agents.agent import Agent
    from leadline.agents.binary import agent_binary
    from leadline.agents.clocks import ClockComparison, Exchange, compare, start_instant
    from leadline.agents.hosts import ReachedHosts
    from leadline.agents.launch import Launch
    from leadline.agents.messages import PROTOCOL_VERSION, Command, Event, UnreadObservation, Workload

__all__ = [
    "PROTOCOL_VERSION",
    "Agent",
    "ClockComparison",
    "Command",
    "Event",
    "Exchange",
    "Launch",
    "ReachedHosts",
    "UnreadObservation",
    "Workload",
    "agent_binary",
    "compare",
    "start_instant",
]

_MODULES = {
    "agent": ("Agent",),
    "clocks": ("ClockComparison", "Exchange", "compare", "start_instant"),
    "hosts": ("ReachedHosts",),
    "binary": ("agent_binary",),
    "launch": ("Launch",),
    "messages": ("PROTOCOL_VERSION", "Command", "Event", "UnreadObservation", "Workload"),
}


def __getattr__(name: str) -> Any:
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
