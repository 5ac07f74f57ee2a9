"""`leadline doctor --hosts`: what each host of an inventory can do, side by side.

Starts an agent on every host at once, asks it, and ends it: that is what a run does first.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leadline.cli.host_checks import Check, capability_check, clock_check
from leadline.errors import LeadlineError
from leadline.plan.host_address import HostAddress

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.agents import ClockComparison, ReachedHosts
    from leadline.contract.models import Hello
    from leadline.plan.inventory import InventoryHost

_SHOWN_HOSTS = 4


@dataclass(frozen=True, slots=True)
class HostState:
    """One host, as an agent on it found it."""

    name: str
    reachable: bool
    why: str | None = None
    """Why it cannot be reached."""
    hostname: str | None = None
    architecture: str | None = None
    kernel: str | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    round_trip_us: float | None = None
    """The shortest exchange with its agent."""
    clock_offset_us: float | None = None
    """How far its monotonic clock is ahead of this machine's; it counts from that machine's start."""
    clock_bound_us: float | None = None
    """The true offset is within this much of the one above."""
    same_kernel: bool | None = None
    """Whether it is this very machine, in a namespace or as it is."""
    checks: tuple[Check, ...] = field(default=())
    """What works there, and what is missing."""


async def ask_hosts(hosts: Sequence[InventoryHost]) -> list[HostState]:
    """Every host's state, in the inventory's order; those that cannot be reached are in it with the reason."""
    from leadline.agents import ReachedHosts
    from leadline.plan.hosts import GivenHost, each_node, numbered_nodes

    named = {host.name: GivenHost.model_validate(host.entry).at for host in hosts if host.left_out is None}
    addresses = numbered_nodes(each_node(named))
    async with aclosing(ReachedHosts()) as reached:
        found = await asyncio.gather(*(_ask(name, address, reached) for name, address in addresses.items()))
    states = {state.name: state for state in found}
    left_out = [host for host in hosts if host.left_out is not None]
    out = {host.name: HostState(host.name, False, f"{host.name} is left out: {host.left_out}") for host in left_out}
    return [{**states, **out}[name] for name in (*addresses, *out)]


async def _ask(name: str, address: HostAddress, reached: ReachedHosts) -> HostState:
    from leadline.agents import Agent

    try:
        launches = await reached.launches({name: address})
        agent = await Agent.start(name, launches[name], sink=lambda *_: None)
    except LeadlineError as error:
        return HostState(name, False, str(error))
    try:
        clock = await agent.compare_clocks()
        return _state(name, agent.hello, clock)
    except LeadlineError as error:
        return HostState(name, False, str(error))
    finally:
        await agent.close()


def _state(name: str, hello: Hello, clock: ClockComparison) -> HostState:
    host = hello.host
    return HostState(
        name,
        True,
        hostname=host.hostname,
        architecture=host.architecture,
        kernel=host.kernel,
        cpus=host.cpus,
        memory_bytes=host.memory_bytes,
        round_trip_us=clock.shortest_round_trip_ns / 1000,
        clock_offset_us=clock.offset_ns / 1000,
        clock_bound_us=clock.bound_ns / 1000,
        same_kernel=clock.same_clock,
        checks=(clock_check(host.clock), *(capability_check(one) for one in hello.capabilities)),
    )


def document(states: Sequence[HostState]) -> dict[str, Any]:
    """The states as JSON."""
    return {"schema": "leadline.doctor-hosts/1", "hosts": [dataclasses.asdict(state) for state in states]}


def tables(states: Sequence[HostState]) -> list[RenderableType]:
    """The hosts side by side, then what is missing on which of them, with the line that mends it."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for title, justify in _COLUMNS.items():
        drawn.add_column(title, justify=justify, no_wrap=title in ("reached", "round trip", "clock"))
    for state in states:
        word = Text("yes", "green") if state.reachable else Text("no", "red")
        drawn.add_row(state.name, word, *(_cells(state) if state.reachable else [""] * (len(_COLUMNS) - 2)))
    lines: list[RenderableType] = [drawn]
    lines += [Text(state.why or "") for state in states if not state.reachable]
    for check, names in _missing(states).items():
        some = f"all {len(names)} hosts" if len(names) == len(states) > 1 else _listed(names)
        what, mend = check
        lines.append(Text(f"{what} is missing on {some}{f'; mend: {mend}' if mend else ''}"))
    return lines


_COLUMNS: Mapping[str, Any] = {
    "host": "left",
    "reached": "left",
    "machine": "left",
    "kernel": "left",
    "round trip": "right",
    "clock": "right",
    "missing": "right",
}


def _cells(state: HostState) -> list[str]:
    missing = [check.what for check in state.checks if check.works is False]
    memory = "–" if state.memory_bytes is None else f"{state.memory_bytes / 2**30:.1f} GiB"
    bound = "–" if state.clock_bound_us is None else f"± {state.clock_bound_us:.0f} µs"
    return [
        f"{state.architecture or '–'}, {'–' if state.cpus is None else state.cpus} CPUs, {memory}",
        state.kernel or "–",
        "–" if state.round_trip_us is None else f"{state.round_trip_us:.0f} µs",
        "the same" if state.same_kernel else bound,
        str(len(missing)) if missing else "–",
    ]


def _missing(states: Sequence[HostState]) -> dict[tuple[str, str | None], list[str]]:
    found: dict[tuple[str, str | None], list[str]] = {}
    for state in states:
        for check in state.checks:
            if check.works is False:
                found.setdefault((check.what, check.mend), []).append(state.name)
    return found


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN_HOSTS])
    return shown if len(names) <= _SHOWN_HOSTS else f"{shown} and {len(names) - _SHOWN_HOSTS} more"
