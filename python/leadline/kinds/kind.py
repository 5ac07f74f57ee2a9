"""The base class of a kind of test, with the defaults that most kinds share.

A subclass gives its name, its model, its figures and its mapping to an agent's workload, and overrides what differs.
Modules that measure or draw are imported where they are used: `--help` needs none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from leadline.errors import LeadlineError
from leadline.plan.base_test import BaseTest
from leadline.plan.ladder import Packets, Rung
from leadline.plan.metric_specs import MetricSpec
from leadline.plan.options import Command

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.analysis.answers import AnsweredKind
    from leadline.analysis.capacity import Conditions
    from leadline.analysis.flows import Flow
    from leadline.analysis.iperf3_document import Iperf3Requested

    # mypy checks a kind against the protocol of each module that uses one.
    from leadline.analysis.metrics import CostKind, Histograms
    from leadline.analysis.model import Ceiling, Distribution, Generator, Metric, Series, TestResult, Window
    from leadline.analysis.packet_model import PacketFindings
    from leadline.analysis.repeats import PrimaryKind
    from leadline.analysis.running_intervals import IntervalGrowth, IntervalKind
    from leadline.analysis.scaling import ScalingKind
    from leadline.analysis.scenario_model import ScenarioFindings
    from leadline.analysis.search_findings import Trial
    from leadline.analysis.test_analysis import FiguresKind
    from leadline.analysis.test_data import TestData
    from leadline.analysis.test_spec import SpecReader, TestSpec
    from leadline.analysis.validity import JudgedKind, Rules
    from leadline.analysis.window import RateColumn, RateKind
    from leadline.cli.kind_command import CommandedKind
    from leadline.contract.models import HttpWorkload, TunnelWorkload
    from leadline.plan.kinds import PlanKind
    from leadline.plan.ladder import LadderKind
    from leadline.report import HttpRequested
    from leadline.report.figures import FigureTable, TabledKind
    from leadline.report.headlines import HeadlinedKind
    from leadline.report.html import PagedKind
    from leadline.report.measurement import SummarisedKind
    from leadline.report.page_tables import PageTable
    from leadline.sut.model import FleetAccess
    from leadline.trial.live_metrics import KindFigures, LiveKind
    from leadline.trial.second_tools import RepeatedKind, ToolRun
    from leadline.trial.workloads import LoadKind, LoadWorkload, Receiver, Server

    def _in_analysis(
        kind: Kind[BaseTest],
    ) -> tuple[CostKind, PrimaryKind, IntervalKind, ScalingKind, FiguresKind, SpecReader, JudgedKind, RateKind]:
        return kind, kind, kind, kind, kind, kind, kind, kind

    def _in_answers(kind: Kind[BaseTest]) -> AnsweredKind:
        return kind

    def _in_trials(kind: Kind[BaseTest]) -> tuple[LoadKind, RepeatedKind, LiveKind]:
        return kind, kind, kind

    def _in_other_packages(
        kind: Kind[BaseTest],
    ) -> tuple[PlanKind, TabledKind, HeadlinedKind, PagedKind, SummarisedKind, CommandedKind, LadderKind]:
        return kind, kind, kind, kind, kind, kind, kind


Test = TypeVar("Test", bound=BaseTest)


class Kind(Generic[Test]):
    """One kind of test."""

    name: str
    """The value of `kind` in a plan."""
    model: type[Test]
    """The test's parameters."""
    metrics: tuple[MetricSpec, ...] = ()
    """Its figures, which can be targets."""
    tagged: tuple[str, ...] = ()
    """Those that can be of a part of the test, by tags: `error_ratio{name:login}`."""
    primary: str = "throughput_bps"
    """The leading figure of a test, by which repeats are compared."""
    decisive: tuple[str, ...] = ()
    """The figures, beside the primary one, whose verdicts determine the verdict of a test."""
    scaling: tuple[tuple[str, str], ...] = ()
    """The figures that grow with a number of clients, and their units."""
    headline: tuple[str, ...] = ()
    """The figures beside the leading one in a headline."""
    verb: str = "carries"
    """What a system does with its load, in sentences: `carries 941 Mbit/s`."""
    counted: str | None = None
    """What the leading figure counts, in sentences: `completes 12.1 k transactions/s`; None for bits."""
    shortfall: tuple[str, str] | None = None
    """The share that a system did not serve, and its words in sentences: `with 3.1 % of the packets lost`."""
    delay: tuple[str, str] | None = None
    """The time that sentences state where the rate was given, and its words: `p99 of the latency`."""
    sends_frames: bool = False
    """Whether its clients send raw frames, which a lab's links have to take."""
    needs_answers: bool = False
    """Whether a measurement of which nothing was answered has failed: the exit code is 1."""
    woken: tuple[str, ...] = ()
    """The sides (`client`, `server`) that wake up once per operation, for kinds whose latencies wake-ups may
    dominate."""
    operation: str = "operation"
    """The divisor of the generator's CPU time."""
    curves: tuple[str, ...] = ("latency", "service", "late")
    """The histograms whose percentiles are drawn; pages show the first one by default."""
    rate_metrics: Mapping[str, str] = {}
    """Metrics whose names differ from those of their rate columns."""
    figure_names: Mapping[str, str] = {}
    """Names of figures in words, if they differ from the metrics' names."""

    rungs: tuple[Rung, ...] = ()
    """Its tests in a ladder; empty if it is no layer of one."""

    command: Command | None = None
    """Its command of `leadline`; None if it has none."""

    # The command.
    def run_command(self, values: Mapping[str, Any]) -> int:
        """Run the measurement that the options describe (by their names in code), print it, and return the exit
        code."""
        from leadline.cli.kind_command import measure_with_session

        return measure_with_session(self, values)

    # The workload.
    def workload(self, test: Test, server: Server) -> LoadWorkload:
        """The workload of one client in a test against a server.

        Raises:

            LeadlineError: a single client cannot run it.
        """
        raise NotImplementedError

    def receivers(self, test: Test, server: Server) -> Sequence[Receiver]:
        """What receives the load or sends it back; empty if the run's own server does."""
        return ()

    def fleet_workload(self, test: Test, access: FleetAccess, clients: int, server: str) -> TunnelWorkload:
        """The workload of a fleet of this number of clients; its traffic goes to the run's server.

        Raises:

            LeadlineError: a fleet cannot run it, and no plan has such a test.
        """
        raise LeadlineError(f"{test.name}: a fleet's clients cannot carry {test.kind} tests")

    def second_tool_run(self, test: Test, server: Server, port: int) -> ToolRun:
        """The command lines of the test's second tool, from a client to this server; `port` is that of a server of the
        tool's own.

        Raises:

            LeadlineError: no second tool can run it, and no plan has such a test.
        """
        raise LeadlineError(f"{test.name}: no second tool repeats {test.kind} tests")

    search_headroom: float = 2.0
    """The highest rate that a search tries, as a multiple of the rate that the load reached without a rate."""

    def at_rate(self, test: Test, rate_per_s: float | None, duration_ms: int) -> BaseTest:
        """The test at a rate of all its clients, or without a rate, for a search."""
        raise LeadlineError(f"{test.name}: a {test.kind} test has no rate to search for")

    def reached_per_s(self, test: Test, result: TestResult) -> float | None:
        """The rate that the load reached without a rate, for a search."""
        raise LeadlineError(f"{test.name}: a {test.kind} test has no rate to search for")

    def judge_rate(
        self, conditions: Conditions, test: Test, result: TestResult, rate_per_s: float, duration_s: float
    ) -> Trial:
        """Judge the result of a load at a rate, for a search."""
        raise LeadlineError(f"{test.name}: a {test.kind} test has no rate to search for")

    def bits_per_operation(self, test: Mapping[str, Any]) -> float | None:
        """Payload bits of one operation at a rate; None where they are not all alike."""
        return None

    def marked(self, workload: Any, number: int) -> Any:
        """The workload with this number of its load, by which its packets differ from those of others."""
        return workload

    def aligned(self, workload: Any, ahead_ns: int) -> Any:
        """A receiver's workload, given by how much the generator's clock is ahead of its host's, ns."""
        return workload

    def preparation_s(self, workload: Any) -> float:
        """The time beyond the usual one that an agent may take until it is ready."""
        return 0.0

    def describe_load(self, workload: Any) -> dict[str, Any]:
        """What the journal keeps of a load beside its test, for the verdict."""
        return {}

    def longest_ms(self, workload: Any) -> int:
        """The maximum length of a load."""
        return int(workload.duration_ms)

    def check(self, test: Test) -> None:
        """Ask this host's agent whether it can run the test, if only an agent knows; before a run builds anything.

        Raises:

            PlanError: it cannot.
        """

    def advice(self, code: str) -> str | None:
        """What a user can do about a failure of this name; None if the message says it all."""
        return None

    def live_figures(self) -> KindFigures:
        """The figures of one load while it runs that only this kind has."""
        from leadline.trial.live_metrics import KindFigures

        return KindFigures()

    def calibration(self, workload: Any) -> HttpWorkload | None:
        """The load whose ceiling is measured against a null responder; None if the kind has no ceiling."""
        return None

    def peer_request(self, workload: Any, target: str) -> HttpRequested | None:
        """The facts about a load that the layouts of other tools print; None if no layout supports the kind."""
        return None

    def iperf3_request(self, workload: Any) -> Iperf3Requested | None:
        """The facts about a load that iperf3's document has; None if the document has no place for the kind."""
        return None

    # The figures.
    def read_spec(self, test: Mapping[str, Any], common: TestSpec) -> TestSpec:
        """The parameters of the kind, in addition to those that all kinds share."""
        return common

    def window(self, data: TestData, flows: Sequence[Flow]) -> tuple[Window | None, tuple[Series, ...]]:
        """The time over which rates are taken, and additional lines to draw."""
        from leadline.analysis.window import steady_window

        return steady_window(flows, data.spec.warmup_ns, data.start_at_ns), ()

    def rate_columns(self, spec: TestSpec, flows: Sequence[Flow]) -> list[RateColumn]:
        """Its rates; the leading one first."""
        from leadline.analysis.window import throughput_column

        return [throughput_column(flows)]

    def interval_values(self, spec: TestSpec, growth: IntervalGrowth) -> dict[str, float | None]:
        """The figures of an interval without latencies."""
        from leadline.analysis.running_intervals import throughput

        return throughput(spec, growth)

    def figures(
        self, data: TestData, flows: Sequence[Flow], steady: Window | None, histograms: Histograms
    ) -> dict[str, Metric]:
        """Every metric; unknown ones are None."""
        from leadline.analysis.metrics import throughput, window_rates

        return throughput(data.spec, flows, steady, window_rates(data.spec, flows, steady))

    def with_histograms(self, data: TestData, histograms: Histograms) -> Histograms:
        """The histograms of the whole test, and those of its parts if the kind has parts."""
        return histograms

    def distributions(self, data: TestData, steady: Window | None, histograms: Histograms) -> tuple[Distribution, ...]:
        """Distributions of times, if the kind shows more than percentiles."""
        return ()

    def operations(self, spec: TestSpec, flows: Sequence[Flow], clients: int) -> float | None:
        """The divisor of the generator's CPU time: datagrams, transactions, bytes; None if unknown. `clients` is the
        number of configured clients of a fleet.
        """
        from leadline.analysis.metrics import received_units, sum_of_flows

        return sum_of_flows(flows, received_units)

    def generator(self, data: TestData, cost: Generator) -> Generator:
        """The cost of generating, refined by the kind."""
        return cost

    def ceiling(self, data: TestData, steady: Window | None, histograms: Histograms) -> Ceiling | None:
        """The generator's maximum rate for this load, if it was measured before."""
        return data.ceiling

    def scenario_findings(self, data: TestData) -> ScenarioFindings | None:
        """The groups of users, requests and transactions of a scenario; None for other kinds."""
        return None

    def packet_findings(self, data: TestData) -> PacketFindings | None:
        """Raw frames by size and by flow; None for other kinds."""
        return None

    def rules(self) -> Rules:
        """The rules by which its tests are judged."""
        from leadline.analysis import rules

        return rules.rules_of(
            breaks=(rules.broken_off(),),
            limits=(rules.busy_threads, rules.late_sends, rules.unsent_by_flows),
            required=(rules.receiver_known,),
        )

    def payload_share(self, test: Mapping[str, Any], packets: Packets) -> float | None:
        """The payload in the bytes that a test's frames take on a link; None if it cannot be calculated."""
        return None

    # The presentation.
    def table(self, metrics: Mapping[str, Metric]) -> FigureTable:
        """The figures that are columns of tables."""
        from leadline.report.figures import plain_table

        return plain_table(self.name, metrics)

    def figure_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The figures without times, as pairs of a name and a line."""
        from leadline.report.measurement import figure_rows

        return figure_rows(result, self.figure_names)

    def brief_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The figures of the short summary, as pairs of a name and a line."""
        return self.figure_rows(result)

    def brief_tables(self, result: TestResult) -> list[RenderableType]:
        """The tables of the short summary."""
        return self.time_tables(result)

    def failure_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The failures, as pairs of a name and a line."""
        from leadline.report.measurement import error_rows

        return error_rows(result)

    def time_tables(self, result: TestResult) -> list[RenderableType]:
        """The tables of times."""
        from leadline.report.measurement import latency_tables

        return latency_tables(result)

    def page_tables(self, result: TestResult) -> list[PageTable]:
        """Further tables of the page."""
        return []

    def phase_rows(self, result: TestResult) -> list[tuple[str, tuple[str, ...]]]:
        """Steps or phases of its operations, each with count, mean, p50, p99 and maximum."""
        return []

    def client_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The outcome of a fleet's clients, as pairs of a name and a line; an empty name continues the previous
        row."""
        return []
