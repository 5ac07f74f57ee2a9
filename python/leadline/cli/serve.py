"""`leadline serve`: answers every test, until Ctrl-C."""

from __future__ import annotations

import os
from typing import Annotated

import typer

NAME = "serve"
EXAMPLE = "Example: leadline serve --bind 0.0.0.0"


def command(
    bind: Annotated[
        list[str] | None,
        typer.Option("--bind", help="Listen at this address; may be repeated. Loopback otherwise.", metavar="ADDR"),
    ] = None,
    port: Annotated[int, typer.Option("-p", "--port", min=1, max=65535, help="Port of tcp, udp and rr.")] = 5201,
    http_port: Annotated[int, typer.Option("--http-port", min=1, max=65535, help="Port of http.")] = 8080,
    http: Annotated[bool, typer.Option("--http", help="Answer http alone.")] = False,
) -> int:
    """Answer tcp, udp, rr and http load."""
    from leadline.fleet import agent_binary

    agent = str(agent_binary())
    addresses = [part for address in bind or [] for part in ("--bind", address)]
    only = ["--http"] if http else ["--port", str(port)]
    # The server is the agent itself; nothing of ours has to stay beside it.
    os.execv(agent, [agent, "serve", *addresses, *only, "--http-port", str(http_port)])
