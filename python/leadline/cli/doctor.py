"""`leadline doctor`: the features of this host that work, those that are missing, and the commands that fix them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from leadline.cli import options as o
from leadline.cli.output import print_all, print_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.cli.host_checks import Check

NAME = "doctor"
EXAMPLE = "Example: leadline doctor\n\n    leadline doctor --hosts local"


def command(hosts: o.DoctorHosts = None, json: o.Json = False) -> int:
    """Show what works on hosts, and how to fix the rest.

    Exit code: 0 asked, 1 a host cannot be reached, 2 invalid input.
    """
    import asyncio

    if hosts is not None:
        return _show_hosts(hosts, json)

    from leadline.cli import host_checks

    # These checks fork, so they run before any thread exists.
    checks = [*host_checks.lab_checks(), *host_checks.kernel_checks(), *host_checks.program_checks()]
    checks += host_checks.host_checks()
    checks += asyncio.run(_agent())
    if json:
        print_json({"schema": "leadline.doctor/1", "findings": [dataclasses.asdict(check) for check in checks]})
    else:
        print_all([table(checks)])
    return 0


def _show_hosts(text: str, json: bool) -> int:
    """Print what each host can do; returns the exit code."""
    import asyncio

    from leadline.agents.inventory import read_inventory
    from leadline.cli import host_table

    states = asyncio.run(host_table.ask_hosts(read_inventory(text)))
    if json:
        print_json(host_table.document(states))
    else:
        print_all(host_table.tables(states))
    return 0 if all(state.reachable for state in states) else 1


def table(checks: list[Check]) -> RenderableType:
    """The checks as a table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("what", "works", "needed for"):
        drawn.add_column(title)
    for check in checks:
        word, tone = {True: ("yes", "green"), False: ("no", "yellow"), None: ("–", "dim")}[check.works]
        lines = Text(check.needed_for)
        if check.why:
            lines.append(f"\n{check.why}", "dim")
        if check.works is False and check.mend:
            lines.append(f"\nmend: {check.mend}")
        drawn.add_row(check.what, Text(word, tone), lines)
    return drawn


async def _agent() -> list[Check]:
    from leadline.agents import Agent, Launch, agent_binary
    from leadline.cli.host_checks import agent_check, capability_check, clock_check

    path = agent_binary()
    agent = await Agent.start("this host", Launch((str(path),)), sink=lambda *_: None)
    try:
        hello = agent.hello
        found = [capability_check(one) for one in hello.capabilities]
        return [agent_check(hello, path), clock_check(hello.host.clock), *found]
    finally:
        await agent.close()
