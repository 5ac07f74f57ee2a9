"""Options that mean the same in every command, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; progress stays on stderr.")]


def _target(example: str) -> Any:
    """`--target`, with an example whose metric the command has."""
    return typer.Option("--target", help=f"Exit 3 unless it holds, as in '{example}'.", metavar="'METRIC < VALUE'")


RunTargets = Annotated[list[str] | None, _target("udp.lost_ratio < 0.1%")]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", help="Only these cases or tests; may be repeated.", metavar="CASE|TEST|AXIS=VALUE"),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change the plan, as in axes.clients=[5,20]; may be repeated.", metavar="KEY=VALUE"),
]
Profile = Annotated[
    Path | None,
    typer.Option("--profile", help="Sample call stacks with perf and draw a flame graph (SVG).", metavar="FILE"),
]
