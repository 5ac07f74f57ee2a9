"""How a process ended, as text. Pure: what its exit status means, where `ssh` stands between it and this process."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

_SSH_FAILED = 255
"""ssh(1): "ssh exits with the exit status of the remote command or with 255 if an error occurred". It does so too, and
says nothing, when a signal ended the remote command."""
_SHELL_SIGNAL = 128
"""A shell between sshd and the agent reports a signal as a status: this number and the signal's."""
_SSH_WORDS = re.compile(
    r"^(?:ssh: |ssh_|kex_|client_loop: |packet_write_|banner exchange|Bad |Connection (?:closed|reset|timed|to) "
    r"|Disconnected |Host key |Load key |No route to host|Permission denied|Read from remote |Received disconnect "
    r"|Timeout, server |Write failed)|: Permission denied \("
)
"""How a line begins that is ssh's own; the others are the agent's and those of the shell on its host."""


def how_ended(status: int, *, is_ssh: bool, words: Iterable[str]) -> str:
    """How a process with this status (minus the signal's number for a signal) ended. `words` are the last lines of its
    stderr."""
    if status < 0:
        return f"its process was ended by {signal.Signals(-status).name}"
    if not is_ssh:
        return f"its process exited with {status}"
    if status == _SSH_FAILED:
        own = next((line for line in reversed(list(words)) if _SSH_WORDS.search(line)), None)
        if own is not None:
            return f"its ssh connection ended: {own}"
        return (
            "its ssh connection ended without a reason from ssh, as it does when a signal ends the agent on its host "
            "(memory that ran out, a kill)"
        )
    number = status - _SHELL_SIGNAL
    if number in {one.value for one in signal.Signals}:
        return f"it was ended by {signal.Signals(number).name} on its host"
    return f"it exited with {status} on its host"
