"""Runs a test's second tool right after the test: on the same clients, to the same server, at the same time of all
clients. Owns the record `cross-check`; a tool that fails does not fail the test.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from leadline.agents.host_ops import Completed, HostProcess
from leadline.analysis.tool_output import ToolFigure, read_figure, read_version
from leadline.contract.models import OutputLine, Prepared
from leadline.errors import AgentLost, LeadlineError, TaskFailed
from leadline.plan import BaseTest
from leadline.registry import KINDS
from leadline.trial.event_log import EventLog
from leadline.trial.workloads import Server

if TYPE_CHECKING:
    from leadline.sut.model import Site

FIRST_PORT = 5301
"""The port of the tool's own server for the first client; each further client has the next one."""
_BEYOND_S = 20.0
"""Time that a tool may take longer than its load: to connect, and for the last answers."""
_LISTENING_S = 5.0
_ANSWERS_S = 1.0
_LISTENING = "Server listening"
_VERSION_OPTION = {"wrk": "-v", "ab": "-V"}


@dataclass(frozen=True, slots=True)
class ToolRun:
    """The command lines of a second tool."""

    tool: str
    argv: tuple[str, ...]
    """On the client."""
    duration_s: float
    server_argv: tuple[str, ...] = ()
    """On the server's host, for one client; empty if the run's own server answers."""


class RepeatedKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def primary(self) -> str:
        """The figure that both tools measure."""

    def second_tool_run(self, test: Any, server: Server, port: int) -> ToolRun:
        """The command lines of the test's second tool."""


class ToolHost(Protocol):
    """What a host does for a second tool: the part of `HostOps` that this module uses."""

    @property
    def name(self) -> str:
        """The host's name."""

    async def run(self, *argv: str, within_s: float = 10.0) -> Completed:
        """Run a command and wait for its end."""

    async def start(self, process: HostProcess) -> Prepared:
        """Start a process, and collect the lines that it reports."""

    async def output(self, process: str, containing: str, within_s: float) -> OutputLine:
        """The first reported line of a process that contains the text."""

    async def stop(self, process: str) -> None:
        """Ask a process to end."""


@dataclass(frozen=True, slots=True)
class ToolHosts:
    """Where a second tool runs."""

    clients: Mapping[str, ToolHost]
    server: ToolHost | None
    """The host of the tool's own server; None if it is not one of ours."""
    log_file: Callable[[str, str], Path]
    """The file for the output of a process on a host, by their names."""


async def cross_check(
    test: BaseTest, label: str, clients: Sequence[str], server: Server, *, site: Site
) -> CrossChecked:
    """Run the second tool on all clients of a trial at once; returns the sum of their figures, or why there is none."""
    kind: RepeatedKind = KINDS.get(test.kind)
    runs = {client: kind.second_tool_run(test, server, FIRST_PORT + number) for number, client in enumerate(clients)}
    hosts = ToolHosts({client: site.hosts[client] for client in clients}, site.hosts["server"], site.log_file)
    return await repeat_with(runs, hosts, label)


def run_from_here(test: BaseTest, server: Server) -> ToolRun:
    """The tool's command lines from this host. A server of the tool's own is started only if the address is this
    host's; elsewhere the one on `FIRST_PORT` is used if it runs, else Leadline's own server, which answers the tool."""
    kind: RepeatedKind = KINDS.get(test.kind)
    run = kind.second_tool_run(test, server, FIRST_PORT)
    if not run.server_argv or _is_here(server.host):
        return run
    if not _answers(server.host, FIRST_PORT):
        run = kind.second_tool_run(test, server, server.port)
    return replace(run, server_argv=())


def _answers(host: str, port: int) -> bool:
    """Whether a TCP connection to this port can be opened."""
    with suppress(OSError, UnicodeError), socket.create_connection((host, port), _ANSWERS_S):
        return True
    return False


def _is_here(host: str) -> bool:
    """Whether an address of this name is one of this host's own."""
    with suppress(OSError, UnicodeError):
        for family, kind, protocol, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind, protocol) as probe, suppress(OSError):
                probe.bind(address)
                return True
    return False


@dataclass(frozen=True, slots=True)
class CrossChecked:
    """What a second tool measured in one trial."""

    runs: Mapping[str, ToolRun]
    figures: Sequence[ToolFigure]
    version: str | None
    error: LeadlineError | None

    def record(self, test: BaseTest, label: str, event_log: EventLog) -> None:
        """Write the record `cross-check`."""
        kind: RepeatedKind = KINDS.get(test.kind)
        seconds = [figure.seconds for figure in self.figures if figure.seconds is not None]
        event_log.record(
            "cross-check",
            label=label,
            tool=test.second_tool,
            version=self.version,
            metric=kind.primary,
            value=sum(figure.per_s for figure in self.figures) if self.error is None else None,
            failed=sum(figure.failed for figure in self.figures),
            seconds=max(seconds, default=None),
            error=None if self.error is None else str(self.error),
            commands=[list(run.argv) for run in self.runs.values()],
        )


async def repeat_with(runs: Mapping[str, ToolRun], hosts: ToolHosts, label: str) -> CrossChecked:
    """Run the tool on each client at once. Its failure is part of what is returned.

    Raises:
        AgentLost: the agent of a host is gone.
    """
    figures: list[ToolFigure] = []
    error: LeadlineError | None = None
    version = None
    try:
        tool = next(iter(runs.values())).tool
        version = await _version(tool, next(iter(hosts.clients.values())))
        figures = await _measure(runs, hosts, label)
    except AgentLost:
        raise
    except LeadlineError as failure:
        error = failure
    return CrossChecked(runs, figures, version, error)


async def _measure(runs: Mapping[str, ToolRun], hosts: ToolHosts, label: str) -> list[ToolFigure]:
    started: list[str] = []
    try:
        for client, run in runs.items():
            if run.server_argv and hosts.server is not None:
                name = f"{run.tool}-{label.replace('/', '-')}-{client.replace(' ', '-')}-{len(started)}"
                started.append(name)
                await _serve(name, run, hosts.server, hosts.log_file)
        tasks = (_run(run, hosts.clients[client], client) for client, run in runs.items())
        found = await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        for name in started:
            assert hosts.server is not None
            with suppress(TaskFailed):
                await hosts.server.stop(name)
    failures = [one for one in found if isinstance(one, BaseException)]
    if failures:
        raise failures[0]
    return [one for one in found if isinstance(one, ToolFigure)]


async def _serve(name: str, run: ToolRun, server: ToolHost, log_file: Callable[[str, str], Path]) -> None:
    await server.start(HostProcess(name, run.server_argv, log_file(name, server.name), (_LISTENING,)))
    await server.output(name, _LISTENING, _LISTENING_S)


async def _run(run: ToolRun, host: ToolHost, client: str) -> ToolFigure:
    done = await host.run(*run.argv, within_s=run.duration_s + _BEYOND_S)
    figure = read_figure(run.tool, done.output)
    if figure.per_s <= 0:
        raise LeadlineError(f"{run.tool} on {client} measured nothing")
    return figure


async def _version(tool: str, host: ToolHost) -> str | None:
    done = await host.run(tool, _VERSION_OPTION.get(tool, "--version"))
    return read_version(tool, done.output)
