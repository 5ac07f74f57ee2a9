"""`leadline doctor`: what this host can do, what is missing, and what to do about it."""

from __future__ import annotations

import shutil
from typing import Any

from leadline.cli import options as o
from leadline.cli.output import print_all, print_json

NAME = "doctor"
EXAMPLE = "Example: leadline doctor --json"

_PROGRAMS = (
    ("openvpn", "plans with sut kind openvpn", "apt-get install openvpn"),
    ("nsenter", "the lab's hosts", "apt-get install util-linux"),
    ("ssh", "plans with given hosts", "apt-get install openssh-client"),
)


def command(json: o.Json = False) -> int:
    """Show what works on this host, and why something does not."""
    import asyncio

    from leadline.lab import jail

    lab = jail.available()
    rows: list[dict[str, Any]] = [
        {"what": "lab", "works": lab.possible, "why": lab.reason or ("without root" if lab.rootless else "as root")}
    ]
    rows += [
        {
            "what": name,
            "works": shutil.which(name) is not None,
            "why": why if shutil.which(name) else f"{why}: {advice}",
        }
        for name, why, advice in _PROGRAMS
    ]
    rows += asyncio.run(_agent())
    if json:
        print_json({"schema": "leadline.doctor/1", "findings": rows})
        return 0
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("what", "works", "why"):
        table.add_column(title)
    for row in rows:
        tone = "green" if row["works"] else "yellow"
        table.add_row(row["what"], Text("yes" if row["works"] else "no", tone), Text(row["why"] or ""))
    print_all([table])
    return 0


async def _agent() -> list[dict[str, Any]]:
    from leadline.fleet import Agent, Launch, agent_binary

    agent = await Agent.start("this host", Launch((str(agent_binary()),)), sink=lambda _host, _event: None)
    try:
        clock = agent.hello.host.clock
        error = "" if clock.max_error_us is None else f"; error up to {clock.max_error_us / 1e6:g} s"
        synchronised = bool(clock.synchronised)
        why = f"source {clock.source or 'unknown'}{error}; agents compare their clocks themselves"
        rows = [{"what": "synchronised clock", "works": synchronised, "why": why}]
        found = agent.hello.capabilities
        return rows + [{"what": one.name, "works": one.available, "why": one.reason} for one in found]
    finally:
        await agent.close()
