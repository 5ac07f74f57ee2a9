"""`leadline http`: HTTP/1.1 load on a URL. Its options are in `http_options`, what they become in `http_args`.
`run_single` has one load, `run_search` the rate that a server holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from leadline.cli import http_options as h
from leadline.cli.help_format import PanelHelpCommand
from leadline.errors import InputError

if TYPE_CHECKING:
    from leadline.cli.single_args import OutputOptions
    from leadline.contract.models import HttpWorkload
    from leadline.plan import HttpTest

NAME = "http"
CLASS = PanelHelpCommand
EXAMPLE = """\
Example: leadline http http://192.0.2.7:8080/ -c 50 -d 10s

    leadline http http://192.0.2.7/ --rate 1000 --target 'latency_p99_us < 5000'
    leadline http http://192.0.2.7/ --rate 0:5000/30s,5000/60s -c 1000
    leadline http https://192.0.2.7/ --insecure --no-resume --no-keep-alive
    leadline http http://192.0.2.7/ -X POST -H 'Content-Type: text/json' --body '{}'
    leadline http http://192.0.2.7/ --urls mix.txt -t 2 -c 200
    leadline http -s script.lua -t 2 -c 50 -d 5s http://192.0.2.7/ -- argument
"""


def command(
    context: typer.Context,
    url: h.Url,
    rest: h.Rest = None,
    connections: h.Connections = 10,
    threads: h.Threads = 1,
    duration: h.Duration = None,
    number: h.Number = None,
    rate: h.Rate = None,
    find_rate: h.FindRate = None,
    warmup: h.Warmup = "0s",
    script: h.Script = None,
    cpus: h.Cpus = None,
    method: h.Method = "GET",
    header: h.Headers = None,
    body: h.Body = None,
    body_file: h.BodyFile = None,
    urls: h.Urls = None,
    basic: h.Basic = None,
    bearer: h.Bearer = None,
    timeout: h.Timeout = "5s",
    redirects: h.Redirects = 0,
    keep_alive: h.KeepAlive = True,
    requests_per_connection: h.RequestsPerConnection = None,
    connect_timeout: h.ConnectTimeout = "5s",
    ipv4: h.Ipv4 = False,
    ipv6: h.Ipv6 = False,
    bind: h.Bind = None,
    resolve: h.Resolve = None,
    dns: h.Dns = "run",
    unix_socket: h.UnixSocket = None,
    proxy: h.Proxy = None,
    tcp: h.Tcp = None,
    insecure: h.Insecure = False,
    ca: h.Ca = None,
    cert: h.Cert = None,
    key: h.Key = None,
    tls: h.Versions = None,
    ciphers: h.Ciphers = None,
    alpn: h.Alpn = None,
    server_name: h.ServerName = None,
    resume: h.Resume = None,
    early_data: h.EarlyData = False,
    percentiles: h.Percentiles = None,
    target: h.Targets = None,
    stop_on_miss: h.StopOnMiss = False,
    output_format: h.Format = "text",
    interval: h.Interval = None,
    json: h.Json = False,
    out: h.Out = None,
    hdr: h.Hdr = None,
    no_calibrate: h.NoCalibrate = False,
) -> int:
    """Measure requests per second and latency of an HTTP server.

    Without --rate, each connection sends its next request when the answer to the last one is there (closed loop). With
    --rate, each request is timed from when it was due (open loop).
    """
    test, load, output = parse_options(context.params)
    if output.find_rate is not None:
        from leadline.cli import run_search

        return run_search.search_request_rate(test, load, output.find_rate, output)
    from leadline.cli import run_single

    return run_single.run(test, load, output)


def parse_options(options: Mapping[str, Any]) -> tuple[HttpTest, HttpWorkload, OutputOptions]:
    """What to measure, as whom and how it is to end, from the options by their names.

    Raises:
        InputError: the first thing that is wrong.
    """
    from leadline.cli import http_args, single_args
    from leadline.plan import HttpTest

    _check(options)
    origin = http_args.parse_origin(options["url"])
    test = single_args.parse(HttpTest, http_args.test_values(options, origin), http_args.OPTIONS)
    family = single_args.family(options["ipv4"], options["ipv6"])
    if family and test.unix_socket is not None:
        raise InputError(f"--ip{family} and --unix-socket exclude each other", hint="a Unix socket has no address")
    output = single_args.OutputOptions(
        options["url"],
        options["json"],
        options["out"],
        options["target"] or [],
        hdr=options["hdr"],
        format=options["output_format"],
        stop_on_miss=options["stop_on_miss"],
        calibrate=not options["no_calibrate"],
        find_rate=options["find_rate"],
        interval_ms=single_args.interval(options["interval"]),
    )
    from leadline.trial.workloads import http_workload

    return test, http_workload(test, origin.host, origin.port, family), output


def _check(options: Mapping[str, Any]) -> None:
    """What the test knows nothing of, and those that end the measurement cannot see."""
    if options["rest"] and options["script"] is None:
        raise InputError(f"{options['rest'][0]!r} is an argument for a script, and there is none", hint="see --script")
    if options["json"] and options["output_format"] != "text":
        raise InputError(f"--json and --format {options['output_format']} exclude each other", hint="give one of them")
    if options["find_rate"] is not None and options["interval"] is not None:
        raise InputError("--find-rate and --interval exclude each other", hint="a search shows its trials")
    if options["find_rate"] is not None and options["stop_on_miss"]:
        raise InputError("--find-rate and --stop-on-miss exclude each other", hint="each trial of a search is whole")
