"""What all kinds of test with virtual users have in common: their figures, verdicts and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from leadline.kinds.http import KIND as HTTP
from leadline.kinds.kind import Kind
from leadline.kinds.scenario.users_test import LONGEST_MS, UsersTest

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.analysis.flows import Flow
    from leadline.analysis.metrics import Histograms
    from leadline.analysis.model import Ceiling, Distribution, Metric, Series, TestResult, Window
    from leadline.analysis.running_intervals import IntervalGrowth
    from leadline.analysis.scenario_model import ScenarioFindings
    from leadline.analysis.test_data import TestData
    from leadline.analysis.test_spec import TestSpec
    from leadline.analysis.window import RateColumn
    from leadline.report.figures import FigureTable
    from leadline.report.page_tables import PageTable
    from leadline.trial.live_metrics import KindFigures

Test = TypeVar("Test", bound=UsersTest)


class UsersKind(Kind[Test]):
    """A kind of test whose users send requests over HTTP."""

    primary = "requests_per_s"
    decisive = ("latency_p50_us", "latency_p99_us")
    verb, counted = "answers", "requests"
    shortfall = ("error_ratio", "of the requests failed")
    delay = ("latency_p99_us", "p99 of the latency")
    scaling = (("requests_per_s", "1/s"), ("latency_p99_us", "us"))
    needs_answers = True
    woken = ("server", "client")
    operation = "request"
    rate_metrics: Mapping[str, str] = {"transfer_bps": "throughput_bps"}
    curves: tuple[str, ...] = ("latency", "service", "connect", "first_byte")

    def live_figures(self) -> KindFigures:
        """Users, transactions and requests, and open connections."""
        from leadline.kinds.scenario.live import LiveLabels

        return LiveLabels()

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
