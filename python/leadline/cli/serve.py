"""`leadline serve`: answers every test, until Ctrl-C. Reads units and files' names; the server itself is the agent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from leadline.cli.help_format import PanelHelpCommand
from leadline.errors import InputError

NAME = "serve"
CLASS = PanelHelpCommand
EXAMPLE = """\
Example: leadline serve

    leadline serve --bind 0.0.0.0 --key-file key --no-http
    leadline serve --bind 0.0.0.0 --max-rate 1gbit --max-sessions 4
    leadline serve --http --size 1000 --delay 5ms --shape exponential
    leadline serve --http --errors 0.01 --stall 1s/5s
    leadline serve --http --https-port 8443 --certificate server.pem --key server.key

A request's query changes the answer to that request:
    http://HOST:8080/?status=503&size=1000&delay=5ms&shape=uniform&errors=0.5&chunked=1&close=1
What came and what was answered: http://HOST:8080/_leadline/stats
"""

_WHERE, _ANSWER, _TLS, _ACCESS = "Where", "Answers to http requests", "TLS", "Who may use it, and how much"
_MOST = 1_000_000


def command(
    bind: Annotated[
        list[str] | None,
        typer.Option(
            "--bind",
            help="Listen at this address; may be repeated. Loopback otherwise.",
            metavar="ADDR",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    port: Annotated[
        int, typer.Option("-p", "--port", min=1, max=65535, help="Port of tcp, udp and rr.", rich_help_panel=_WHERE)
    ] = 5201,
    http_port: Annotated[
        int, typer.Option("--http-port", min=1, max=65535, help="Port of http.", rich_help_panel=_WHERE)
    ] = 8080,
    http: Annotated[bool, typer.Option("--http", help="Answer http alone.", rich_help_panel=_WHERE)] = False,
    no_http: Annotated[
        bool, typer.Option("--no-http", help="Answer tcp, udp and rr alone.", rich_help_panel=_WHERE)
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(
            "-t",
            "--threads",
            min=1,
            max=16,
            help="Threads that answer http; one per CPU unless given.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    status: Annotated[
        int, typer.Option("--status", min=200, max=599, help="Status code.", rich_help_panel=_ANSWER)
    ] = 200,
    size: Annotated[
        str, typer.Option("--size", help="Body: 1000, 64KiB, 1MB.", metavar="SIZE", rich_help_panel=_ANSWER)
    ] = "12",
    chunked: Annotated[bool, typer.Option("--chunked", help="Send bodies in chunks.", rich_help_panel=_ANSWER)] = False,
    delay: Annotated[
        str,
        typer.Option("--delay", help="Mean time before an answer: 5ms.", metavar="TIME", rich_help_panel=_ANSWER),
    ] = "0",
    shape: Annotated[
        Literal["constant", "uniform", "exponential"],
        typer.Option("--shape", help="How delays lie around their mean.", rich_help_panel=_ANSWER),
    ] = "constant",
    errors: Annotated[
        float,
        typer.Option(
            "--errors",
            min=0,
            max=1,
            help="Share that gets 500 instead, evenly spread: 0.01.",
            metavar="SHARE",
            rich_help_panel=_ANSWER,
        ),
    ] = 0.0,
    close_after: Annotated[
        int | None,
        typer.Option("--close-after", min=1, help="Close a connection after N answers.", rich_help_panel=_ANSWER),
    ] = None,
    stall: Annotated[
        str | None,
        typer.Option(
            "--stall",
            help="Stall for this long, at this interval: 1s/5s. First after 5 s.",
            metavar="TIME/TIME",
            rich_help_panel=_ANSWER,
        ),
    ] = None,
    https_port: Annotated[
        int | None,
        typer.Option(
            "--https-port", min=1, max=65535, help="Answer http over TLS, too, as on 8443.", rich_help_panel=_TLS
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--certificate", help="Certificate, PEM; one is made otherwise.", metavar="FILE", rich_help_panel=_TLS
        ),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="Its key, PEM.", metavar="FILE", rich_help_panel=_TLS)
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            help="Answer tcp, udp and rr only to clients with the key in this file; http knows no key.",
            metavar="FILE",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    max_sessions: Annotated[
        int | None,
        typer.Option(
            "--max-sessions", min=1, max=_MOST, help="Sessions of one peer at once; 64.", rich_help_panel=_ACCESS
        ),
    ] = None,
    max_flows: Annotated[
        int | None,
        typer.Option(
            "--max-flows",
            min=1,
            max=_MOST,
            help="Flows of one peer at once, over all of its sessions; 4096.",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    max_connections: Annotated[
        int | None,
        typer.Option(
            "--max-connections",
            min=1,
            max=_MOST,
            help="Http connections of one peer at once; 32768.",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    max_rate: Annotated[
        str | None,
        typer.Option(
            "--max-rate",
            help="Payload that one session may ask for: 1gbit. Any otherwise.",
            metavar="RATE",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    max_idle: Annotated[
        str | None,
        typer.Option(
            "--max-idle",
            help="Close a connection that has not asked for a session by then; 10s.",
            metavar="TIME",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
) -> int:
    """Answer tcp, udp, rr and http load."""
    from leadline.agents import agent_binary

    if (certificate is None) != (key is None):
        raise InputError("--certificate and --key go together", hint="give both, or none for a made certificate")
    if certificate is not None and https_port is None:
        raise InputError("--certificate without --https-port", hint="give --https-port 8443")
    if http and no_http:
        raise InputError("--http and --no-http exclude each other")
    if http and (key_file is not None or max_rate is not None):
        raise InputError("--key-file and --max-rate are for tcp, udp and rr", hint="leave out --http")
    answer = {
        "--status": status,
        "--size": _size(size),
        "--delay": f"{_duration_us('--delay', delay)}us",
        "--shape": shape,
        "--errors": f"{errors:.9f}",
        "--close-after": close_after,
        "--stall": None if stall is None else _stall(stall),
        "--threads": threads,
        "--https-port": https_port,
        "--certificate": certificate,
        "--key": key,
        "--key-file": key_file,
        "--max-sessions": max_sessions,
        "--max-flows": max_flows,
        "--max-connections": max_connections,
        "--max-rate": None if max_rate is None else _rate(max_rate),
        "--max-idle": None if max_idle is None else f"{_duration_us('--max-idle', max_idle)}us",
    }
    argv = ["serve", *(part for address in bind or [] for part in ("--bind", address))]
    argv += ["--http"] if http else ["--port", str(port)]
    argv += ["--no-http"] if no_http else ["--http-port", str(http_port)]
    argv += ["--chunked"] if chunked else []
    argv += [part for name, value in answer.items() if value is not None for part in (name, str(value))]
    agent = str(agent_binary())
    # The server is the agent itself; nothing of ours has to stay beside it.
    os.execv(agent, [agent, *argv])


def _size(text: str) -> int:
    from leadline.plan.units import UnitError, size_bytes

    largest = 1 << 30
    try:
        size = int(text) if text.isdecimal() else size_bytes(text)
    except UnitError as error:
        raise InputError(f"--size: {error}") from None
    if size > largest:
        raise InputError(f"--size: {text} is too large", hint="at most 1GiB")
    return size


def _rate(text: str) -> int:
    from leadline.plan.units import UnitError, rate_bps

    try:
        rate = rate_bps(text)
    except UnitError as error:
        raise InputError(f"--max-rate: {error}") from None
    if rate < 1:
        raise InputError(f"--max-rate: {text} allows nothing", hint="write 1gbit; without it any rate is allowed")
    return rate


def _duration_us(option: str, text: str) -> int:
    from leadline.plan.units import UnitError, duration_us

    longest_us = 3600 * 1_000_000
    try:
        duration = 0 if text == "0" else duration_us(text)
    except UnitError as error:
        raise InputError(f"{option}: {error}") from None
    if duration > longest_us:
        raise InputError(f"{option}: {text} is too long", hint="at most 1h")
    return duration


def _stall(text: str) -> str:
    length, slash, every = text.partition("/")
    if not slash:
        raise InputError(f"--stall: {text!r} does not say how long and how often", hint="write 1s/5s")
    length_us, every_us = _duration_us("--stall", length), _duration_us("--stall", every)
    if length_us % 1000 or every_us % 1000:
        raise InputError(f"--stall: {text!r} has fractions of a millisecond", hint="write 100ms/5s")
    if not 0 < length_us < every_us:
        raise InputError(f"--stall: {text!r} does not end before the next begins", hint="write 1s/5s")
    return f"{length_us}us/{every_us}us"
