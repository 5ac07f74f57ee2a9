"""The interface of launchers, and of the processes that they start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol


class Output(Protocol):
    """Where bytes are read from, as `asyncio.StreamReader`."""

    async def read(self, n: int = -1, /) -> bytes:
        """Wait for bytes, and return at most `n`; none at the end."""


class Input(Protocol):
    """Where bytes are written to, as `asyncio.StreamWriter`."""

    def write(self, data: bytes, /) -> None:
        """Add bytes to what is sent."""

    async def drain(self) -> None:
        """Wait until there is room for more.

        Raises:
            BrokenPipeError,
            ConnectionResetError: the process does not read any more.
        """

    def close(self) -> None:
        """Send no more: the process reads the end of its stdin."""


class Process(Protocol):
    """A process somewhere, with the attributes of `asyncio.subprocess.Process` that a channel uses."""

    @property
    def stdin(self) -> Input | None:
        """Its standard input."""

    @property
    def stdout(self) -> Output | None:
        """Its standard output."""

    @property
    def stderr(self) -> Output | None:
        """Its standard error."""

    @property
    def returncode(self) -> int | None:
        """Its exit status, or minus the number of the signal that ended it; None while it runs."""

    async def wait(self) -> int:
        """Wait for its end; returns its exit status, as `returncode`."""

    def terminate(self) -> None:
        """Ask it to end. Raises ProcessLookupError if it has ended."""

    def kill(self) -> None:
        """End it at once. Raises ProcessLookupError if it has ended."""


class Launcher(Protocol):
    """Starts processes on one host."""

    @property
    def is_remote(self) -> bool:
        """Whether a network may lie between: the agent is sent heartbeats then, and ends when it hears none."""

    async def run(self, argv: Sequence[str]) -> Process:
        """Start a command on the host.

        Raises:
            OSError: what carries the command cannot be started.
            LeadlineError: the host is out of reach, as far as that is known at once.
        """

    def describe_end(self, status: int, words: Iterable[str]) -> str:
        """How a process ended, as a sentence, by its status and the last lines of its stderr."""
