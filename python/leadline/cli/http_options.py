"""What can be said to `leadline http`, in the groups that its `--help` shows. What the values mean and which exclude
each other is `leadline.plan.http`'s business; how they get there is `http_args`'s.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from leadline.cli.thread_count import threads

_LOAD, _REQUEST, _CONNECTION, _TLS, _OUTPUT = "Load", "Request", "Connection", "TLS", "Output"

Url = Annotated[str, typer.Argument(help="http:// or https://HOST[:PORT]/PATH", metavar="URL", show_default=False)]
Rest = Annotated[
    list[str] | None,
    typer.Argument(help="After --: what the script's init() gets.", metavar="ARGUMENTS", show_default=False),
]

Connections = Annotated[
    int,
    typer.Option("-c", "--connections", min=1, help="Connections; with --rate as many at most.", rich_help_panel=_LOAD),
]
Threads = Annotated[
    int,
    typer.Option(
        "-t",
        "--threads",
        help="Generating threads, 1 to 256; no time, which is -d.",
        parser=threads(),
        metavar="N",
        rich_help_panel=_LOAD,
    ),
]
Duration = Annotated[
    str | None,
    typer.Option(
        "-d",
        "--duration",
        help="How long, warm-up included: 500ms, 1m; 10 is 10 seconds. 10s unless --rate has stages.",
        metavar="TIME",
        rich_help_panel=_LOAD,
    ),
]
Warmup = Annotated[
    str,
    typer.Option("--warmup", help="Leading time that is kept but not counted.", metavar="TIME", rich_help_panel=_LOAD),
]
Number = Annotated[
    int | None, typer.Option("-n", "--number", min=1, help="End after N requests.", rich_help_panel=_LOAD)
]
Rate = Annotated[
    str | None,
    typer.Option(
        "--rate",
        help="Requests per second, timed from when they were due, or stages: 0:1000/10s,1000/60s. Else a closed loop.",
        metavar="RATE",
        rich_help_panel=_LOAD,
    ),
]
FindRate = Annotated[
    str | None,
    typer.Option(
        "--find-rate",
        help="Find the highest rate over the connections of -c for which this holds, as in "
        "'latency_p99_us < 5000 and error_ratio < 0.001'.",
        metavar="'METRIC < VALUE'",
        rich_help_panel=_LOAD,
    ),
]
Script = Annotated[
    str | None,
    typer.Option("-s", "--script", help="Lua script for wrk.", metavar="FILE", rich_help_panel=_LOAD),
]
Cpus = Annotated[
    str | None,
    typer.Option("--cpus", help="Pin the threads to these CPUs: 0,2-3.", metavar="LIST", rich_help_panel=_LOAD),
]

Method = Annotated[
    str, typer.Option("-X", "--method", help="Request method.", metavar="METHOD", rich_help_panel=_REQUEST)
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "-H", "--header", help="'Name: value'; repeatable.", metavar="'NAME: VALUE'", rich_help_panel=_REQUEST
    ),
]
Body = Annotated[str | None, typer.Option("--body", help="Request body.", metavar="TEXT", rich_help_panel=_REQUEST)]
BodyFile = Annotated[
    str | None,
    typer.Option("--body-file", help="Request body; - is stdin.", metavar="FILE", rich_help_panel=_REQUEST),
]
Urls = Annotated[
    str | None,
    typer.Option(
        "--urls",
        help="Requests that take turns, one a line: [weight=N] [METHOD] URL [@BODYFILE]; # begins a comment.",
        metavar="FILE",
        rich_help_panel=_REQUEST,
    ),
]
Basic = Annotated[
    str | None,
    typer.Option(
        "--basic", help="Basic authentication; @FILE holds it.", metavar="USER:PASSWORD", rich_help_panel=_REQUEST
    ),
]
Bearer = Annotated[
    str | None,
    typer.Option("--bearer", help="Bearer authentication; @FILE holds it.", metavar="TOKEN", rich_help_panel=_REQUEST),
]
Timeout = Annotated[
    str,
    typer.Option(
        "--timeout", help="After this a request counts as an error.", metavar="TIME", rich_help_panel=_REQUEST
    ),
]
Redirects = Annotated[
    int,
    typer.Option(
        "--redirects", min=0, max=100, help="Redirects to follow within the origin.", rich_help_panel=_REQUEST
    ),
]

KeepAlive = Annotated[
    bool,
    typer.Option(
        "--keep-alive/--no-keep-alive", help="More than one request per connection.", rich_help_panel=_CONNECTION
    ),
]
RequestsPerConnection = Annotated[
    int | None,
    typer.Option(
        "--requests-per-connection", min=1, help="Open a new connection after N requests.", rich_help_panel=_CONNECTION
    ),
]
ConnectTimeout = Annotated[
    str,
    typer.Option(
        "--connect-timeout", help="For TCP, the proxy and TLS, each.", metavar="TIME", rich_help_panel=_CONNECTION
    ),
]
Ipv4 = Annotated[bool, typer.Option("-4", "--ipv4", help="IPv4 only.", rich_help_panel=_CONNECTION)]
Ipv6 = Annotated[bool, typer.Option("-6", "--ipv6", help="IPv6 only.", rich_help_panel=_CONNECTION)]
Bind = Annotated[
    list[str] | None,
    typer.Option(
        "--bind", help="Local address; repeated, they take turns.", metavar="ADDR", rich_help_panel=_CONNECTION
    ),
]
Resolve = Annotated[
    list[str] | None,
    typer.Option(
        "--resolve",
        help="Address of a name that is not asked for; repeatable.",
        metavar="HOST:PORT:ADDR",
        rich_help_panel=_CONNECTION,
    ),
]
Dns = Annotated[
    Literal["run", "connection"],
    typer.Option("--dns", help="Ask for names once, or for each connection.", rich_help_panel=_CONNECTION),
]
UnixSocket = Annotated[
    str | None,
    typer.Option("--unix-socket", help="Connect to it, whatever the URL.", metavar="PATH", rich_help_panel=_CONNECTION),
]
Proxy = Annotated[
    str | None,
    typer.Option(
        "--proxy", help="http://[USER:PASSWORD@]HOST:PORT; @FILE holds it.", metavar="URL", rich_help_panel=_CONNECTION
    ),
]
Tcp = Annotated[
    list[str] | None,
    typer.Option(
        "--tcp",
        help="Socket option; repeatable: delay, fast-open, congestion=, send-buffer=, receive-buffer=, segment=, "
        "dscp=, user-timeout=.",
        metavar="NAME[=VALUE]",
        rich_help_panel=_CONNECTION,
    ),
]

Insecure = Annotated[bool, typer.Option("--insecure", help="Take any certificate.", rich_help_panel=_TLS)]
Ca = Annotated[
    str | None,
    typer.Option("--ca", help="Certificates to trust instead of the host's.", metavar="FILE", rich_help_panel=_TLS),
]
Cert = Annotated[
    str | None, typer.Option("--cert", help="Client certificate, PEM.", metavar="FILE", rich_help_panel=_TLS)
]
Key = Annotated[str | None, typer.Option("--key", help="Its private key, PEM.", metavar="FILE", rich_help_panel=_TLS)]
Versions = Annotated[
    Literal["1.2", "1.3", "1.2-1.3"] | None,
    typer.Option("--tls", help="Versions to offer; both unless given.", rich_help_panel=_TLS),
]
Ciphers = Annotated[
    str | None,
    typer.Option("--ciphers", help="Suites by IANA names, with commas.", metavar="NAME,...", rich_help_panel=_TLS),
]
Alpn = Annotated[
    str | None,
    typer.Option("--alpn", help="Protocols to offer; http/1.1 unless given.", metavar="NAME,...", rich_help_panel=_TLS),
]
ServerName = Annotated[
    str | None,
    typer.Option("--server-name", help="Ask for this name, not the URL's.", metavar="NAME", rich_help_panel=_TLS),
]
Resume = Annotated[
    bool | None,
    typer.Option("--resume/--no-resume", help="Resume sessions; done unless switched off.", rich_help_panel=_TLS),
]
EarlyData = Annotated[
    bool, typer.Option("--early-data", help="First request with the handshake (0-RTT).", rich_help_panel=_TLS)
]

Interval = Annotated[
    str | None,
    typer.Option(
        "-i",
        "--interval",
        help="Print the figures of each interval of this length: 1s.",
        metavar="TIME",
        rich_help_panel=_OUTPUT,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON document; progress stays on stderr.", rich_help_panel=_OUTPUT)
]
Format = Annotated[
    Literal["text", "wrk", "ab"],
    typer.Option("--format", help="Print the summary as wrk or ab does.", rich_help_panel=_OUTPUT),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Keep every sample in a new run folder here.", metavar="DIR", rich_help_panel=_OUTPUT),
]
Hdr = Annotated[
    Path | None,
    typer.Option("--hdr", help="Latencies as an HdrHistogram log.", metavar="FILE", rich_help_panel=_OUTPUT),
]
Percentiles = Annotated[
    str | None,
    typer.Option(
        "--percentiles",
        help="Percentiles beside the usual ones: 1,25,99.95.",
        metavar="LIST",
        rich_help_panel=_OUTPUT,
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        help="Exit 3 unless it holds, as in 'latency_p99_us < 2000'; repeatable.",
        metavar="'METRIC < VALUE'",
        rich_help_panel=_OUTPUT,
    ),
]
StopOnMiss = Annotated[
    bool, typer.Option("--stop-on-miss", help="End as soon as a target is missed.", rich_help_panel=_OUTPUT)
]
NoCalibrate = Annotated[
    bool,
    typer.Option("--no-calibrate", help="Do not measure the generator's own ceiling.", rich_help_panel=_OUTPUT),
]
