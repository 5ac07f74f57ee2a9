"""The kind `scenario`: virtual users that send requests, by a scenario of our own format, JMeter's or a HAR file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leadline.kinds.http import KIND as HTTP
from leadline.kinds.kind import Kind
from leadline.kinds.scenario.model import LONGEST_MS, ScenarioTest
from leadline.kinds.scenario.options import COMMAND
from leadline.plan.ladder import Chain, Rung
from leadline.plan.metric_specs import higher, lower, neither, times

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.analysis.flows import Flow
    from leadline.analysis.metrics import Histograms
    from leadline.analysis.model import Ceiling, Distribution, Metric, Series, TestResult, Window
    from leadline.analysis.running_intervals import IntervalGrowth
    from leadline.analysis.scenario_model import ScenarioFindings
    from leadline.analysis.test_data import TestData
    from leadline.analysis.test_spec import TestSpec
    from leadline.analysis.validity import Rules
    from leadline.analysis.window import RateColumn
    from leadline.contract.models import ScenarioWorkload
    from leadline.report.figures import FigureTable
    from leadline.report.page_tables import PageTable
    from leadline.trial.live_metrics import KindFigures
    from leadline.trial.workloads import Server

_ITERATION = ("min", "mean", "p50", "p90", "p95", "p99", "max")
_METRICS = (
    *(metric for metric in HTTP.metrics if metric.name != "found_rate_per_s"),
    neither("repeated", "requests that were sent again after the server closed a kept connection"),
    higher("iterations", "iterations that came to their end"),
    higher("iterations_per_s", "iterations per second that came to their end"),
    neither("iterations_due", "iterations that were due"),
    lower("iterations_late", "iterations that began more than 1 ms after they were due"),
    lower("iterations_dropped", "iterations that were due and had no free user"),
    lower("iterations_failed", "iterations with a failed request"),
    neither("users_most", "the largest number of users at once"),
    higher("checks_ratio", "share of the checks that passed"),
    *times("iteration", _ITERATION, "us", "the time of an iteration"),
    *times("transaction", _ITERATION, "us", "the time of a transaction"),
    *times("start_late", ("p50", "p99", "max"), "us", "the time from when an iteration was due until it began"),
)

_TAGGED = (
    *("error_ratio", "requests", "requests_per_s", "checks_ratio", "bytes_received", "bytes_sent"),
    *("iterations", "iterations_dropped"),
    *(
        f"{time}_{statistic}_us"
        for time in ("latency", "service", "first_byte", "transaction", "iteration")
        for statistic in _ITERATION
    ),
)
"""The figures that can be of a part of the requests, by tags."""


class ScenarioKind(Kind[ScenarioTest]):
    """The kind `scenario`: users with a flow of requests."""

    name = "scenario"
    model = ScenarioTest
    metrics = _METRICS
    tagged = _TAGGED
    primary = "requests_per_s"
    decisive = ("latency_p50_us", "latency_p99_us")
    verb, counted = "answers", "requests"
    shortfall = ("error_ratio", "of the requests failed")
    delay = ("latency_p99_us", "p99 of the latency")
    scaling = (("requests_per_s", "1/s"), ("latency_p99_us", "us"))
    needs_answers = True
    headline = ("iterations_per_s", "latency_p50_us", "latency_p99_us")
    woken = ("server", "client")
    operation = "request"
    rate_metrics: Mapping[str, str] = {"transfer_bps": "throughput_bps"}
    command = COMMAND
    curves = ("latency", "service", "connect", "first_byte")
    rungs = (Rung("scenario", "scenario", "Scenario", Chain.REQUESTS, 50, "requests_per_s", is_given=True),)

    def run_command(self, values: Mapping[str, Any]) -> int:
        """Run the command `leadline scenario`."""
        from leadline.kinds.scenario.command import run

        return run(values)

    def workload(self, test: ScenarioTest, server: Server) -> ScenarioWorkload:
        """The scenario; its parameters `server` and `port` are the run's server."""
        from leadline.kinds.scenario.workload import scenario_workload

        host = f"[{server.host}]" if ":" in server.host else server.host
        known = {"server": host, "port": str(server.http_port_of(tls=False)), "scheme": server.scheme or "http"}
        bind = () if server.bind is None else (server.bind,)
        return scenario_workload(test, known, server.target(test.ip).ip_version, bind)

    def describe_load(self, workload: ScenarioWorkload) -> dict[str, Any]:
        """Whether its users wait between requests."""
        from leadline.kinds.scenario.workload import has_waits

        return {"has_waits": has_waits(workload)}

    def longest_ms(self, workload: ScenarioWorkload) -> int:
        """Each phase's iterations may go on for their grace."""
        graces_ms: dict[str, int] = {}
        for population in workload.plan.populations:
            graces_ms[population.phase] = max(population.end.grace_ms, graces_ms.get(population.phase, 0))
        return workload.duration_ms + sum(graces_ms.values())

    def live_figures(self) -> KindFigures:
        """Users, transactions and requests, and open connections."""
        from leadline.kinds.scenario.live import LiveLabels

        return LiveLabels()

    def check(self, test: ScenarioTest) -> None:
        """Compile the scenario."""
        from leadline.cli.scenario_check import check_scenario

        check_scenario(test.checked(), test.file.name)

    def advice(self, code: str) -> str | None:
        """The options about certificates."""
        return HTTP.advice(code)

    def read_spec(self, test: Mapping[str, Any], common: TestSpec) -> TestSpec:
        """The parameters of a load that counts answers. One that ends by its iterations has no length of its own."""
        from leadline.analysis.test_spec import asked_percentiles

        asked = asked_percentiles(test, ("latency", "service"))
        duration_ns = None if test.get("duration_ms") == LONGEST_MS else common.duration_ns
        waits = test.get("has_waits")
        return replace(common, counts_units=True, steady=False, asked=asked, duration_ns=duration_ns, has_waits=waits)

    def window(self, data: TestData, flows: Sequence[Flow]) -> tuple[Window | None, tuple[Series, ...]]:
        """The time of the main groups, without setup and teardown; users, errors and latencies over time."""
        from leadline.kinds.scenario.lines import lines
        from leadline.kinds.scenario.own_ceiling import main_window

        whole, _ = super().window(data, flows)
        return main_window(data, whole), lines(data, whole)

    def rate_columns(self, spec: TestSpec, flows: Sequence[Flow]) -> list[RateColumn]:
        """Requests per second, then bits per second."""
        return HTTP.rate_columns(spec, flows)

    def interval_values(self, spec: TestSpec, growth: IntervalGrowth) -> dict[str, float | None]:
        """Requests per second and their bits per second."""
        return HTTP.interval_values(spec, growth)

    def with_histograms(self, data: TestData, histograms: Histograms) -> Histograms:
        """The histograms with those of iterations and transactions, and while the load runs those so far."""
        from leadline.kinds.scenario.figures import with_scenario_histograms

        return with_scenario_histograms(data, histograms)

    def figures(
        self, data: TestData, flows: Sequence[Flow], steady: Window | None, histograms: Histograms
    ) -> dict[str, Metric]:
        """Requests as in `http`, and iterations."""
        from leadline.kinds.scenario.figures import scenario_figures

        return {**HTTP.figures(data, flows, steady, histograms), **scenario_figures(data, histograms)}

    def distributions(self, data: TestData, steady: Window | None, histograms: Histograms) -> tuple[Distribution, ...]:
        """The distributions of the requests."""
        return HTTP.distributions(data, steady, histograms)

    def ceiling(self, data: TestData, steady: Window | None, histograms: Histograms) -> Ceiling | None:
        """The ceiling by the run's own CPU time: a null responder's answers would make another flow of it."""
        from leadline.kinds.scenario.own_ceiling import ceiling_of_run

        return ceiling_of_run(data, steady, histograms)

    def scenario_findings(self, data: TestData) -> ScenarioFindings | None:
        """The groups, requests and transactions, from the reports of all agents."""
        from leadline.kinds.scenario.findings import findings

        return findings(data)

    def rules(self) -> Rules:
        """The rules of HTTP load, those of its users, and a note on why its own ceiling is unknown."""
        from leadline.kinds.scenario.notes import run_too_short, something_sent, users_wait

        rules = HTTP.rules()
        return replace(
            rules, findings=(something_sent, *rules.findings, users_wait), notes=(run_too_short, *rules.notes)
        )

    def table(self, metrics: Mapping[str, Metric]) -> FigureTable:
        """Requests first, then latencies."""
        from leadline import quantities
        from leadline.report.figures import Figure, FigureTable, latency_figures

        return FigureTable("scenario", Figure("requests_per_s", "requests", quantities.per_second), latency_figures())

    def figure_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """Iterations, then requests."""
        from leadline.kinds.scenario.summary import group_rows

        return [*group_rows(result), *HTTP.figure_rows(result)]

    def page_tables(self, result: TestResult) -> list[PageTable]:
        """Transactions and requests by name, failed checks, and the slowest requests."""
        from leadline.kinds.scenario.page import page_tables

        return page_tables(result)

    def time_tables(self, result: TestResult) -> list[RenderableType]:
        """Transactions and requests by name, failures, and the slowest requests."""
        from leadline.kinds.scenario.summary import label_tables

        return label_tables(result)


KIND = ScenarioKind()
