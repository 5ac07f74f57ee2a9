"""Hosts, their agents, and their clocks: the only package that talks to an agent.

Owns how an agent is started, heard and given up (`agent`), what a line is (`messages`), how a host in a plan becomes a
command (`hosts`), and what one clock says about another (`clocks`). Knows nothing of labs, gateways or plans.
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
