"""`leadline serve`: answers load until Ctrl-C. Parses units and file names; the agent is the server itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel

from leadline.cli.help_format import PanelHelpCommand
from leadline.cli.kind_command import build_function
from leadline.errors import InputError
from leadline.plan.options import Option

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
_MAX_COUNT = 1_000_000
_MAX_PORT = 65535


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


def _duration(option: str, text: str) -> str:
    return f"{_duration_us(option, text)}us"


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


def _flag(flag: str, text: str, panel: str) -> Option:
    return Option((flag,), text, type=bool, default=False, panel=panel)


def _port(flags: tuple[str, ...], text: str, panel: str) -> Option:
    return Option(flags, text, type=int, least=1, most=_MAX_PORT, panel=panel)


def _count(
    flags: tuple[str, ...], text: str, panel: str, most: int | None = _MAX_COUNT, metavar: str | None = None
) -> Option:
    return Option(flags, text, type=int, least=1, most=most, metavar=metavar, panel=panel)


def _file(flag: str, text: str, panel: str) -> Option:
    return Option((flag,), text, type=Path, metavar="FILE", panel=panel)


# In the order of `--help`. The agent has the same options; `read` checks and converts what it gets.
_ROWS = (
    Option(
        ("--bind",),
        "Address to listen on; may be repeated. Default: loopback.",
        type=list,
        metavar="ADDR",
        panel=_WHERE,
    ),
    _port(("-p", "--port"), "Port for tcp, udp and rr. Default: 5201.", _WHERE),
    _port(("--http-port",), "Port for HTTP. Default: 8080.", _WHERE),
    _flag("--http", "Answer only HTTP.", _WHERE),
    _flag("--no-http", "Answer only tcp, udp and rr.", _WHERE),
    _count(("-t", "--threads"), "Number of HTTP threads. Default: one per CPU.", _WHERE, most=16),
    Option(
        ("--status",),
        "Status code of the answers.",
        type=int,
        default=200,
        least=200,
        most=599,
        panel=_ANSWER,
    ),
    Option(
        ("--size",),
        "Size of the body: 1000, 64KiB, 1MB.",
        default="12",
        metavar="SIZE",
        panel=_ANSWER,
        read=_size,
    ),
    _flag("--chunked", "Send bodies with chunked encoding.", _ANSWER),
    Option(
        ("--delay",),
        "Mean delay before an answer: 5ms.",
        default="0",
        metavar="TIME",
        panel=_ANSWER,
        read=partial(_duration, "--delay"),
    ),
    Option(
        ("--shape",),
        "Distribution of the delays.",
        type=("constant", "uniform", "exponential"),
        default="constant",
        panel=_ANSWER,
    ),
    Option(
        ("--errors",),
        "Share of the requests that get status 500, evenly spread: 0.01.",
        type=float,
        default=0.0,
        least=0,
        most=1,
        metavar="SHARE",
        panel=_ANSWER,
        read="{:.9f}".format,
    ),
    _count(("--close-after",), "Close a connection after N answers.", _ANSWER, most=None),
    Option(
        ("--stall",),
        "Stall for this long, at this interval: 1s/5s stalls for 1 s every 5 s.",
        metavar="TIME/TIME",
        panel=_ANSWER,
        read=_stall,
    ),
    _port(("--https-port",), "Also answer HTTP over TLS, on this port: 8443.", _TLS),
    _file("--certificate", "Certificate, a PEM file. Default: a self-signed one is made.", _TLS),
    _file("--key", "Private key of the certificate, a PEM file.", _TLS),
    _file("--key-file", "File with a key: tcp, udp and rr require it from clients. HTTP has no key.", _ACCESS),
    _file(
        "--authorized-users-path",
        "iperf3's file of users: only they may measure with iperf3. Needs the next option.",
        _ACCESS,
    ),
    _file(
        "--rsa-private-key-path",
        "Private RSA key that iperf3's logins are encrypted for, a PEM file.",
        _ACCESS,
    ),
    _flag("--use-pkcs1-padding", "Logins have the padding of iperf3 before 3.17.", _ACCESS),
    _count(
        ("--time-skew-threshold",),
        "How far the clock of an iperf3 client may be off, in seconds. Default: 10.",
        _ACCESS,
        metavar="SECONDS",
    ),
    _count(("--max-sessions",), "Limit of concurrent sessions per peer. Default: 64.", _ACCESS),
    _count(
        ("--max-flows",),
        "Limit of concurrent flows per peer, over all its sessions. Default: 4096.",
        _ACCESS,
    ),
    _count(("--max-connections",), "Limit of concurrent HTTP connections per peer. Default: 32768.", _ACCESS),
    Option(
        ("--max-rate",),
        "Limit of what is sent to a peer, over its sessions and HTTP: 1gbit. Default: no limit.",
        metavar="RATE",
        panel=_ACCESS,
        read=_rate,
    ),
    Option(
        ("--max-idle",),
        "Close a connection that opens no session within this time. Default: 10s.",
        metavar="TIME",
        panel=_ACCESS,
        read=partial(_duration, "--max-idle"),
    ),
)

_OPTIONS = tuple(row.completed(BaseModel) for row in _ROWS)


def run(values: Mapping[str, Any]) -> NoReturn:
    """Become the agent that serves as these options say, by their names in code.

    Raises:
        InputError: an option is wrong, or excludes another one.
    """
    from leadline.agents import agent_binary

    _check_together(values)
    argv = ["serve"]
    for option in _OPTIONS:
        given = values[option.name]
        for value in given if isinstance(given, list) else [given]:
            if value is True:
                argv.append(f"--{option.flag}")
            elif value is not None and value is not False:
                argv += [f"--{option.flag}", str(option.read(value) if option.read else value)]
    agent = str(agent_binary())
    # The server is the agent itself, so this process is replaced by it.
    os.execv(agent, [agent, *argv])


def _check_together(values: Mapping[str, Any]) -> None:
    """Check that no option excludes another one, or misses it. Raises InputError."""
    given = {name for name, value in values.items() if value not in (None, False)}
    if ("certificate" in given) != ("key" in given):
        raise InputError(
            "--certificate and --key require each other", hint="give both, or neither to have a certificate made"
        )
    if "certificate" in given and "https_port" not in given:
        raise InputError("--certificate without --https-port", hint="give --https-port 8443")
    if {"http", "no_http"} <= given:
        raise InputError("--http and --no-http exclude each other")
    if "http" in given and given & {"port", "key_file"}:
        raise InputError("--port and --key-file are for tcp, udp and rr", hint="leave out --http")
    if {"no_http", "http_port"} <= given:
        raise InputError("--http-port is for HTTP", hint="leave out --no-http")
    needed = {"authorized_users_path", "rsa_private_key_path"}
    if given & {*needed, "use_pkcs1_padding", "time_skew_threshold"} and not needed <= given:
        raise InputError(
            "iperf3's users need --authorized-users-path and --rsa-private-key-path", hint="give both, or neither"
        )
    if {"http", "authorized_users_path"} <= given:
        raise InputError("--authorized-users-path is for tcp and udp", hint="leave out --http")


command = build_function("Run a server that answers tcp, udp, rr and http tests.", _OPTIONS, run)
