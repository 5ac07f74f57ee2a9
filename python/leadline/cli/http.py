"""`leadline http`: HTTP/1.1 load on a URL."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

import typer

from leadline.cli import options as o
from leadline.errors import InputError

NAME = "http"
EXAMPLE = "Example: leadline http http://192.0.2.7:8080/ -c 50 --rate 1000 -d 10s"


def command(
    url: Annotated[str, typer.Argument(help="http://HOST[:PORT]/PATH", show_default=False)],
    duration: o.Duration = "10s",
    warmup: o.Warmup = "0s",
    number: o.Number = None,
    connections: Annotated[int, typer.Option("-c", "--connections", min=1, help="Connections.")] = 10,
    threads: o.Threads = 1,
    rate: Annotated[
        str | None,
        typer.Option("--rate", help="Requests per second, each timed from when it was due; else a closed loop."),
    ] = None,
    method: Annotated[str, typer.Option("-X", "--method", help="GET, HEAD, POST or PUT.")] = "GET",
    header: Annotated[list[str] | None, typer.Option("-H", "--header", help="'Name: value'; may be repeated.")] = None,
    body: Annotated[str | None, typer.Option("--body", help="Request body.")] = None,
    timeout: Annotated[str, typer.Option("--timeout", help="After this a request counts as an error.")] = "5s",
    ipv4: o.Ipv4 = False,
    ipv6: o.Ipv6 = False,
    bind: o.Bind = None,
    json: o.Json = False,
    out: o.Out = None,
    target: o.Targets = None,
) -> int:
    """Measure requests per second and latency of an HTTP server."""
    from leadline.cli import quick
    from leadline.plan import HttpTest
    from leadline.trial.workloads import workload

    test = quick.parse(
        HttpTest,
        {
            "name": "http",
            "duration": duration,
            "warmup": warmup,
            "number": number,
            "connections": connections,
            "threads": threads,
            "rate": rate,
            "method": method.upper(),
            "headers": [_header(text) for text in header or []],
            "body": body,
            "timeout": timeout,
        },
    )
    load = quick.aim(workload(test, _host(url)), quick.family(ipv4, ipv6), bind, url)
    return quick.run(test, load, quick.Wanted(url, json, out, target or []))


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"{url} is not a URL: {error}", hint="write http://HOST[:PORT]/PATH") from None
    if parts.scheme != "http" or not host:
        raise InputError(f"{url} is not an http:// URL", hint="write http://HOST[:PORT]/PATH")
    return host


def _header(text: str) -> dict[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise InputError(f"--header {text!r} has no name and colon", hint="write 'Name: value'")
    return {"name": name.strip(), "value": value.strip()}
