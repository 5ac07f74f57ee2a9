"""Runs a test's second tool right after the test: on the same clients, to the same server, at the same time of all
clients. Owns the record `cross-check`; a tool that fails does not fail the trial.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from leadline.agents.host_ops import HostProcess
from leadline.errors import AgentLost, LeadlineError, TaskFailed
from leadline.plan import BaseTest
from leadline.registry import KINDS
from leadline.sut.model import Site
from leadline.trial.event_log import EventLog
from leadline.trial.tool_output import ToolFigure, read_figure, read_version

FIRST_PORT = 5301
"""The port of the tool's own server for the first client; each further client has the next one."""
_BEYOND_S = 20.0
"""Time that a tool may take longer than its load: to connect, and for the last answers."""
_LISTENING_S = 5.0
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

    def second_tool_run(self, test: Any, address: str, port: int) -> ToolRun:
        """The command lines of the test's second tool."""


async def cross_check(
    test: BaseTest, label: str, clients: Sequence[str], address: str, *, site: Site, event_log: EventLog
) -> None:
    """Run the second tool on all clients at once, and record the sum of their figures, or why there is none."""
    kind: RepeatedKind = KINDS.get(test.kind)
    runs = {client: kind.second_tool_run(test, address, FIRST_PORT + number) for number, client in enumerate(clients)}
    figures: list[ToolFigure] = []
    error: LeadlineError | None = None
    version = None
    try:
        version = await _version(next(iter(runs.values())).tool, site, clients[0])
        figures = await _measure(runs, site)
    except AgentLost:
        raise
    except LeadlineError as failure:
        error = failure
    seconds = [figure.seconds for figure in figures if figure.seconds is not None]
    event_log.record(
        "cross-check",
        label=label,
        tool=test.second_tool,
        version=version,
        metric=kind.primary,
        value=sum(figure.per_s for figure in figures) if error is None else None,
        failed=sum(figure.failed for figure in figures),
        seconds=max(seconds, default=None),
        error=None if error is None else str(error),
        commands=[list(run.argv) for run in runs.values()],
    )


async def _measure(runs: Mapping[str, ToolRun], site: Site) -> list[ToolFigure]:
    started: list[str] = []
    server = site.hosts["server"]
    try:
        for client, run in runs.items():
            if run.server_argv:
                name = f"{run.tool}-{site.label.replace('/', '-')}-{client}-{len(started)}"
                started.append(name)
                await _serve(name, run, site)
        found = await asyncio.gather(*(_run(run, site, client) for client, run in runs.items()), return_exceptions=True)
    finally:
        for name in started:
            with suppress(TaskFailed):
                await server.stop(name)
    failures = [one for one in found if isinstance(one, BaseException)]
    if failures:
        raise failures[0]
    return [one for one in found if isinstance(one, ToolFigure)]


async def _serve(name: str, run: ToolRun, site: Site) -> None:
    server = site.hosts["server"]
    log = site.log_file(name, server.name)
    await server.start(HostProcess(name, run.server_argv, log, (_LISTENING,)))
    await server.output(name, _LISTENING, _LISTENING_S)


async def _run(run: ToolRun, site: Site, client: str) -> ToolFigure:
    done = await site.hosts[client].run(*run.argv, within_s=run.duration_s + _BEYOND_S)
    figure = read_figure(run.tool, done.output)
    if figure.per_s <= 0:
        raise LeadlineError(f"{run.tool} on {client} measured nothing")
    return figure


async def _version(tool: str, site: Site, client: str) -> str | None:
    done = await site.hosts[client].run(tool, _VERSION_OPTION.get(tool, "--version"))
    return read_version(tool, done.output)
