"""`leadline udp`: paced, numbered datagrams to a server."""

from __future__ import annotations

from typing import Annotated

import typer

from leadline.cli import options as o

NAME = "udp"
EXAMPLE = "Example: leadline udp 192.0.2.7 --rate 100mbit -l 1400 -d 10s"


def command(
    host: o.Host,
    duration: o.Duration = "10s",
    warmup: o.Warmup = "0s",
    number: o.Number = None,
    parallel: o.Flows = 1,
    threads: o.Threads = 1,
    reverse: o.Reverse = False,
    bidir: o.Bidirectional = False,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            help="Bits of UDP payload per second, all flows: 20mbit; as fast as possible unless given.",
            metavar="RATE",
        ),
    ] = None,
    size: Annotated[
        str, typer.Option("-l", "--size", help="UDP payload of each datagram, bytes (40 to 65507).", metavar="SIZE")
    ] = "1400",
    ipv4: o.Ipv4 = False,
    ipv6: o.Ipv6 = False,
    bind: o.Bind = None,
    port: o.Port = 5201,
    key_file: o.KeyFile = None,
    interval: o.Interval = None,
    json: o.Json = False,
    out: o.Out = None,
    target: o.UdpTargets = None,
) -> int:
    """Measure UDP throughput, loss, order and jitter; each is counted where the datagrams arrive."""
    from leadline.cli import single_args
    from leadline.plan import UdpTest

    test = single_args.parse(
        UdpTest,
        {
            "name": "udp",
            "duration": duration,
            "warmup": warmup,
            "number": number,
            "flows": parallel,
            "threads": threads,
            "direction": single_args.direction(reverse, bidir),
            "rate": rate,
            "packet": size,
        },
    )
    interval_ms = single_args.interval(interval)
    load = single_args.build_workload(test, host, port, single_args.family(ipv4, ipv6), bind, key_file)
    from leadline.cli import run_single

    return run_single.run(test, load, single_args.OutputOptions(host, json, out, target or [], interval_ms=interval_ms))
