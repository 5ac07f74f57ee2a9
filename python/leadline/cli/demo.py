"""`leadline demo`: runs the example `demo`, and says how to go on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leadline.cli import options as o
from leadline.cli import run
from leadline.cli.examples import example_plan
from leadline.cli.output import print_note

NAME = "demo"
EXAMPLE = "Example: leadline demo"
NEXT_STEPS = (
    "with intervals, in 10 min: leadline plan --example gateway > gateway.yaml; leadline run gateway.yaml",
    "your own hosts and gateways: leadline plan --example lists plans to change; this machine alone: leadline doctor",
)


def command(
    out: Annotated[
        Path, typer.Option("--out", help="Folder in which the run's folder is created.", metavar="DIR")
    ] = Path("runs"),
    json: o.Json = False,
) -> int:
    """Measure three gateways on this machine, in a minute.

    Plain forwarding, WireGuard and OpenVPN stand between a client and a server, on hosts that are made for it, each
    under TCP, request-response and HTTP. Exit codes as for `leadline run`.
    """
    code = run.command(example_plan(NAME).path, out=out, json=json)
    for step in NEXT_STEPS:
        print_note(step)
    return code
