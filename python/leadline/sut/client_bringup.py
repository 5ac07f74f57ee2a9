"""Brings tunnel clients up together: starts all, waits until each is ready, checks its host, then sends traffic.

Shared by all tunnels; a `ClientPlan` and two functions have the differences. States are verified, never assumed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from leadline.agents.asyncio_tools import unless
from leadline.errors import NoClientConnected, SutFailed, TaskFailed
from leadline.sut import expectation
from leadline.sut.daemons import Daemon, Daemons
from leadline.sut.expectation import Expectation
from leadline.sut.model import ClientState, Site
from leadline.sut.probe import probe

T = TypeVar("T")

CONNECT_WITHIN_S = 60.0
_LOOKS, _LOOK_AGAIN_S = 100, 0.05
_AT_ONCE = 64
"""Number of clients that are checked or probed at the same time: pipes and the server's backlog are limited."""


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """One client: its host, its process, and the expected state afterwards."""

    client: str
    daemon: Daemon
    ready: str
    """The line that the process prints when it considers itself connected."""
    expected: Expectation
    settles_s: float = 0.0
    """How long after that line addresses and routes may still change."""
    refused: str | None = None
    """The line that the process prints when it stops trying although it goes on; None for processes that end then."""
    accepted: str | None = None
    """The line that it prints when the gateway has accepted it: refused later, it is connected in part."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """The functions that one kind of tunnel adds."""

    explain: Callable[[ClientPlan], str | None] | None = None
    """Why this client is not (fully) connected, from the daemons' output; None where that says nothing of it."""
    symptom: Callable[[ClientPlan], str | None] | None = None
    """What the client saw, where no cause becomes known in time."""
    configure: Callable[[ClientPlan], Awaitable[None]] | None = None
    """Sets what the process leaves to others once it is ready: routes."""


async def connect(
    site: Site, daemons: Daemons, plans: Sequence[ClientPlan], hooks: Hooks, *, within_s: float = CONNECT_WITHIN_S
) -> list[ClientState]:
    """Bring all clients up at the same time; the time limit is for all together.

    Raises:
        NoClientConnected: no client could send traffic.
        AgentLost: an agent is gone.
    """
    deadline = time.monotonic() + within_s

    async def one(plan: ClientPlan) -> tuple[ClientState, dict[int, str]]:
        left_s = max(0.0, deadline - time.monotonic())
        return await _connect_one(site, daemons, plan, hooks, left_s)

    found = await together(one(plan) for plan in plans)
    doubles = expectation.shared({state.host: addresses for state, addresses in found})
    states = [
        replace(state, state="partial", missing=(*state.missing, "unique address"), cause=doubles[state.host])
        if state.host in doubles
        else state
        for state, _ in found
    ]
    return await confirm(site, states)


async def confirm(site: Site, states: Sequence[ClientState]) -> list[ClientState]:
    """Probe every client that appears connected.

    Raises:
        NoClientConnected: no client could send traffic.
        AgentLost: an agent is gone.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(state: ClientState) -> ClientState:
        if state.state != "connected":
            return state
        async with gate:
            cause = await probe(site, state.host)
        return state if cause is None else replace(state, state="partial", missing=("traffic",), cause=cause)

    confirmed = await together(one(state) for state in states)
    if not any(state.state == "connected" for state in confirmed):
        first = confirmed[0]
        gaps = f", {' and '.join(first.missing)} missing" if first.missing else ""
        why = f": {first.cause}" if first.cause else ""
        message = f"none of {len(confirmed)} clients is connected: {first.host} {first.state}{gaps}{why}"
        raise NoClientConnected(message, confirmed)
    return confirmed


async def unless_dead(daemons: Daemons, gateway: Daemon, work: Coroutine[Any, Any, T]) -> T:
    """Do the work while the gateway's process is running.

    Raises:
        SutFailed,
        AgentLost: the gateway ended first.
    """
    return await unless(work, daemons.failure(only=[gateway]))


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all at the same time; the first error cancels the rest and is raised."""
    tasks = [asyncio.ensure_future(item) for item in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


async def _refused(site: Site, daemons: Daemons, plan: ClientPlan, hooks: Hooks) -> tuple[ClientState, dict[int, str]]:
    """The state of a client whose process stopped trying, and its addresses: `partial` if the gateway accepted it."""
    cause = await _cause(plan, hooks) or (hooks.symptom(plan) if hooks.symptom is not None else None)
    cause = cause or f"it stopped trying{await daemons.last_words(plan.daemon)}"
    if plan.accepted is None or not any(plan.accepted in line for line in daemons.reported(plan.daemon)):
        await daemons.stop(plan.daemon)
        return ClientState(plan.client, "failed", None, cause=cause), {}
    view = await site.hosts[plan.daemon.host].network()
    gaps = expectation.missing(view, plan.expected) or ("traffic",)
    return ClientState(plan.client, "partial", None, gaps, cause), expectation.addresses(view, plan.expected)


async def _cause(plan: ClientPlan, hooks: Hooks) -> str | None:
    """Why this client is not fully connected; None if it is not known in time. The gateway's output comes by an agent
    of its own, maybe later than the client's, and nothing tells that no more of it is on its way.
    """
    if hooks.explain is None:
        return None
    for _ in range(_LOOKS):
        if (known := hooks.explain(plan)) is not None:
            return known
        await asyncio.sleep(_LOOK_AGAIN_S)
    return None


async def _connect_one(
    site: Site, daemons: Daemons, plan: ClientPlan, hooks: Hooks, within_s: float
) -> tuple[ClientState, dict[int, str]]:
    """One client's state before any traffic, and its addresses in the tunnel."""
    host = site.hosts[plan.daemon.host]
    texts = plan.ready if plan.refused is None else (plan.ready, plan.refused)
    try:
        started = await daemons.start(plan.daemon)
        line = await host.output(plan.daemon.name, texts, within_s)
    except SutFailed as error:
        return ClientState(plan.client, "failed", None, cause=error.message), {}
    except TaskFailed as error:
        known = hooks.explain(plan) if hooks.explain is not None else None
        cause = f"no answer in {within_s:.0f} s" if error.code == "timeout" else error.message
        cause = f"{cause}{await daemons.last_words(plan.daemon)}"
        # It would retry, and load the gateway, while others are measured.
        await daemons.stop(plan.daemon)
        return ClientState(plan.client, "failed", None, cause=known or cause), {}
    if plan.refused is not None and plan.refused in line.line:
        return await _refused(site, daemons, plan, hooks)
    time_s = (line.t_ns - started.t_ns) / 1e9
    if hooks.configure is not None:
        await hooks.configure(plan)
    view = await host.network()
    settled_by = time.monotonic() + plan.settles_s
    while expectation.missing(view, plan.expected) and time.monotonic() < settled_by:
        view = await host.network()
    held = expectation.addresses(view, plan.expected)
    gaps = expectation.missing(view, plan.expected)
    if gaps:
        return ClientState(plan.client, "partial", time_s, gaps, await _cause(plan, hooks)), held
    return ClientState(plan.client, "connected", time_s), held
