"""`leadline tcp`: bulk TCP to a server."""

from __future__ import annotations

from typing import Annotated

import typer

from leadline.cli import options as o

NAME = "tcp"
EXAMPLE = "Example: leadline tcp 192.0.2.7 -P 4 -d 10s --warmup 1s"


def command(
    host: o.Host,
    duration: o.Duration = "10s",
    warmup: o.Warmup = "0s",
    parallel: o.Flows = 1,
    threads: o.Threads = 1,
    reverse: o.Reverse = False,
    bidir: o.Bidirectional = False,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate", help="Payload bits per second: 100mbit; as fast as possible unless given.", metavar="RATE"
        ),
    ] = None,
    size: Annotated[str, typer.Option("-l", "--size", help="Bytes per write and read.", metavar="SIZE")] = "128KiB",
    congestion: Annotated[
        str | None, typer.Option("--congestion", help="Congestion control, by the kernel's name.", metavar="NAME")
    ] = None,
    ipv4: o.Ipv4 = False,
    ipv6: o.Ipv6 = False,
    bind: o.Bind = None,
    port: o.Port = 5201,
    key_file: o.KeyFile = None,
    interval: o.Interval = None,
    json: o.Json = False,
    out: o.Out = None,
    target: o.TcpTargets = None,
) -> int:
    """Measure TCP throughput to or from a server."""
    from leadline.cli import single_args
    from leadline.plan import TcpTest

    test = single_args.parse(
        TcpTest,
        {
            "name": "tcp",
            "duration": duration,
            "warmup": warmup,
            "flows": parallel,
            "threads": threads,
            "direction": single_args.direction(reverse, bidir),
            "rate": rate,
            "block": size,
            "congestion": congestion,
        },
    )
    interval_ms = single_args.interval(interval)
    load = single_args.build_workload(test, host, port, single_args.family(ipv4, ipv6), bind, key_file)
    from leadline.cli import run_single

    return run_single.run(test, load, single_args.OutputOptions(host, json, out, target or [], interval_ms=interval_ms))
