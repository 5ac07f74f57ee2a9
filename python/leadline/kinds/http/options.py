"""The options of `leadline http`, one row each, in the groups of its `--help`, with the key of the test that they
set.

The model decides what the values mean and which exclude each other; `args` has the syntax of the values.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from leadline.kinds.http import args
from leadline.plan.options import PRECISION, Command, Option, cross_check, listed

_LOAD, _REQUEST, _CONNECTION, _TLS, _OUTPUT = "Load", "Request", "Connection", "TLS", "Output"

TLS_TRUST = (
    Option(
        ("--insecure",), "Accept any certificate.", key="tls.verify", type=bool, default=False, panel=_TLS, value=False
    ),
    Option(
        ("--ca",),
        "Certificates to trust instead of the host's.",
        key="tls.ca",
        metavar="FILE",
        panel=_TLS,
        read=partial(args.file, option="--ca"),
    ),
    Option(
        ("--cert",),
        "Client certificate, PEM.",
        key="tls.cert",
        metavar="FILE",
        panel=_TLS,
        read=partial(args.file, option="--cert"),
    ),
    Option(
        ("--key",),
        "Private key of the client certificate, PEM.",
        key="tls.key",
        metavar="FILE",
        panel=_TLS,
        read=partial(args.file, option="--key"),
    ),
)
"""Which certificates are accepted, and the client's own."""

