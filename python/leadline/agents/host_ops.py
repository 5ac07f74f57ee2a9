"""The operations of a system under test on a host: files, commands, processes, routes, settings.

`HostOps` is the interface. `AgentOps` is the part that is the same for every kind of host: processes, and a look at the
network. `leadline.agents.remote_ops` has the rest for given hosts, through their agents. A lab's hosts share this
machine's files: `leadline.agents.local_ops` has those and commands, `leadline.lab.host_ops` the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from leadline.agents.agent import Agent
from leadline.contract.models import Exited, HostFacts, NetworkView, OutputLine, Prepared, ProcessWorkload
from leadline.errors import MissingBinary

GRACE_MS = 3000
"""Time for a process to end when it is asked to; then it is killed."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The result of a command."""

    status: int
    """Exit status; if a signal ended it, the negative signal number."""
    output: str
    """Standard output and standard error, in the order of arrival."""


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A process to run on a host."""

    name: str
    """Task name, and the name in observations."""
    argv: tuple[str, ...]
    """The command line. It may contain file names, but never secrets."""
    log: Path
    """File for its output."""
    report: tuple[str, ...]
    """Output lines that contain one of these texts are reported."""


class HostOps(Protocol):
    """One host, as a system under test uses it. All operations happen on that host."""

    @property
    def name(self) -> str:
        """The host's name in the trial."""

    @property
    def facts(self) -> HostFacts:
        """Facts about the host, such as its kernel."""

    @property
    def agent_version(self) -> str:
        """The version of the agent that runs there."""

    async def agent_program(self) -> str:
        """The path of the agent's program on the host, which also includes embedded gateways.

        Raises:
            SutFailed: the host cannot tell.
        """

    def missing(self, program: str, hint: str | None = None) -> MissingBinary:
        """The error of a program that this host lacks; it names a host other than this machine."""

    async def undo_at_end(self, what: str, *argv: str) -> None:
        """Register a command that undoes a change which no other operation makes; call it before the change. `close`
        runs it, and so does the host's agent when it ends without a `close`. Nothing happens where the host ends with
        the trial. `what` names the change in messages, once for each.

        Raises:
            LabError: the host cannot promise it, so the change must not be made.
        """

    async def close(self) -> None:
        """Put back what the operations changed, where the host outlives the trial: settings, routes, files. A lost
        agent does that itself.

        Raises:
            LabError: something could not be put back; everything else was.
        """

    # Files and commands.

    async def write_file(self, path: Path, content: bytes | str, *, mode: int = 0o600) -> Path:
        """Write a new file with this mode from the first byte on; replaces an older file of that name.

        Raises:
            DatasetError: there is no space, or no permission.
        """

    async def read_file(self, path: Path) -> str:
        """The text of a file, as the host sees it: /proc/net/dev is that of its own network.

        Raises:
            SutFailed: it cannot be read.
        """

    async def last_lines(self, path: Path, count: int) -> list[str]:
        """The last non-empty lines of a file; none if it cannot be read."""

    async def find_program(self, name: str) -> str | None:
        """The path of a program by name or path; None if the host has no such executable."""

    async def run(self, *argv: str, within_s: float = 10.0) -> Completed:
        """Run a command and wait for its end.

        Raises:
            MissingBinary: it cannot be started.
            SutFailed: it does not end in time.
        """

    # Processes.

    async def start(self, process: HostProcess) -> Prepared:
        """Start a process, and collect the lines that it reports.

        Raises:
            TaskFailed: it cannot be started.
            AgentLost: the host's agent is gone.
        """

    async def output(self, process: str, containing: str | Sequence[str], within_s: float) -> OutputLine:
        """The first reported line of a process that contains the text (or one of several); past lines count too.

        Raises:
            TaskFailed: the process ended first (code `exited`), or did not print it in time (code `timeout`).
            AgentLost: the host's agent is gone.
        """

    def lines(self, process: str) -> list[str]:
        """The lines that a process has reported so far."""

    async def exited(self, process: str, within_s: float | None = None) -> Exited:
        """The exit status of a process; waits for its end, without limit by default.

        Raises:
            TaskFailed: it could not be started, or (code `timeout`) is still running.
            AgentLost: the host's agent is gone.
        """

    async def stop(self, process: str) -> None:
        """Ask a process to end.

        Raises:
            AgentLost: the host's agent is gone.
        """

    # The network.

    async def network(self) -> NetworkView:
        """Interfaces, addresses and routes as they are now.

        Raises:
            AgentLost: the host's agent is gone.
        """

    async def add_route(self, destination: str, *, via: str | None = None, dev: str | None = None) -> None:
        """Route a network (10.82.0.0/24, fd82::/64) through a neighbour or a device; replaces an existing route to
        that network.

        Raises:
            LabError: the host cannot reach `via`, or has no such device.
        """

    async def remove_route(self, destination: str) -> None:
        """Remove the route to a network; does nothing if the host has none.

        Raises:
            LabError: the host refuses it.
        """

    async def set_sysctl(self, name: str, value: int | str) -> None:
        """Set a value below /proc/sys, by its path: net/ipv4/ip_forward.

        Raises:
            LabError: the kernel has no such value, or refuses this one.
        """


class AgentOps:
    """The operations that an agent carries out: processes, and reading the network's state."""

    def __init__(self, agent: Agent, trial: str) -> None:
        """`trial` is the label of the processes."""
        self._agent = agent
        self._trial = trial

    @property
    def name(self) -> str:
        """The host's name in the trial."""
        return self._agent.name

    @property
    def facts(self) -> HostFacts:
        """The facts that the agent reported when it started."""
        return self._agent.hello.host

    @property
    def agent_version(self) -> str:
        """The version that the agent reported when it started."""
        return self._agent.hello.agent_version

    async def start(self, process: HostProcess) -> Prepared:
        """See `HostOps`."""
        workload = ProcessWorkload(
            name=process.name,
            argv=list(process.argv),
            env={},
            log=str(process.log),
            report=list(process.report),
            grace_ms=GRACE_MS,
        )
        return await self._agent.prepare(self._trial, process.name, workload)

    async def output(self, process: str, containing: str | Sequence[str], within_s: float) -> OutputLine:
        """See `HostOps`."""
        return await self._agent.output(self._trial, process, containing, within_s)

    def lines(self, process: str) -> list[str]:
        """See `HostOps`."""
        return [line.line for line in self._agent.lines(self._trial, process)]

    async def exited(self, process: str, within_s: float | None = None) -> Exited:
        """See `HostOps`."""
        return await self._agent.exited(self._trial, process, within_s)

    async def stop(self, process: str) -> None:
        """See `HostOps`."""
        await self._agent.stop(self._trial, process)

    async def network(self) -> NetworkView:
        """See `HostOps`."""
        return await self._agent.inspect()

    def missing(self, program: str, hint: str | None = None) -> MissingBinary:
        """See `HostOps`. By default a lab's host, whose programs are this machine's."""
        return MissingBinary(program, hint=hint)

    async def undo_at_end(self, what: str, *argv: str) -> None:
        """See `HostOps`. By default nothing: a lab's hosts end with the trial."""

    async def close(self) -> None:
        """See `HostOps`. By default nothing: a lab's hosts end with the trial."""
