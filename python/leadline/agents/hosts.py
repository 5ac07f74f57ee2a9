"""Converts a host that a plan gives by address to the command that starts its agent.

Uses the system's `ssh`, with the user's configuration, keys and known hosts; it carries the agent's stdin and stdout.
The agent must be installed on that host.
"""

from __future__ import annotations

import os
import shlex
import shutil

from leadline.agents.launch import AGENT_NAME, LOG_VARIABLE, Launch, agent_binary
from leadline.errors import MissingBinary
from leadline.plan.hosts import HostAddress


def launch_on(address: HostAddress) -> Launch:
    """The command that starts an agent at this address.

    Raises:
        MissingBinary: the agent (on this machine) or `ssh` (for another host) is not installed here.
    """
    if address.local:
        return Launch((str(agent_binary()),))
    if shutil.which("ssh") is None:
        raise MissingBinary("ssh", hint=f"install an SSH client to reach {address.host}, or use `local`")
    # BatchMode: without it, a password prompt would wait forever behind the progress display.
    port = () if address.port is None else ("-p", str(address.port))
    destination = f"{address.user}@{address.host}" if address.user else address.host
    # Variables do not pass through SSH; its command is a line for the shell there.
    filter_ = os.environ.get(LOG_VARIABLE)
    log = ("--log", shlex.quote(filter_)) if filter_ else ()
    return Launch(("ssh", "-o", "BatchMode=yes", *port, "--", destination, AGENT_NAME, *log), is_remote=True)
