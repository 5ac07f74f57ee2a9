"""Options that several commands share, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from leadline.plan.options import VERBOSE

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout; progress goes to stderr.")]

Verbose = Annotated[bool, typer.Option("--verbose", help=VERBOSE.help)]


def _target(example: str) -> Any:
    """The option `--target`; its example uses a metric of the command."""
    return typer.Option(
        "--target", help=f"Exit with code 3 if this does not hold, as in '{example}'.", metavar="'METRIC < VALUE'"
    )


RunTargets = Annotated[list[str] | None, _target("udp.lost_ratio < 0.1%")]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", help="Run only these cases or tests; may be repeated.", metavar="CASE|TEST|AXIS=VALUE"),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Change a key of the plan, as in axes.clients=[5,20]; may be repeated.", metavar="KEY=VALUE"
    ),
]
Hosts = Annotated[
    str | None,
    typer.Option(
        "--hosts",
        help="Run on these hosts: an inventory (YAML, Ansible's, pods, an ssh_config), ray://..., or addresses. "
        "Default: the plan's.",
        metavar="FILE|ADDRESSES",
    ),
]
Tolerate = Annotated[
    str | None,
    typer.Option(
        "--tolerate", help="Go on without this share of the clients if they are lost: 2%. Default: 0.", metavar="SHARE"
    ),
]
DoctorHosts = Annotated[
    str | None,
    typer.Option(
        "--hosts",
        help="Ask these hosts: an inventory (YAML, Ansible's, pods, an ssh_config), ray://..., or addresses.",
        metavar="FILE|ADDRESSES",
    ),
]
Profile = Annotated[
    Path | None,
    typer.Option("--profile", help="Sample call stacks with perf and draw a flame graph (SVG).", metavar="FILE"),
]
