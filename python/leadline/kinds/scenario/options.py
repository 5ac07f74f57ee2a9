"""The options of `leadline scenario`, one row each, with the key of the test that they set."""

from __future__ import annotations

from pathlib import Path

from leadline.kinds.http.options import TLS_TRUST
from leadline.kinds.scenario.model import ScenarioTest
from leadline.plan import options as o
from leadline.plan.options import Command, Option

COMMAND = Command(
    ScenarioTest,
    "Run a scenario: users with a flow of requests.\n\nFrom Leadline's YAML, a .jmx of JMeter, a .har file, or "
    "a script (.usr) or scenario (.lrs) of LoadRunner.",
    "Examples: leadline scenario examples/shop.yaml -J host=127.0.0.1 -J port=8080\n"
    "          leadline scenario examples/shop.jmx -J threads=50 -d 1m\n"
    "          leadline scenario --example > my.yaml",
    position=7,
    rows=(
        Option(
            (),
            "A scenario in YAML, a .jmx or .har file, a .usr or its folder, or a .lrs.",
            type=Path,
            metavar="FILE",
            parameter="file",
        ),
        Option(
            ("-J", "--param"),
            "Value of a parameter of the scenario, or of a JMeter property; repeatable.",
            type=list,
            metavar="NAME=VALUE",
        ),
        Option(("--example",), "Print a scenario that runs, and exit.", type=bool, default=False),
        Option(("--schema",), "Print the JSON Schema of scenarios, and exit.", type=bool, default=False),
        Option(
            ("-d", "--duration"),
            "Longest time; default: the scenario's own.",
            key="duration",
            default=None,
        ),
        o.WARMUP,
        o.THREADS,
        Option(("--timeout",), "Longest time for an answer, where the scenario gives none.", key="timeout"),
        Option(
            ("--connect-timeout",), "Longest time to connect, where the scenario gives none.", key="connect_timeout"
        ),
        Option(
            ("--connections-per-user",), "Connections of each user to one server at most.", key="connections_per_user"
        ),
        Option(("--seed",), "Seed of all random values.", key="seed"),
        Option(
            ("--scripts",),
            "What a part that cannot run does: stop, or be left out and listed.",
            key="scripts",
        ),
        Option(
            ("--keep-header",),
            "Show the value of this header field or parameter in files and output, although its name is that of a "
            "secret; repeatable.",
            key="keep_headers",
            metavar="NAME",
        ),
        Option(("--only-host",), "HAR: requests to this host alone; repeatable.", key="only_host", metavar="HOST"),
        Option(
            ("--no-correlate",),
            "HAR: send the recorded values instead of those that answers give.",
            key="correlate",
            value=False,
        ),
        Option(
            ("--resolve",),
            "Use this address instead of DNS; repeatable.",
            key="resolve",
            metavar="HOST:PORT:ADDR",
        ),
        Option(("--any-file",), "Read files outside of the scenario's folder too.", key="any_file"),
        Option(("--trace",), "Send a traceparent of its own with each request.", key="trace"),
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
        Option(
            ("--summary-export",),
            "Write the result as k6's summary, in JSON.",
            type=Path,
            metavar="FILE",
        ),
        Option(
            ("--jtl",),
            "Write each request and transaction as JMeter writes its results, in CSV.",
            type=Path,
            metavar="FILE",
        ),
        o.PERCENTILES,
        o.targets("latency_p99_us < 5000"),
    ),
)
