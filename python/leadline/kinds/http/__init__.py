"""HTTP/1.1 load: a closed loop over its connections, or an open one at a rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leadline.kinds.http.model import HttpTest
from leadline.kinds.http.options import COMMAND
from leadline.kinds.kind import Kind

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.analysis.flows import Flow
    from leadline.analysis.metrics import Histograms
    from leadline.analysis.model import Distribution, Metric, TestResult, Window
    from leadline.analysis.running_intervals import IntervalGrowth
    from leadline.analysis.test_data import TestData
    from leadline.analysis.test_spec import TestSpec
    from leadline.analysis.validity import Rules
    from leadline.analysis.window import RateColumn
    from leadline.contract.models import HttpWorkload
    from leadline.report import HttpRequested
    from leadline.report.figures import FigureTable
    from leadline.trial.workloads import Server

_SPREAD = ("min", "mean", "stdev", "p50", "p75", "p90", "p95", "p99", "p999", "p9999", "p99999", "max")
_PHASES = ("dns", "connect", "tls_full", "tls_resumed", "first_byte", "transfer")
_METRICS = (
    "requests",
    "requests_per_s",
    "requests_due",
    "requests_sent",
    "unanswered",
    "unsent",
    "error_ratio",
    *(f"status_{digit}xx" for digit in range(1, 6)),
    "redirects",
    "bytes_sent",
    "bytes_received",
    "body_bytes",
    "transfer_bps",
    "connections_opened",
    "handshakes_full",
    "handshakes_resumed",
    *(f"latency_{name}_us" for name in _SPREAD),
    "latency_samples",
    "latency_censored",
    "latency_within_stdev_ratio",
    *(f"service_{name}_us" for name in _SPREAD),
    *(f"late_{name}_us" for name in ("p50", "p99", "max")),
    *(f"{phase}_{name}_us" for phase in _PHASES for name in ("mean", "p50", "p99", "max")),
    "kernel_wait_p99_us",
)


class Http(Kind[HttpTest]):
    """Requests, each timed from when it was due where there is a rate."""

    name = "http"
    model = HttpTest
    metrics = _METRICS
    primary = "requests_per_s"
    scaling = (("requests_per_s", "1/s"), ("latency_p99_us", "us"))
    headline = ("latency_p50_us", "latency_p99_us")
    operation = "request"
    command = COMMAND
    curves = ("latency", "connect", "service", "late", "dns", "tls_full", "tls_resumed", "first_byte", "transfer")

    def run_command(self, values: Mapping[str, Any]) -> int:
        """As `leadline http` does."""
        from leadline.kinds.http.command import run

        return run(values)

    def workload(self, test: HttpTest, server: Server) -> HttpWorkload:
        """Requests of the run's server, at the port of the test's scheme."""
        from leadline.kinds.http.workload import http_workload
        from leadline.trial.workloads import HTTP_PORT, HTTPS_PORT, ip_version

        port = HTTPS_PORT if test.scheme == "https" else HTTP_PORT
        return http_workload(test, server.host, port, ip_version(test.ip))

    def calibration(self, workload: HttpWorkload) -> HttpWorkload:
        """Requests are what a null responder answers."""
        return workload

    def peer_request(self, workload: HttpWorkload, target: str) -> HttpRequested:
        """What wrk and ab say of a load."""
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
        """It counts answers, and its rate may have stages."""
        from leadline.analysis import test_spec as t

        stages = t.stages(test, "rate_per_s", "rate")
        return replace(
            common,
            counts_units=True,
            send_gap_s=t.shortest_gap_s(stages),
            steady=t.is_steady(stages),
            asked=t.asked_percentiles(test, ("latency", "service")),
        )

    def rate_columns(self, spec: TestSpec, flows: Sequence[Flow]) -> list[RateColumn]:
        """Requests, then bits."""
        from leadline.analysis.window import throughput_column, units_column

        return [units_column("requests_per_s", flows), throughput_column(flows)]

    def interval_values(self, spec: TestSpec, growth: IntervalGrowth) -> dict[str, float | None]:
        """Requests and their bits."""
        from leadline.analysis.running_intervals import answers

        return answers("requests_per_s", growth)

    def figures(
        self, data: TestData, flows: Sequence[Flow], steady: Window | None, histograms: Histograms
    ) -> dict[str, Metric]:
        """Requests by their fate, times by phase, connections."""
        from leadline.kinds.http.figures import http_figures

        return http_figures(data, flows, steady, histograms)

    def distributions(self, data: TestData, steady: Window | None, histograms: Histograms) -> tuple[Distribution, ...]:
        """Of every histogram that was fed, and of the threads' rates."""
        from leadline.kinds.http.figures import distributions

        return distributions(data, steady, histograms)

    def rules(self) -> Rules:
        """A server of HTTP keeps no account for its clients, and a generator's ceiling can be known."""
        from leadline.analysis import rules
        from leadline.kinds.http.notes import ceiling_known, server_unknown

        return rules.rules_of(
            limits=(rules.busy_threads, rules.late_sends, rules.unsent_by_hosts),
            notes=(ceiling_known, server_unknown),
        )

    def table(self, metrics: Mapping[str, Metric]) -> FigureTable:
        """Requests first, then latencies."""
        from leadline.report import quantities
        from leadline.report.figures import Figure, FigureTable, latency_figures

        return FigureTable(
            "HTTP requests",
            Figure("requests_per_s", "requests", quantities.per_second, capacity=True),
            latency_figures(),
        )

    def figure_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The fate of the requests, and what was moved."""
        from leadline.kinds.http.summary import http_rows

        return http_rows(result)

    def phase_rows(self, result: TestResult) -> list[tuple[str, tuple[str, ...]]]:
        """Each phase that was seen."""
        from leadline.kinds.http.summary import phase_rows

        return phase_rows(result)

    def time_tables(self, result: TestResult) -> list[RenderableType]:
        """Spread, percentiles and phases."""
        from leadline.kinds.http.summary import http_times

        return http_times(result)


KIND = Http()
