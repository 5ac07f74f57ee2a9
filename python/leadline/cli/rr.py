"""`leadline rr`: request-response latency to a server."""

from __future__ import annotations

from typing import Annotated

import typer

from leadline.cli import options as o

NAME = "rr"
EXAMPLE = "Example: leadline rr 192.0.2.7 --udp -l 64 --response 64 -d 10s"


def command(
    host: o.Host,
    duration: o.Duration = "10s",
    warmup: o.Warmup = "0s",
    number: o.Number = None,
    parallel: o.Flows = 1,
    threads: o.Threads = 1,
    udp: Annotated[bool, typer.Option("--udp", help="Over UDP instead of TCP (at least 40 bytes each way).")] = False,
    size: Annotated[
        str | None,
        typer.Option(
            "-l", "--size", help="Request payload, bytes; the protocol's minimum unless given.", metavar="SIZE"
        ),
    ] = None,
    response: Annotated[str | None, typer.Option("--response", help="Response payload, bytes.", metavar="SIZE")] = None,
    timeout: Annotated[
        str,
        typer.Option(
            "--timeout", help="After this a transaction counts as an error; over TCP it ends its flow.", metavar="TIME"
        ),
    ] = "1s",
    ipv4: o.Ipv4 = False,
    ipv6: o.Ipv6 = False,
    bind: o.Bind = None,
    port: o.Port = 5201,
    key_file: o.KeyFile = None,
    interval: o.Interval = None,
    json: o.Json = False,
    out: o.Out = None,
    percentiles: o.Percentiles = None,
    target: o.RrTargets = None,
) -> int:
    """Measure the latency of request and response, one outstanding per flow."""
    from leadline.cli import single_args
    from leadline.plan import RrTest

    test = single_args.parse(
        RrTest,
        {
            "name": "rr",
            "duration": duration,
            "warmup": warmup,
            "number": number,
            "flows": parallel,
            "threads": threads,
            "protocol": "udp" if udp else "tcp",
            "request": size,
            "response": response,
            "timeout": timeout,
            "percentiles": single_args.listed(percentiles),
        },
    )
    interval_ms = single_args.interval(interval)
    load = single_args.build_workload(test, host, port, single_args.family(ipv4, ipv6), bind, key_file)
    from leadline.cli import run_single

    return run_single.run(test, load, single_args.OutputOptions(host, json, out, target or [], interval_ms=interval_ms))
