"""Processes of this machine that carry a command to a host: none in between, a prefix, or any command with stdio.

Each has a session of its own, so that a signal to this process group (Ctrl-C, `timeout`, a closed terminal) ends
neither an agent nor what carries it before this process asks for that.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STREAM_BYTES = 256 * 1024


async def start_process(argv: Sequence[str]) -> asyncio.subprocess.Process:
    """Start a process with three pipes.

    Raises:
        OSError: it cannot be started.
    """
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *argv, stdin=pipe, stdout=pipe, stderr=pipe, limit=STREAM_BYTES, start_new_session=True
    )


@dataclass(frozen=True, slots=True)
class Here:
    """Commands on this machine; in a namespace of it if the command says so."""

    is_remote: bool = False

    async def run(self, argv: Sequence[str]) -> asyncio.subprocess.Process:
        """See `Launcher`."""
        return await start_process(argv)

    def describe_end(self, status: int, words: Iterable[str]) -> str:
        """See `Launcher`."""
        if status < 0:
            return f"its process was ended by {signal.Signals(-status).name}"
        return f"its process exited with {status}"


HERE = Here()


@dataclass(frozen=True, slots=True)
class Exec:
    """Commands through a program that carries their streams to the host: `kubectl exec -i POD --`, `docker exec -i`,
    `srun`, `nsenter`."""

    prefix: tuple[str, ...]
    is_remote: bool = True

    async def run(self, argv: Sequence[str]) -> asyncio.subprocess.Process:
        """See `Launcher`."""
        return await start_process((*self.prefix, *argv))

    def describe_end(self, status: int, words: Iterable[str]) -> str:
        """See `Launcher`. Whether the status is the program's own or that of the command on the host is not known."""
        shown = shlex.join(self.prefix)
        if status < 0:
            return f"`{shown}` was ended by {signal.Signals(-status).name}"
        return f"`{shown}` ended with {status}"
