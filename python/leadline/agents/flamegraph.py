"""Folded call stacks drawn as a flame graph, by the agent's own hand on this machine."""

from __future__ import annotations

import subprocess

from leadline.agents.launch import agent_binary
from leadline.errors import LeadlineError

_WITHIN_S = 60


def flame_graph(title: str, folded: str) -> str:
    """The picture, SVG; it needs nothing besides itself to be looked at.

    Raises:
        MissingBinary: there is no agent here.
        LeadlineError: it could not be drawn, as where there are no stacks.
    """
    if not folded:
        raise LeadlineError(f"{title}: there is nothing to draw, as no process used the CPU while it was sampled")
    argv = [str(agent_binary()), "flamegraph", title]
    done = subprocess.run(argv, input=folded, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
    if done.returncode != 0:
        raise LeadlineError(f"{title}: {done.stderr.strip()}")
    return done.stdout
