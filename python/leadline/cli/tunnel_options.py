"""What can be said to `leadline tunnel`, in the groups that its `--help` shows. What the values mean and which exclude
each other is `leadline.plan.tunnel`'s business; how they get there is `tunnel_args`'s.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from leadline.cli.thread_count import threads

_ARRIVALS, _CLIENTS, _EXPECT, _AFTER, _TRAFFIC, _OUTPUT = (
    *("Arrivals", "Who the clients are", "What makes a client configured"),
    *("Once they are connected", "Traffic inside of the tunnels", "Output"),
)

CONDITION = "connect_p99_ms < 2000 and unconfigured_ratio < 1%"
"""What a server that keeps up with its arrivals does."""

File = Annotated[Path, typer.Argument(help="The clients' profile, an .ovpn file.", show_default=False)]

Number = Annotated[
    str,
    typer.Option(
        "-n",
        "--number",
        help="Clients. Several, as in 50,100,200,400, go one after another, and a scaling exponent is fitted.",
        metavar="N[,N...]",
        rich_help_panel=_ARRIVALS,
    ),
]
Rate = Annotated[
    str | None,
    typer.Option(
        "--rate",
        help="Arrivals per second, or stages: 0:200/10s,200/60s. Else all at once.",
        metavar="RATE",
        rich_help_panel=_ARRIVALS,
    ),
]
AtOnce = Annotated[
    bool, typer.Option("--at-once", help="All clients at one instant; the default.", rich_help_panel=_ARRIVALS)
]
UntilChoke = Annotated[
    str | None,
    typer.Option(
        "--until-choke",
        help="Find the highest rate of arrivals for which this holds: '" + CONDITION + "' unless given.",
        metavar="['METRIC < VALUE']",
        rich_help_panel=_ARRIVALS,
    ),
]
Settled = Annotated[
    int,
    typer.Option(
        "--settled",
        min=0,
        help="Connect N clients first; their pings show what the arrivals do to them.",
        rich_help_panel=_ARRIVALS,
    ),
]
AttemptTimeout = Annotated[
    str | None,
    typer.Option(
        "--attempt-timeout",
        help="How long one attempt may take: 60s as the real client's, 10s with --until-choke.",
        metavar="TIME",
        rich_help_panel=_ARRIVALS,
    ),
]
Retries = Annotated[
    int,
    typer.Option(
        "--retries",
        min=0,
        max=1000,
        help="How often a client that failed tries again: after 1 s, then twice as long each time.",
        rich_help_panel=_ARRIVALS,
    ),
]
Duration = Annotated[
    str | None,
    typer.Option(
        "-d",
        "--duration",
        help="How long the fleet stays at most, from the first arrival; unless given until everything is done, "
        "with pings until 10s after the last one is up or gave up. How long a trial of --until-choke lasts.",
        metavar="TIME",
        rich_help_panel=_ARRIVALS,
    ),
]
Threads = Annotated[
    int,
    typer.Option(
        "-t",
        "--threads",
        help="Threads of the fleet, 1 to 256.",
        parser=threads(),
        metavar="N",
        rich_help_panel=_ARRIVALS,
    ),
]

CaKey = Annotated[
    Path | None,
    typer.Option(
        "--ca-key",
        help="The authority's key: each client gets a certificate of its own, made before the load.",
        metavar="FILE",
        rich_help_panel=_CLIENTS,
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        help="The authority's certificate for --ca-key; the profile's ca unless given.",
        metavar="FILE",
        rich_help_panel=_CLIENTS,
    ),
]
Names = Annotated[
    str | None,
    typer.Option(
        "--name-prefix",
        help="Common names of these certificates: this ('client-' unless given) and the client's number.",
        metavar="TEXT",
        rich_help_panel=_CLIENTS,
    ),
]
Identities = Annotated[
    Path | None,
    typer.Option(
        "--identities",
        help="Folder with pairs NAME.crt and NAME.key, which the clients take in turn.",
        metavar="DIR",
        rich_help_panel=_CLIENTS,
    ),
]
Users = Annotated[
    Path | None,
    typer.Option(
        "--users",
        help="File with a user:password a line, which the clients take in turn.",
        metavar="FILE",
        rich_help_panel=_CLIENTS,
    ),
]
Bind = Annotated[
    list[str] | None,
    typer.Option(
        "--bind",
        help="Local address, network (192.0.2.0/28) or range (FIRST-LAST); all of them take turns.",
        metavar="ADDR",
        rich_help_panel=_CLIENTS,
    ),
]

Pools = Annotated[
    list[str] | None,
    typer.Option(
        "--expect-pool", help="Network that holds every given address.", metavar="CIDR", rich_help_panel=_EXPECT
    ),
]
Routes = Annotated[
    list[str] | None,
    typer.Option("--expect-route", help="Network pushed as a route.", metavar="CIDR", rich_help_panel=_EXPECT),
]
Dns = Annotated[
    list[str] | None,
    typer.Option("--expect-dns", help="DNS server that is pushed.", metavar="ADDR", rich_help_panel=_EXPECT),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--expect-option", help="Option pushed word for word.", metavar="TEXT", rich_help_panel=_EXPECT),
]
Echo = Annotated[
    str | None,
    typer.Option(
        "--echo",
        help="Who answers the proving ICMP echo request; the server's end of the tunnel unless given.",
        metavar="ADDR",
        rich_help_panel=_EXPECT,
    ),
]
FirstData = Annotated[
    str,
    typer.Option("--first-data", help="How long a client waits for it.", metavar="TIME", rich_help_panel=_EXPECT),
]

Ping = Annotated[
    str | None,
    typer.Option(
        "--ping",
        help="Time between pings of each connected client, with --settled of each of those alone, 100ms there.",
        metavar="TIME",
        rich_help_panel=_AFTER,
    ),
]
ReconnectAt = Annotated[
    list[str] | None,
    typer.Option(
        "--reconnect-at",
        help="All drop their connection silently and reconnect, this long after the first arrival, within OVER.",
        metavar="TIME[/OVER]",
        rich_help_panel=_AFTER,
    ),
]
RenegotiateAt = Annotated[
    list[str] | None,
    typer.Option("--renegotiate-at", help="All negotiate new keys.", metavar="TIME[/OVER]", rich_help_panel=_AFTER),
]

Traffic = Annotated[
    Literal["echo", "udp", "tcp", "http"] | None,
    typer.Option(
        "--traffic",
        help="Echo requests; datagrams or TCP streams with a `leadline serve`; HTTP requests.",
        rich_help_panel=_TRAFFIC,
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        help="File with the key that the `leadline serve` of --to asks for.",
        metavar="FILE",
        rich_help_panel=_TRAFFIC,
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        help="Address[:port] inside, for http also a URL (port 80, 8080 without one); for echo the server's end of the "
        "tunnel unless given.",
        metavar="ADDR",
        rich_help_panel=_TRAFFIC,
    ),
]
TrafficRate = Annotated[
    str | None,
    typer.Option(
        "--traffic-rate",
        help="Per client: packets or requests per second (50/s), or bits (2mbit); else as fast as it goes.",
        metavar="RATE",
        rich_help_panel=_TRAFFIC,
    ),
]
Size = Annotated[
    str | None,
    typer.Option(
        "-l",
        "--size",
        help="Bytes of UDP payload (1200), or of an echo request's IP packet (100).",
        metavar="SIZE",
        rich_help_panel=_TRAFFIC,
    ),
]
TrafficDuration = Annotated[
    str | None,
    typer.Option("--traffic-duration", help="How long; 10s unless given.", metavar="TIME", rich_help_panel=_TRAFFIC),
]
Reverse = Annotated[bool, typer.Option("-R", "--reverse", help="The server sends.", rich_help_panel=_TRAFFIC)]
Bidirectional = Annotated[bool, typer.Option("--bidir", help="Both send at once.", rich_help_panel=_TRAFFIC)]

ServerPid = Annotated[
    int | None,
    typer.Option(
        "--server-pid",
        min=1,
        help="The server's process on this host: what it costs is counted too.",
        metavar="PID",
        rich_help_panel=_OUTPUT,
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        help="Exit 3 unless it holds, as in 'connect_p99_ms < 2000'.",
        metavar="'METRIC < VALUE'",
        rich_help_panel=_OUTPUT,
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="One JSON document on stdout; progress stays on stderr.", rich_help_panel=_OUTPUT),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="Keep every sample in a new run folder in this one.", metavar="DIR", rich_help_panel=_OUTPUT
    ),
]
