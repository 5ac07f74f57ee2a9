"""The options of `leadline http`, one row each, in the groups of its `--help`, with the key of the test that they
set.

The model decides what the values mean and which exclude each other; `args` has the syntax of the values.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from leadline.kinds.http import args
from leadline.kinds.http.model import HttpTest
from leadline.plan import options as o
from leadline.plan.option_fields import option_field
from leadline.plan.options import Command, Option, group

TLS_TRUST = (
    Option(("--insecure",), "Accept any certificate.", key="tls.verify"),
    Option(
        ("--ca",),
        "Certificates to trust instead of the host's.",
        key="tls.ca",
        metavar="FILE",
        read=partial(args.file, option="--ca"),
    ),
    Option(
        ("--cert",),
        "Client certificate, PEM.",
        key="tls.cert",
        metavar="FILE",
        read=partial(args.file, option="--cert"),
    ),
    Option(
        ("--key",),
        "Private key of the client certificate, PEM.",
        key="tls.key",
        metavar="FILE",
        read=partial(args.file, option="--key"),
    ),
)
"""Which certificates are accepted, and the client's own."""

_DURATION = option_field(HttpTest, "duration").default

_ROWS = (
    Option(
        (),
        "http:// or https://HOST[:PORT]/PATH. Default: this machine's loopback, with a server of its own.",
        metavar="URL",
        parameter="url",
    ),
    Option(
        (),
        "After --: arguments of the script's init().",
        key="script_args",
        metavar="ARGUMENTS",
        parameter="rest",
    ),
    *group(
        "Load",
        Option(
            ("-c", "--connections"),
            "Number of connections; with --rate, the maximum.",
            key="connections",
            default=10,
        ),
        o.THREADS,
        Option(
            ("-d", "--duration"),
            f"Length of the test, warm-up included: 500ms, 1m; 10 means 10 seconds. Default: {_DURATION}, or the "
            "length of --rate's stages.",
            key="duration",
            default=None,
        ),
        Option(("-n", "--number"), "Stop after N requests.", key="number"),
        Option(
            ("--rate",),
            "Requests per second (open loop), or stages: 0:1000/10s,1000/60s. Default: a closed loop.",
            key="rate",
            metavar="RATE",
        ),
        Option(
            ("--find-rate",),
            "Find the highest rate over the connections of -c at which this holds, as in "
            "'latency_p99_us < 5000 and error_ratio < 0.001'.",
            metavar="'METRIC < VALUE'",
        ),
        o.WARMUP,
        Option(
            ("-s", "--script"),
            "Run this Lua script for wrk.",
            key="script",
            metavar="FILE",
            read=partial(args.file, option="--script"),
        ),
        Option(("--cpus",), "Pin the threads to these CPUs: 0,2-3.", key="cpus", metavar="LIST"),
    ),
    *group(
        "Request",
        Option(("-X", "--method"), "Request method.", key="method", metavar="METHOD"),
        Option(
            ("-H", "--header"),
            "Header field, 'Name: value'; repeatable.",
            key="headers",
            metavar="'NAME: VALUE'",
            read=args.headers,
        ),
        Option(
            ("--keep-header",),
            "Show the value of this header field or parameter in files and output, although its name is that of a "
            "secret; repeatable.",
            key="keep_headers",
            metavar="NAME",
        ),
        Option(("--body",), "Request body.", key="body", metavar="TEXT"),
        Option(
            ("--body-file",),
            "File with the request body; - means stdin.",
            key="body_file",
            metavar="FILE",
            read=args.body_file,
        ),
        Option(
            ("--urls",),
            "File with requests to send in turn, one per line: [weight=N] [METHOD] URL [@BODYFILE]; # starts a "
            "comment.",
            metavar="FILE",
        ),
        Option(
            ("--basic",),
            "Basic authentication; @FILE reads it from a file.",
            key="basic",
            metavar="USER:PASSWORD",
            read=partial(args.secret, option="--basic"),
        ),
        Option(
            ("--bearer",),
            "Bearer authentication; @FILE reads it from a file.",
            key="bearer",
            metavar="TOKEN",
            read=partial(args.secret, option="--bearer"),
        ),
        Option(("--timeout",), "A request without an answer after this time counts as an error.", key="timeout"),
        Option(("--redirects",), "Maximum number of redirects to follow within the origin.", key="redirects"),
    ),
    *group(
        "Connection",
        Option(("--keep-alive/--no-keep-alive",), "Send more than one request per connection.", key="keep_alive"),
        Option(
            ("--requests-per-connection",), "Open a new connection after N requests.", key="requests_per_connection"
        ),
        Option(("--connect-timeout",), "Time limit for each of TCP, proxy and TLS.", key="connect_timeout"),
        *o.FAMILY,
        Option(
            ("--bind",),
            "Local address to send from; if repeated, connections use them in turn.",
            key="bind",
            metavar="ADDR",
        ),
        Option(
            ("--resolve",),
            "Use this address instead of DNS; repeatable.",
            key="resolve",
            metavar="HOST:PORT:ADDR",
        ),
        Option(("--dns",), "Resolve names once per run, or for each connection.", key="dns"),
        Option(
            ("--unix-socket",),
            "Connect to this Unix socket instead of the URL's host.",
            key="unix_socket",
            metavar="PATH",
        ),
        Option(
            ("--proxy",),
            "Proxy, http://[USER:PASSWORD@]HOST:PORT; @FILE reads it from a file.",
            metavar="URL",
        ),
        Option(
            ("--tcp",),
            "Socket option; repeatable: delay, fast-open, congestion=, send-buffer=, receive-buffer=, segment=, "
            "dscp=, user-timeout=.",
            key="tcp",
            type=list,
            metavar="NAME[=VALUE]",
            read=args.tcp_options,
        ),
    ),
    *group(
        "TLS",
        *TLS_TRUST,
        Option(
            ("--tls",),
            "TLS versions to offer. Default: both.",
            key="tls.versions",
            default=None,
        ),
        Option(
            ("--ciphers",),
            "Cipher suites, by their IANA names.",
            key="tls.ciphers",
            type=str,
            metavar="NAME,...",
            read=args.names,
        ),
        Option(
            ("--alpn",),
            "ALPN protocols to offer. Default: http/1.1.",
            key="tls.alpn",
            type=str,
            default=None,
            metavar="NAME,...",
            read=args.names,
        ),
        Option(
            ("--server-name",),
            "Server name to request and verify instead of the URL's.",
            key="tls.server_name",
            metavar="NAME",
        ),
        Option(("--resume/--no-resume",), "Resume TLS sessions. Default: resume.", key="tls.resume", default=None),
        Option(("--early-data",), "Send the first request with the handshake (0-RTT).", key="tls.early_data"),
    ),
    *group(
        "Output",
        o.PERCENTILES,
        Option(
            ("--target",),
            "Exit with code 3 if this does not hold, as in 'latency_p99_us < 2000'; repeatable.",
            type=list,
            metavar="'METRIC < VALUE'",
        ),
        Option(("--stop-on-miss",), "End as soon as a target is missed.", type=bool, default=False),
        Option(
            ("--format",),
            "Layout of the summary: Leadline's own, or that of wrk or ab.",
            type=("text", "wrk", "ab"),
            default="text",
            parameter="output_format",
        ),
        o.cross_check(HttpTest),
        *o.PRECISION,
        o.INTERVAL,
        Option(("--json",), "Print one JSON document; progress goes to stderr.", type=bool, default=False),
        o.VERBOSE,
        o.OUT,
        Option(
            ("--hdr",),
            "Write the latencies to this file, as an HdrHistogram log.",
            type=Path,
            metavar="FILE",
        ),
        Option(("--no-calibrate",), "Do not measure the generator's own ceiling.", type=bool, default=False),
    ),
)

COMMAND = Command(
    HttpTest,
    """\
Measure requests per second and latency of an HTTP server.

Without --rate, each connection sends its next request when the previous answer has arrived (closed loop). With
--rate, each request is timed from when it was due (open loop).
""",
    """\
Example: leadline http

    leadline http http://192.0.2.7:8080/ -c 50 -d 10s
    leadline http http://192.0.2.7/ --rate 1000 --target 'latency_p99_us < 5000'
    leadline http http://192.0.2.7/ --rate 0:5000/30s,5000/60s -c 1000
    leadline http https://192.0.2.7/ --insecure --no-resume --no-keep-alive
    leadline http http://192.0.2.7/ -X POST -H 'Content-Type: text/json' --body '{}'
    leadline http http://192.0.2.7/ --urls mix.txt -t 2 -c 200
    leadline http -s script.lua -t 2 -c 50 -d 5s http://192.0.2.7/ -- argument
""",
    position=1,
    rows=_ROWS,
    names={"rate_per_s": "rate", "script_args": "script"},
)
