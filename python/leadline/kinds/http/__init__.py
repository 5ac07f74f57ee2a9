"""The kind `http`: HTTP/1.1 load, as a closed loop over its connections or as an open loop at a rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leadline.kinds.http.ladder import RUNGS
from leadline.kinds.http.model import HttpTest
from leadline.kinds.http.options import COMMAND
from leadline.kinds.kind import Kind
from leadline.plan.metric_specs import higher, lower, neither, times

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.analysis.capacity import Conditions
    from leadline.analysis.flows import Flow
    from leadline.analysis.metrics import Histograms
    from leadline.analysis.model import Distribution, Metric, TestResult, Window
    from leadline.analysis.running_intervals import IntervalGrowth
    from leadline.analysis.search_findings import Trial
    from leadline.analysis.test_data import TestData
    from leadline.analysis.test_spec import TestSpec
    from leadline.analysis.validity import Rules
    from leadline.analysis.window import RateColumn
    from leadline.contract.models import HttpWorkload
    from leadline.plan.ladder import Packets
    from leadline.report import HttpRequested
    from leadline.report.figures import FigureTable
    from leadline.trial.live_metrics import KindFigures
    from leadline.trial.second_tools import ToolRun
    from leadline.trial.workloads import Server

_SPREAD = ("min", "mean", "stdev", "p50", "p75", "p90", "p95", "p99", "p999", "p9999", "p99999", "max")
_PHASE = ("mean", "p50", "p99", "max")
_METRICS = (
    higher("requests", "requests that were answered"),
    higher("requests_per_s", "answered requests per second inside the steady window"),
    neither("requests_due", "requests that fell due"),
    neither("requests_sent", "requests that were sent completely"),
    lower("cut_off", "requests that the server answered or cut off before they were sent completely"),
    lower("unanswered", "requests without an answer at the end of the test"),
    lower("unsent", "requests that were due and were not sent"),
    lower("error_ratio", "share of the operations that failed, were refused, or had no answer in time"),
    *(neither(f"status_{digit}xx", f"answers with status {digit}xx") for digit in range(1, 6)),
    neither("redirects", "redirects that were followed"),
    neither("bytes_sent", "bytes of requests"),
    neither("bytes_received", "bytes of answers"),
    neither("body_bytes", "bytes of answers' bodies"),
    higher("transfer_bps", "bits received per second inside the steady window"),
    neither("connections_opened", "connections that were opened"),
    neither("handshakes_full", "full TLS handshakes"),
    neither("handshakes_resumed", "resumed TLS handshakes"),
    *times("latency", _SPREAD, "us", "the time from due to done"),
    neither("latency_samples", "requests whose latency is known"),
    lower("latency_censored", "requests whose latency is known only as a lower bound"),
    neither("latency_within_stdev_ratio", "share of the latencies within one standard deviation of the mean"),
    *times("service", _SPREAD, "us", "the time from sent to done"),
    *times(
        "late",
        ("p50", "p99", "max"),
        "us",
        "the time from when a request was due and a connection was free until it was sent",
    ),
    *times("dns", _PHASE, "us", "the time to resolve the name"),
    *times("connect", _PHASE, "us", "the time to connect"),
    *times("tls_full", _PHASE, "us", "the time of a full TLS handshake"),
    *times("tls_resumed", _PHASE, "us", "the time of a resumed TLS handshake"),
    *times("first_byte", _PHASE, "us", "the time from sent to the answer's first byte"),
    *times("transfer", _PHASE, "us", "the time from the answer's first byte to its last"),
    *times("kernel_wait", ("p99",), "us", "the time that received bytes waited in the kernel"),
    higher("found_rate_per_s", "requests per second: the highest rate that a search found to hold"),
)


class Http(Kind[HttpTest]):
    """The kind `http`: requests, each timed from when it was due if there is a rate."""

    name = "http"
    model = HttpTest
    metrics = _METRICS
    primary = "requests_per_s"
    decisive = ("latency_p50_us", "latency_p99_us")
    verb, counted = "answers", "requests"
    shortfall = ("error_ratio", "of the requests failed")
    delay = ("latency_p99_us", "p99 of the latency")
    scaling = (("requests_per_s", "1/s"), ("latency_p99_us", "us"))
    needs_answers = True
    headline = ("found_rate_per_s", "latency_p50_us", "latency_p99_us")
    woken = ("server", "client")
    operation = "request"
    rate_metrics: Mapping[str, str] = {"transfer_bps": "throughput_bps"}
    rungs = RUNGS
    command = COMMAND
    curves = ("latency", "connect", "service", "late", "dns", "tls_full", "tls_resumed", "first_byte", "transfer")

    def run_command(self, values: Mapping[str, Any]) -> int:
        """Run the command `leadline http`."""
        from leadline.kinds.http.command import run

        return run(values)

    def workload(self, test: HttpTest, server: Server) -> HttpWorkload:
        """Requests to the run's server, at the port of the test's scheme."""
        from leadline.kinds.http.workload import http_workload

        port = server.http_port_of(tls=test.needs_https)
        bound = test if server.bind is None else test.model_copy(update={"bind": (server.bind,)})
        return http_workload(bound, server.host, port, server.target(test.ip).ip_version)

    def advice(self, code: str) -> str | None:
        """The options about certificates."""
        from leadline.kinds.http.advice import certificate_advice

        return certificate_advice(code)

    def payload_share(self, test: Mapping[str, Any], packets: Packets) -> float | None:
        """Bodies in a TCP stream, and over TLS in its records."""
        from leadline.kinds.http.ladder import payload_share

        return payload_share(test, packets)

    def at_rate(self, test: HttpTest, rate_per_s: float | None, duration_ms: int) -> HttpTest:
        """All clients together offer the rate; without one, each is a closed loop."""
        return test.model_copy(update={"rate_per_s": rate_per_s, "duration_ms": duration_ms, "search": None})

    def reached_per_s(self, test: HttpTest, result: TestResult) -> float | None:
        """The rate of the closed loop: a rate never has more requests in flight."""
        return result.metrics["requests_per_s"].value

    def judge_rate(
        self, conditions: Conditions, test: HttpTest, result: TestResult, rate_per_s: float, duration_s: float
    ) -> Trial:
        """Judge by the requests that were answered."""
        from leadline.analysis.capacity import judge_trial

        clients = max(1, round(result.clients.clients)) if result.clients is not None else 1
        is_total = "connections" in test.totals
        return judge_trial(
            conditions,
            result,
            rate_per_s=rate_per_s,
            duration_s=duration_s,
            connections=test.connections if is_total else clients * test.connections,
        )

    def second_tool_run(self, test: HttpTest, server: Server, port: int) -> ToolRun:
        """wrk, ab or h2load against the same HTTP server."""
        from leadline.kinds.http.second_tool import http_run

        return http_run(test, server)

    def live_figures(self) -> KindFigures:
        """Open connections."""
        from leadline.kinds.live_connections import LiveConnections

        return LiveConnections()

    def calibration(self, workload: HttpWorkload) -> HttpWorkload:
        """The load's requests: a null responder answers them."""
        return workload

    def peer_request(self, workload: HttpWorkload, target: str) -> HttpRequested:
        """The facts that wrk and ab print about a load."""
        from leadline.report import HttpRequested

        return HttpRequested(
            url=target,
            connections=workload.connections,
            threads=workload.threads,
            duration_s=workload.duration_ms / 1e3,
            keep_alive=workload.requests_per_connection != 1,
            has_body=any(request.body_base64 is not None for request in workload.requests),
            paced=bool(workload.rate),
        )

    def read_spec(self, test: Mapping[str, Any], common: TestSpec) -> TestSpec:
        """HTTP counts answers, and its rate may have stages."""
        from leadline.analysis import test_spec as t
        from leadline.kinds.http.asked_delay import asked_delay_s

        stages = t.stages(test, "rate_per_s", "rate")
        return replace(
            common,
            counts_units=True,
            send_gap_s=t.shortest_gap_s(stages),
            steady=t.is_steady(stages),
            asked_delay_s=asked_delay_s(test),
            keeps_connections=test.get("keep_alive") is not False and test.get("requests_per_connection") is None,
            asked=t.asked_percentiles(test, ("latency", "service")),
        )

    def rate_columns(self, spec: TestSpec, flows: Sequence[Flow]) -> list[RateColumn]:
        """Requests per second, then bits per second."""
        from leadline.analysis.window import throughput_column, units_column

        return [units_column("requests_per_s", flows), throughput_column(flows)]

    def interval_values(self, spec: TestSpec, growth: IntervalGrowth) -> dict[str, float | None]:
        """Requests per second and their bits per second."""
        from leadline.analysis.running_intervals import answers

        return answers("requests_per_s", growth)

    def figures(
        self, data: TestData, flows: Sequence[Flow], steady: Window | None, histograms: Histograms
    ) -> dict[str, Metric]:
        """Requests by outcome, times by phase, connections."""
        from leadline.kinds.http.figures import http_figures

        return http_figures(data, flows, steady, histograms)

    def distributions(self, data: TestData, steady: Window | None, histograms: Histograms) -> tuple[Distribution, ...]:
        """The distributions of every histogram with values, and of the threads' rates."""
        from leadline.kinds.http.figures import distributions

        return distributions(data, steady, histograms)

    def rules(self) -> Rules:
        """An HTTP server reports nothing about itself to clients, and the generator's ceiling can be measured."""
        from leadline.analysis import rules
        from leadline.kinds.http import notes

        return rules.rules_of(
            limits=(rules.busy_threads, rules.late_sends, rules.unsent_by_hosts),
            notes=(
                *(notes.ceiling_known, notes.server_unknown),
                *(notes.requests_cut_off, notes.connection_per_request),
                rules.idle_wake_ups(*self.woken),
            ),
        )

    def table(self, metrics: Mapping[str, Metric]) -> FigureTable:
        """Requests first, then latencies."""
        from leadline import quantities
        from leadline.report.figures import Figure, FigureTable, latency_figures

        found = Figure("found_rate_per_s", "highest rate", quantities.per_second)
        answered = Figure("requests_per_s", "requests", quantities.per_second)
        if found.metric in metrics:
            return FigureTable("HTTP: highest rate that holds", found, (answered, *latency_figures()))
        return FigureTable("HTTP requests", answered, latency_figures())

    def figure_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The outcome of the requests, and the transferred bytes."""
        from leadline.kinds.http.summary import http_rows

        return http_rows(result)

    def brief_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The requests that went wrong, the transferred bytes, and the usual percentiles."""
        from leadline.kinds.http.summary import brief_rows

        return brief_rows(result)

    def brief_tables(self, result: TestResult) -> list[RenderableType]:
        """None: rows have the times."""
        return []

    def phase_rows(self, result: TestResult) -> list[tuple[str, tuple[str, ...]]]:
        """Each phase that occurred."""
        from leadline.kinds.http.summary import phase_rows

        return phase_rows(result)

    def time_tables(self, result: TestResult) -> list[RenderableType]:
        """The tables of spread, percentiles and phases."""
        from leadline.kinds.http.summary import http_times

        return http_times(result)


KIND = Http()