OPTIONS = (
    Option((), "http:// or https://HOST[:PORT]/PATH", required=True, metavar="URL", parameter="url"),
    Option(
        (),
        "After --: arguments of the script's init().",
        key="script_args",
        type=list,
        metavar="ARGUMENTS",
        parameter="rest",
    ),
    Option(
        ("-c", "--connections"),
        "Number of connections; with --rate, the maximum.",
        key="connections",
        type=int,
        default=10,
        least=1,
        panel=_LOAD,
    ),
    Option(
        ("-t", "--threads"),
        "Number of load threads, 1 to 256 (the duration is -d).",
        key="threads",
        type=int,
        default=1,
        metavar="N",
        counts_threads=True,
        panel=_LOAD,
    ),
    Option(
        ("-d", "--duration"),
        "Length of the test, warm-up included: 500ms, 1m; 10 means 10 seconds. Default: 10s, or the length of "
        "--rate's stages.",
        key="duration",
        metavar="TIME",
        panel=_LOAD,
    ),
    Option(("-n", "--number"), "Stop after N requests.", key="number", type=int, least=1, panel=_LOAD),
    Option(
        ("--rate",),
        "Requests per second (open loop), or stages: 0:1000/10s,1000/60s. Default: a closed loop.",
        key="rate",
        metavar="RATE",
        panel=_LOAD,
    ),
    Option(
        ("--find-rate",),
        "Find the highest rate over the connections of -c at which this holds, as in "
        "'latency_p99_us < 5000 and error_ratio < 0.001'.",
        metavar="'METRIC < VALUE'",
        panel=_LOAD,
    ),
    Option(
        ("--warmup",),
        "Time at the start whose samples are kept but not counted.",
        key="warmup",
        default="0s",
        metavar="TIME",
        panel=_LOAD,
    ),
    Option(
        ("-s", "--script"),
        "Run this Lua script for wrk.",
        key="script",
        metavar="FILE",
        panel=_LOAD,
        read=partial(args.file, option="--script"),
    ),
    Option(("--cpus",), "Pin the threads to these CPUs: 0,2-3.", key="cpus", metavar="LIST", panel=_LOAD),
    Option(("-X", "--method"), "Request method.", key="method", default="GET", metavar="METHOD", panel=_REQUEST),
    Option(
        ("-H", "--header"),
        "Header field, 'Name: value'; repeatable.",
        key="headers",
        type=list,
        metavar="'NAME: VALUE'",
        panel=_REQUEST,
        read=args.headers,
    ),
    Option(("--body",), "Request body.", key="body", metavar="TEXT", panel=_REQUEST),
    Option(
        ("--body-file",),
        "File with the request body; - means stdin.",
        key="body_file",
        metavar="FILE",
        panel=_REQUEST,
        read=args.body_file,
    ),
    Option(
        ("--urls",),
        "File with requests to send in turn, one per line: [weight=N] [METHOD] URL [@BODYFILE]; # starts a comment.",
        metavar="FILE",
        panel=_REQUEST,
    ),
    Option(
        ("--basic",),
        "Basic authentication; @FILE reads it from a file.",
        key="basic",
        metavar="USER:PASSWORD",
        panel=_REQUEST,
        read=partial(args.secret, option="--basic"),
    ),
    Option(
        ("--bearer",),
        "Bearer authentication; @FILE reads it from a file.",
        key="bearer",
        metavar="TOKEN",
        panel=_REQUEST,
        read=partial(args.secret, option="--bearer"),
    ),
    Option(
        ("--timeout",),
        "A request without an answer after this time counts as an error.",
        key="timeout",
        default="5s",
        metavar="TIME",
        panel=_REQUEST,
    ),
    Option(
        ("--redirects",),
        "Maximum number of redirects to follow within the origin.",
        key="redirects",
        type=int,
        default=0,
        least=0,
        most=100,
        panel=_REQUEST,
    ),
    Option(
        ("--keep-alive/--no-keep-alive",),
        "Send more than one request per connection.",
        key="keep_alive",
        type=bool,
        default=True,
        panel=_CONNECTION,
    ),
    Option(
        ("--requests-per-connection",),
        "Open a new connection after N requests.",
        key="requests_per_connection",
        type=int,
        least=1,
        panel=_CONNECTION,
    ),
    Option(
        ("--connect-timeout",),
        "Time limit for each of TCP, proxy and TLS.",
        key="connect_timeout",
        default="5s",
        metavar="TIME",
        panel=_CONNECTION,
    ),
    Option(("-4", "--ipv4"), "Use IPv4 only.", type=bool, default=False, panel=_CONNECTION),
    Option(("-6", "--ipv6"), "Use IPv6 only.", type=bool, default=False, panel=_CONNECTION),
    Option(
        ("--bind",),
        "Local address to send from; if repeated, connections use them in turn.",
        key="bind",
        type=list,
        metavar="ADDR",
        panel=_CONNECTION,
    ),
    Option(
        ("--resolve",),
        "Use this address instead of DNS; repeatable.",
        key="resolve",
        type=list,
        metavar="HOST:PORT:ADDR",
        panel=_CONNECTION,
    ),
    Option(
        ("--dns",),
        "Resolve names once per run, or for each connection.",
        key="dns",
        type=("run", "connection"),
        default="run",
        panel=_CONNECTION,
    ),
    Option(
        ("--unix-socket",),
        "Connect to this Unix socket instead of the URL's host.",
        key="unix_socket",
        metavar="PATH",
        panel=_CONNECTION,
    ),
    Option(
        ("--proxy",),
        "Proxy, http://[USER:PASSWORD@]HOST:PORT; @FILE reads it from a file.",
        metavar="URL",
        panel=_CONNECTION,
    ),
    Option(
        ("--tcp",),
        "Socket option; repeatable: delay, fast-open, congestion=, send-buffer=, receive-buffer=, segment=, "
        "dscp=, user-timeout=.",
        key="tcp",
        type=list,
        metavar="NAME[=VALUE]",
        panel=_CONNECTION,
        read=args.tcp_options,
    ),
    *TLS_TRUST,
    Option(
        ("--tls",),
        "TLS versions to offer. Default: both.",
        key="tls.versions",
        type=("1.2", "1.3", "1.2-1.3"),
        panel=_TLS,
    ),
    Option(
        ("--ciphers",),
        "Cipher suites, by their IANA names.",
        key="tls.ciphers",
        metavar="NAME,...",
        panel=_TLS,
        read=args.names,
    ),
    Option(
        ("--alpn",),
        "ALPN protocols to offer. Default: http/1.1.",
        key="tls.alpn",
        metavar="NAME,...",
        panel=_TLS,
        read=args.names,
    ),
    Option(
        ("--server-name",),
        "Server name to request and verify instead of the URL's.",
        key="tls.server_name",
        metavar="NAME",
        panel=_TLS,
    ),
    Option(("--resume/--no-resume",), "Resume TLS sessions. Default: resume.", key="tls.resume", type=bool, panel=_TLS),
    Option(
        ("--early-data",),
        "Send the first request with the handshake (0-RTT).",
        key="tls.early_data",
        type=bool,
        default=False,
        panel=_TLS,
        value=True,
    ),
    Option(
        ("--percentiles",),
        "Percentiles to report in addition to the usual ones: 1,25,99.95.",
        key="percentiles",
        metavar="LIST",
        panel=_OUTPUT,
        read=listed,
    ),
    Option(
        ("--target",),
        "Exit with code 3 if this does not hold, as in 'latency_p99_us < 2000'; repeatable.",
        type=list,
        metavar="'METRIC < VALUE'",
        panel=_OUTPUT,
    ),
    Option(("--stop-on-miss",), "End as soon as a target is missed.", type=bool, default=False, panel=_OUTPUT),
    Option(
        ("--format",),
        "Layout of the summary: Leadline's own, or that of wrk or ab.",
        type=("text", "wrk", "ab"),
        default="text",
        panel=_OUTPUT,
        parameter="output_format",
    ),
    replace(cross_check("wrk", "ab", "h2load"), panel=_OUTPUT),
    *(replace(option, panel=_OUTPUT) for option in PRECISION),
    Option(("-i", "--interval"), "Print figures at this interval: 1s.", metavar="TIME", panel=_OUTPUT),
    Option(("--json",), "Print one JSON document; progress goes to stderr.", type=bool, default=False, panel=_OUTPUT),
    Option(("--out",), "Keep all samples in a new run folder below DIR.", type=Path, metavar="DIR", panel=_OUTPUT),
    Option(
        ("--hdr",),
        "Write the latencies to this file, as an HdrHistogram log.",
        type=Path,
        metavar="FILE",
        panel=_OUTPUT,
    ),
    Option(("--no-calibrate",), "Do not measure the generator's own ceiling.", type=bool, default=False, panel=_OUTPUT),
)

COMMAND = Command(
    """\
Measure requests per second and latency of an HTTP server.

Without --rate, each connection sends its next request when the previous answer has arrived (closed loop). With
--rate, each request is timed from when it was due (open loop).
""",
    """\
Example: leadline http http://192.0.2.7:8080/ -c 50 -d 10s

    leadline http http://192.0.2.7/ --rate 1000 --target 'latency_p99_us < 5000'
    leadline http http://192.0.2.7/ --rate 0:5000/30s,5000/60s -c 1000
    leadline http https://192.0.2.7/ --insecure --no-resume --no-keep-alive
    leadline http http://192.0.2.7/ -X POST -H 'Content-Type: text/json' --body '{}'
    leadline http http://192.0.2.7/ --urls mix.txt -t 2 -c 200
    leadline http -s script.lua -t 2 -c 50 -d 5s http://192.0.2.7/ -- argument
""",
    position=1,
    options=OPTIONS,
    names={"rate_per_s": "rate", "script_args": "script"},
)
