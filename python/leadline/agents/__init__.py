"""Hosts, their agents, and their clocks. This is the only package that talks to an agent.

Owns how an agent is started and supervised (`agent`), the format of its lines (`messages`), how a host of a plan
becomes a command (`hosts`), and the comparison of clocks (`clocks`). Knows nothing of labs, gateways or plans.
"""

from leadline.agents.agent import Agent
from leadline.agents.clocks import ClockComparison, Exchange, compare, start_instant
from leadline.agents.hosts import launch_on
from leadline.agents.launch import Launch, agent_binary
from leadline.agents.messages import PROTOCOL_VERSION, Command, Event, Workload

__all__ = [
    "PROTOCOL_VERSION",
    "Agent",
    "ClockComparison",
    "Command",
    "Event",
    "Exchange",
    "Launch",
    "Workload",
    "agent_binary",
    "compare",
    "launch_on",
    "start_instant",
]
