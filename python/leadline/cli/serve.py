"""`leadline serve`: answers load until Ctrl-C. Parses units and file names; the agent is the server itself."""

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
Counters of requests and answers: http://HOST:8080/_leadline/stats
"""

_WHERE, _ANSWER, _TLS, _ACCESS = "Addresses", "Answers to HTTP requests", "TLS", "Access and limits"
_MOST = 1_000_000


def command(
    bind: Annotated[
        list[str] | None,
        typer.Option(
            "--bind",
            help="Address to listen on; may be repeated. Default: loopback.",
            metavar="ADDR",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "-p", "--port", min=1, max=65535, help="Port for tcp, udp and rr. Default: 5201.", rich_help_panel=_WHERE
        ),
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option("--http-port", min=1, max=65535, help="Port for HTTP. Default: 8080.", rich_help_panel=_WHERE),
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="Answer only HTTP.", rich_help_panel=_WHERE)] = False,
    no_http: Annotated[
        bool, typer.Option("--no-http", help="Answer only tcp, udp and rr.", rich_help_panel=_WHERE)
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(
            "-t",
            "--threads",
            min=1,
            max=16,
            help="Number of HTTP threads. Default: one per CPU.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    status: Annotated[
        int, typer.Option("--status", min=200, max=599, help="Status code of the answers.", rich_help_panel=_ANSWER)
    ] = 200,
    size: Annotated[
        str, typer.Option("--size", help="Size of the body: 1000, 64KiB, 1MB.", metavar="SIZE", rich_help_panel=_ANSWER)
    ] = "12",
    chunked: Annotated[
        bool, typer.Option("--chunked", help="Send bodies with chunked encoding.", rich_help_panel=_ANSWER)
    ] = False,
    delay: Annotated[
        str,
        typer.Option("--delay", help="Mean delay before an answer: 5ms.", metavar="TIME", rich_help_panel=_ANSWER),
    ] = "0",
    shape: Annotated[
        Literal["constant", "uniform", "exponential"],
        typer.Option("--shape", help="Distribution of the delays.", rich_help_panel=_ANSWER),
    ] = "constant",
    errors: Annotated[
        float,
        typer.Option(
            "--errors",
            min=0,
            max=1,
            help="Share of the requests that get status 500, evenly spread: 0.01.",
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
            help="Stall for this long, at this interval: 1s/5s stalls for 1 s every 5 s.",
            metavar="TIME/TIME",
            rich_help_panel=_ANSWER,
        ),
    ] = None,
    https_port: Annotated[
        int | None,
        typer.Option(
            "--https-port",
            min=1,
            max=65535,
            help="Also answer HTTP over TLS, on this port: 8443.",
            rich_help_panel=_TLS,
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--certificate",
            help="Certificate, a PEM file. Default: a self-signed one is made.",
            metavar="FILE",
            rich_help_panel=_TLS,
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", help="Private key of the certificate, a PEM file.", metavar="FILE", rich_help_panel=_TLS),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            help="File with a key: tcp, udp and rr require it from clients. HTTP has no key.",
            metavar="FILE",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    users: Annotated[
        Path | None,
        typer.Option(
            "--authorized-users-path",
            help="iperf3's file of users: only they may measure with iperf3. Needs the next option.",
            metavar="FILE",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    rsa_key: Annotated[
        Path | None,
        typer.Option(
            "--rsa-private-key-path",
            help="Private RSA key that iperf3's logins are encrypted for, a PEM file.",
            metavar="FILE",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    pkcs1: Annotated[
        bool,
        typer.Option(
            "--use-pkcs1-padding", help="Logins have the padding of iperf3 before 3.17.", rich_help_panel=_ACCESS
        ),
    ] = False,
    skew: Annotated[
        int | None,
        typer.Option(
            "--time-skew-threshold",
            min=1,
            max=_MOST,
            help="How far the clock of an iperf3 client may be off, in seconds. Default: 10.",
            metavar="SECONDS",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    max_sessions: Annotated[
        int | None,
        typer.Option(
            "--max-sessions",
            min=1,
            max=_MOST,
            help="Limit of concurrent sessions per peer. Default: 64.",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    max_flows: Annotated[
        int | None,
        typer.Option(
            "--max-flows",
            min=1,
            max=_MOST,
            help="Limit of concurrent flows per peer, over all its sessions. Default: 4096.",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    max_connections: Annotated[
        int | None,
        typer.Option(
            "--max-connections",
            min=1,
            max=_MOST,
            help="Limit of concurrent HTTP connections per peer. Default: 32768.",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    max_rate: Annotated[
        str | None,
        typer.Option(
            "--max-rate",
            help="Limit of what is sent to a peer, over its sessions and HTTP: 1gbit. Default: no limit.",
            metavar="RATE",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
    max_idle: Annotated[
        str | None,
        typer.Option(
            "--max-idle",
            help="Close a connection that opens no session within this time. Default: 10s.",
            metavar="TIME",
            rich_help_panel=_ACCESS,
        ),
    ] = None,
) -> int:
    """Run a server that answers tcp, udp, rr and http tests."""
    from leadline.agents import agent_binary

    if (certificate is None) != (key is None):
        raise InputError(
            "--certificate and --key require each other", hint="give both, or neither to have a certificate made"
        )
    if certificate is not None and https_port is None:
        raise InputError("--certificate without --https-port", hint="give --https-port 8443")
    if http and no_http:
        raise InputError("--http and --no-http exclude each other")
    if http and (port is not None or key_file is not None):
        raise InputError("--port and --key-file are for tcp, udp and rr", hint="leave out --http")
    if no_http and http_port is not None:
        raise InputError("--http-port is for HTTP", hint="leave out --no-http")
    if (users is None) != (rsa_key is None) or ((pkcs1 or skew) and users is None):
        raise InputError(
            "iperf3's users need --authorized-users-path and --rsa-private-key-path", hint="give both, or neither"
        )
    if http and users is not None:
        raise InputError("--authorized-users-path is for tcp and udp", hint="leave out --http")
    answer = {
        "--port": port,
        "--http-port": http_port,
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
        "--authorized-users-path": users,
        "--rsa-private-key-path": rsa_key,
        "--time-skew-threshold": skew,
        "--max-sessions": max_sessions,
        "--max-flows": max_flows,
        "--max-connections": max_connections,
        "--max-rate": None if max_rate is None else _rate(max_rate),
        "--max-idle": None if max_idle is None else f"{_duration_us('--max-idle', max_idle)}us",
    }
    argv = ["serve", *(part for address in bind or [] for part in ("--bind", address))]
    argv += ["--http"] if http else []
    argv += ["--no-http"] if no_http else []
    argv += ["--chunked"] if chunked else []
    argv += ["--use-pkcs1-padding"] if pkcs1 else []
    argv += [part for name, value in answer.items() if value is not None for part in (name, str(value))]
    agent = str(agent_binary())
    # The server is the agent itself, so this process is replaced by it.
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
        raise InputError(f"--max-rate: {text} allows no payload", hint="write 1gbit; without it any rate is allowed")
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
        raise InputError(f"--stall: {text!r} is not a length and an interval", hint="write 1s/5s")
    length_us, every_us = _duration_us("--stall", length), _duration_us("--stall", every)
    if length_us % 1000 or every_us % 1000:
        raise InputError(f"--stall: {text!r} is not in whole milliseconds", hint="write 100ms/5s")
    if not 0 < length_us < every_us:
        raise InputError(f"--stall: {text!r} is a stall that is not shorter than its interval", hint="write 1s/5s")
    return f"{length_us}us/{every_us}us"
