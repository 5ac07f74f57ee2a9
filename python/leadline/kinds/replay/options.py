"""The options of `leadline replay`, one row each, with the key of the test that they set."""

from __future__ import annotations

from leadline.kinds.http.options import TLS_TRUST
from leadline.kinds.replay.model import ReplayTest
from leadline.plan import options as o
from leadline.plan.options import Command, Option

COMMAND = Command(
    ReplayTest,
    "Send recorded requests again, at their own times.\n\n"
    "From access logs, .gor files, captures, HAR and JTL; their answers are compared.",
    "Examples: leadline replay examples/access.log http://127.0.0.1:8080/\n"
    "          leadline replay examples/access.log http://127.0.0.1:8080/ --speed 2 --only '/item/*'\n"
    "          leadline replay examples/visits.gor http://127.0.0.1:8080/ --writes --noise\n"
    "          leadline replay examples/access.log http://127.0.0.1:8080/ --against http://127.0.0.1:8080/",
    position=8,
    rows=(
        Option((), "The recording; - reads stdin.", key="source", metavar="SOURCE", parameter="source"),
        Option(
            (), "Where the requests go: http:// or https://HOST[:PORT]/.", key="url", metavar="URL", parameter="url"
        ),
        *o.group(
            "Recording",
            Option(
                ("--format",),
                "Format: combined, nginx, haproxy, ... or the format string of the daemon; default: recognised.",
                key="format",
                metavar="FORMAT",
            ),
            Option(
                ("--from",),
                "First time: a date, or a duration after the begin.",
                key="from",
                metavar="TIME",
                parameter="begin",
            ),
            Option(("--to",), "End of the part that is sent, as --from.", key="to", metavar="TIME", parameter="end"),
            Option(("--only",), "Only requests like 'GET /api/*'; repeatable.", key="only", metavar="PATTERN"),
            Option(
                ("--capture",),
                "Send what this interface of this host receives, as it comes, in place of SOURCE.",
                key="capture",
                metavar="DEV",
            ),
            Option(("--port",), "Of a capture: the server's port.", key="port"),
            Option(("--yes-i-mean",), "With --capture: live traffic of others is copied.", type=bool, default=False),
            Option(("--writes",), "Send methods that change something too.", key="writes"),
            Option(("--follow",), "The recording is still being written: send what comes at once.", key="follow"),
        ),
        *o.group(
            "Times",
            Option(("--speed",), "How much faster than recorded.", key="speed"),
            Option(("--rate",), "Requests per second, in place of their own times.", key="rate"),
            Option(("--copies",), "Each session this often, each copy as a user of its own.", key="copies"),
            Option(("-d", "--duration"), "Longest time; default: the recording's own.", key="duration", default=None),
            o.WARMUP,
            Option(("--seed",), "Seed of the times within whole seconds, and of copies.", key="seed"),
        ),
        *o.group(
            "Target",
            Option(("--against",), "A second target; the answers of both are compared.", key="against", metavar="URL"),
            Option(("--map",), "Where requests to a recorded host go; repeatable.", key="map", metavar="HOST=ADDR"),
            Option(
                ("--resolve",), "Use this address instead of DNS; repeatable.", key="resolve", metavar="HOST:PORT:ADDR"
            ),
            Option(("--timeout",), "Longest time for an answer.", key="timeout"),
            Option(("--connect-timeout",), "Longest time to connect.", key="connect_timeout"),
            Option(("--connections-per-user",), "Connections of each session at most.", key="connections_per_user"),
            o.THREADS,
        ),
        *o.group(
            "Answers",
            Option(("--noise",), "Send each request twice, to see what differs by itself.", key="noise"),
            Option(("--no-compare",), "Do not compare answers with recorded ones.", key="compare", value=False),
            Option(("--no-correlate",), "Send recorded tokens as they are.", key="correlate", value=False),
        ),
        *o.group("TLS", *TLS_TRUST),
        *o.FAMILY,
        o.INTERVAL,
        o.JSON,
        o.VERBOSE,
        o.OUT,
        Option(
            ("--single-requests",),
            "With --out: keep each request by itself, with `urls` also its URL.",
            key="single_requests",
        ),
        o.PERCENTILES,
        o.targets("differing_ratio < 0.01"),
    ),
)
