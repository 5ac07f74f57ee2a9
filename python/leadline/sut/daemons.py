"""The processes of a system under test on its hosts: starts, watches, reads and stops them.

Knows no particular daemon; acts only through `HostOps`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from leadline.agents.host_ops import GRACE_MS, HostProcess
from leadline.agents.tasks import ending
from leadline.contract.models import Prepared
from leadline.errors import LOG_END, AgentError, AgentLost, LeadlineError, SutFailed, TaskFailed
from leadline.sut.model import Site

_TAIL_LINES = 4
_WORDS_LINES = 40
"""Number of log lines that are searched for an error: a stack trace may follow it."""
_WORDS_CHARACTERS = 200
_NAMES_AN_ERROR = re.compile(r"panic|fatal|error|exception|cannot|unknown|invalid", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Daemon(HostProcess):
    """One process of a system under test."""

    host: str
    """The host on which it runs."""


class Daemons:
    """The running processes of one system under test."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._running: dict[tuple[str, str], Daemon] = {}
        self.pids: dict[tuple[str, str], int] = {}
        """The ids of the processes that were started, by host and name."""

    async def start(self, daemon: Daemon) -> Prepared:
        """Start the process.

        Raises:
            SutFailed: it cannot be started.
            AgentLost: the host's agent is gone.
        """
        self._running[daemon.host, daemon.name] = daemon
        try:
            prepared = await self._site.hosts[daemon.host].start(daemon)
        except TaskFailed as error:
            raise SutFailed(str(error)) from error
        if prepared.pid is not None:
            self.pids[daemon.host, daemon.name] = prepared.pid
        return prepared

    async def wait_for_output(self, daemon: Daemon, text: str, timeout_s: float, *, refused: str | None = None) -> int:
        """Wait until the process prints `text`; returns the time, ns, by its host's clock.

        Raises:
            SutFailed: it ended before, printed `refused`, or did not print `text` in time; with the end of its log.
            AgentLost: the host's agent is gone.
        """
        texts = text if refused is None else (text, refused)
        try:
            line = await self._site.hosts[daemon.host].output(daemon.name, texts, timeout_s)
        except TaskFailed as error:
            raise SutFailed(await self.with_log_end(daemon, str(error))) from error
        if refused is not None and refused in line.line:
            message = f"{daemon.name} on {daemon.host} did not start: {line.line.strip()}"
            raise SutFailed(await self.with_log_end(daemon, message))
        return line.t_ns

    def reported(self, daemon: Daemon) -> list[str]:
        """The lines that it has reported so far."""
        return self._site.hosts[daemon.host].lines(daemon.name)

    async def with_log_end(self, daemon: Daemon, message: str) -> str:
        """The message, then the last lines of the process's log that it does not quote already; if the log cannot be
        read, the lines that the process reported."""
        lines = await self._log_lines(daemon, _TAIL_LINES) or self.reported(daemon)[-_TAIL_LINES:]
        if not lines:
            return f"{message}; it logged nothing"
        shown = [line.strip() for line in lines if line.strip() and line.strip() not in message]
        return f"{message}{LOG_END}{' | '.join(shown)}" if shown else message

    async def last_words(self, daemon: Daemon) -> str:
        """The last log line that names an error, else the last line, as the end of a message."""
        lines = await self._log_lines(daemon, _WORDS_LINES) or self.reported(daemon)
        words = next((line for line in reversed(lines) if _NAMES_AN_ERROR.search(line)), lines[-1] if lines else "")
        shown = "".join(character for character in words if character.isprintable()).strip()
        return f"; it said: {shown[:_WORDS_CHARACTERS]}" if shown else ""

    async def failure(self, only: Sequence[Daemon] | None = None) -> LeadlineError:
        """Wait until a process ends unexpectedly or its agent is lost, and return the error; waits forever without a
        process."""
        daemons = list(self._running.values()) if only is None else only
        watches = [asyncio.create_task(self._ended_unasked(daemon)) for daemon in daemons]
        try:
            if not watches:
                await asyncio.get_running_loop().create_future()
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
            return next(iter(done)).result()
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def stop(self, daemon: Daemon) -> None:
        """Stop one process and wait for its end; ignores a process or an agent that is already gone."""
        if self._running.pop((daemon.host, daemon.name), None) is None:
            return
        host = self._site.hosts[daemon.host]
        with contextlib.suppress(AgentError):
            await host.stop(daemon.name)
            await host.exited(daemon.name, 2 * GRACE_MS / 1000)

    async def stop_all(self) -> None:
        """Stop all processes at the same time, and wait for all."""
        await asyncio.gather(*(self.stop(daemon) for daemon in list(self._running.values())))

    async def _ended_unasked(self, daemon: Daemon) -> LeadlineError:
        try:
            exited = await self._site.hosts[daemon.host].exited(daemon.name)
        except (AgentLost, TaskFailed) as error:
            return error
        if exited.expected:
            await asyncio.get_running_loop().create_future()
        ended = f"{daemon.name} on {daemon.host} {ending(exited)}"
        return SutFailed(await self.with_log_end(daemon, ended))

    async def _log_lines(self, daemon: Daemon, count: int) -> list[str]:
        return await self._site.hosts[daemon.host].last_lines(daemon.log, count)
