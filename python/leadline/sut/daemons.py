"""The processes of a system under test on its hosts: started through their agents, watched, read, stopped.

Knows no particular daemon. Files are named in a process's arguments, secrets never are.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from leadline.agents import Agent
from leadline.agents.tasks import ending
from leadline.contract.models import Prepared, ProcessWorkload
from leadline.errors import AgentError, AgentLost, LeadlineError, SutFailed, TaskFailed
from leadline.sut.model import Site

GRACE_MS = 3000
_TAIL_LINES = 4
_WORDS_LINES = 40
"""How far back a line that names an error is looked for: a stack trace may follow it."""
_WORDS_CHARACTERS = 200
_NAMES_AN_ERROR = re.compile(r"panic|fatal|error|exception|cannot|unknown|invalid", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Daemon:
    """One process to run."""

    host: str
    name: str
    """Task name and the name in observations."""
    argv: tuple[str, ...]
    log: Path
    report: tuple[str, ...]
    """Lines that contain one of these are told."""


class Daemons:
    """What one system under test has running."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._running: dict[tuple[str, str], Daemon] = {}

    def agent(self, daemon: Daemon) -> Agent:
        """The agent on the daemon's host."""
        return self._site.agents[daemon.host]

    async def start(self, daemon: Daemon) -> Prepared:
        """Start the process.

        Raises:
            SutFailed: it cannot be started.
            AgentLost: the host's agent is gone.
        """
        workload = ProcessWorkload(
            name=daemon.name,
            argv=list(daemon.argv),
            env={},
            log=str(daemon.log),
            report=list(daemon.report),
            grace_ms=GRACE_MS,
        )
        self._running[daemon.host, daemon.name] = daemon
        try:
            return await self.agent(daemon).prepare(self._site.setup, daemon.name, workload)
        except TaskFailed as error:
            raise SutFailed(str(error)) from error

    async def wait_for_output(self, daemon: Daemon, text: str, timeout_s: float) -> int:
        """When the process said `text`, ns, by its host's clock.

        Raises:
            SutFailed: it ended before, or did not say it in time; with the end of its log.
            AgentLost: the host's agent is gone.
        """
        try:
            line = await self.agent(daemon).output(self._site.setup, daemon.name, text, timeout_s)
        except TaskFailed as error:
            raise SutFailed(f"{error}{self.log_end(daemon)}") from error
        return line.t_ns

    def reported(self, daemon: Daemon) -> list[str]:
        """The lines that it has told so far."""
        return [line.line for line in self.agent(daemon).lines(self._site.setup, daemon.name)]

    def log_end(self, daemon: Daemon) -> str:
        """The last lines of its log, to be put after a message; of what it told, where the log is out of reach."""
        lines = tail(daemon.log) or self.reported(daemon)[-_TAIL_LINES:]
        return f"; its log ends: {' | '.join(line.strip() for line in lines)}" if lines else "; it logged nothing"

    def last_words(self, daemon: Daemon) -> str:
        """The last line of its log that names an error, else its last line, to be put after a message."""
        lines = tail(daemon.log, _WORDS_LINES) or self.reported(daemon)
        words = next((line for line in reversed(lines) if _NAMES_AN_ERROR.search(line)), lines[-1] if lines else "")
        shown = "".join(character for character in words if character.isprintable()).strip()
        return f"; it said: {shown[:_WORDS_CHARACTERS]}" if shown else ""

    async def failure(self, only: Sequence[Daemon] | None = None) -> LeadlineError:
        """Wait until a process ends unasked or its agent is lost, and say so; waits for ever where none runs."""
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
        """Stop one process and wait for its end; one that is gone, or whose agent is, is none of our business."""
        if self._running.pop((daemon.host, daemon.name), None) is None:
            return
        agent = self.agent(daemon)
        with contextlib.suppress(AgentError):
            await agent.stop(self._site.setup, daemon.name)
            await agent.exited(self._site.setup, daemon.name, timeout_s=2 * GRACE_MS / 1000)

    async def stop_all(self) -> None:
        """Stop every process at once, and wait for all."""
        await asyncio.gather(*(self.stop(daemon) for daemon in list(self._running.values())))

    async def _ended_unasked(self, daemon: Daemon) -> LeadlineError:
        try:
            exited = await self.agent(daemon).exited(self._site.setup, daemon.name)
        except (AgentLost, TaskFailed) as error:
            return error
        if exited.expected:
            await asyncio.get_running_loop().create_future()
        return SutFailed(f"{daemon.name} on {daemon.host} {ending(exited)}{self.log_end(daemon)}")


class Tunnel:
    """What every system whose ends are processes does alike. `bring_up` sets `daemons`."""

    daemons: Daemons | None = None

    async def failure(self) -> LeadlineError:
        """Wait for a process to end unasked."""
        assert self.daemons is not None, "failure() before bring_up()"
        return await self.daemons.failure()

    async def take_down(self, site: Site) -> None:
        """Stop both ends; their routes go with their interfaces."""
        if self.daemons is not None:
            await self.daemons.stop_all()


def tail(path: Path, lines: int = _TAIL_LINES) -> list[str]:
    """The file's last lines that are not empty; none where it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return list(deque((line.rstrip("\n") for line in file if line.strip()), maxlen=lines))
    except OSError:
        return []
