"""Options that mean the same in every command, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from leadline.cli.thread_count import threads

Duration = Annotated[
    str,
    typer.Option(
        "-d", "--duration", help="How long, warm-up included: 10s, 500ms, 1m; 10 is 10 seconds.", metavar="TIME"
    ),
]
Warmup = Annotated[str, typer.Option("--warmup", help="Leading time that is kept but not counted.", metavar="TIME")]
Number = Annotated[
    int | None,
    typer.Option("-n", "--number", min=1, help="End after N requests or transactions, or N datagrams per flow."),
]
Threads = Annotated[
    int,
    typer.Option(
        "-t", "--threads", help="Generating threads, 1 to 256; no time, which is -d.", parser=threads(), metavar="N"
    ),
]
Flows = Annotated[int, typer.Option("-P", "--parallel", min=1, help="Flows at once.")]
Reverse = Annotated[bool, typer.Option("-R", "--reverse", help="The server sends.")]
Bidirectional = Annotated[bool, typer.Option("--bidir", help="Both send at once.")]
Interval = Annotated[
    str | None,
    typer.Option(
        "-i",
        "--interval",
        help="Print the figures of each interval of this length on stderr: 1s. With --json they are in the document.",
        metavar="TIME",
    ),
]
Ipv4 = Annotated[bool, typer.Option("-4", "--ipv4", help="IPv4 only.")]
Ipv6 = Annotated[bool, typer.Option("-6", "--ipv6", help="IPv6 only.")]
Bind = Annotated[str | None, typer.Option("--bind", help="Local address.", metavar="ADDR")]
Port = Annotated[int, typer.Option("-p", "--port", min=1, max=65535, help="The server's port.", metavar="PORT")]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key-file", help="File with the key that the responder asks for.", metavar="FILE"),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; progress stays on stderr.")]
Out = Annotated[
    Path | None, typer.Option("--out", help="Keep every sample in a new run folder in this one.", metavar="DIR")
]
Percentiles = Annotated[
    str | None,
    typer.Option("--percentiles", help="Percentiles beside the usual ones: 1,25,99.95.", metavar="LIST"),
]


def _target(example: str) -> Any:
    """`--target`, with an example whose metric the command has."""
    return typer.Option("--target", help=f"Exit 3 unless it holds, as in '{example}'.", metavar="'METRIC < VALUE'")


TcpTargets = Annotated[list[str] | None, _target("throughput_bps > 100mbit")]
UdpTargets = Annotated[list[str] | None, _target("lost_ratio < 0.1%")]
RrTargets = Annotated[list[str] | None, _target("latency_p99_us < 2000")]
RunTargets = Annotated[list[str] | None, _target("udp.lost_ratio < 0.1%")]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", help="Only these cases or tests; may be repeated.", metavar="CASE|TEST|AXIS=VALUE"),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change the plan, as in axes.clients=[5,20]; may be repeated.", metavar="KEY=VALUE"),
]
Host = Annotated[
    str,
    typer.Argument(metavar="HOST", help="Where `leadline serve` or `leadline-agent serve` runs.", show_default=False),
]
Profile = Annotated[
    Path | None,
    typer.Option("--profile", help="Sample call stacks with perf and draw a flame graph (SVG).", metavar="FILE"),
]
