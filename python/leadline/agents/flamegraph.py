"""Draws folded call stacks as a flame graph, with the agent on this machine."""

from __future__ import annotations

import subprocess

from leadline.agents.binary import agent_binary
from leadline.errors import LeadlineError

_WITHIN_S = 60


def flame_graph(title: str, folded: str) -> str:
    """The picture as a self-contained SVG.

    Raises:
        MissingBinary: there is no agent here.
        LeadlineError: it could not be drawn, for example without any stacks.
    """
    if not folded:
        raise LeadlineError(f"{title}: there are no call stacks to draw: no process used the CPU while it was sampled")
    argv = [str(agent_binary()), "flamegraph", title]
    done = subprocess.run(argv, input=folded, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
    if done.returncode != 0:
        raise LeadlineError(f"{title}: {done.stderr.strip()}")
    return done.stdout
