"""The kind `load-latency`: request and response alone, then beside bulk TCP up, down, and both (RRUL's idea).

Each phase is a few tasks that begin at one instant: a probe of `rr`, and the load of `tcp`; with classes, a probe and a
load of each class too. Their names (`idle.probe`, `up.bulk`, `up.bulk.voice` ...) tell the analysis which phase and
class a figure belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from pydantic_core import PydanticCustomError

from leadline.kinds.kind import Kind
from leadline.plan import options as o
from leadline.plan.base_test import BaseTest
from leadline.plan.field_types import (
    Count,
    DurationMs,
    DurationOrZeroMs,
    Items,
    SizeBytes,
    rule,
    validation_error,
    within,
)
from leadline.plan.metric_specs import higher, lower, times
from leadline.plan.options import Command, Option

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.analysis.flows import Flow
    from leadline.analysis.metrics import Histograms
    from leadline.analysis.model import Metric, Series, TestResult, Window
    from leadline.analysis.test_data import TestData
    from leadline.analysis.test_spec import TestSpec
    from leadline.analysis.validity import Rules
    from leadline.analysis.window import RateColumn
    from leadline.report.figures import FigureTable
    from leadline.trial.workloads import PhasedWorkload, Server, TaskWorkload

PHASES: tuple[tuple[str, Literal["up", "down", "both"] | None], ...] = (
    ("idle", None),
    ("up", "up"),
    ("down", "down"),
    ("both", "both"),
)
"""The phases in their order, and the direction of the load."""
CLASSES = {"background": 8, "video": 40, "voice": 46}
"""RRUL's classes of traffic beside best effort, and their code points: CS1, CS5 and EF."""
_TIMES = ("p50", "p99")
_BETWEEN_PHASES_MS = 2_000
"""What opening the sessions of the next phase may take."""
_HISTOGRAM_INTERVAL_MS = 200
"""A point of latency over time."""
_PROBE_BYTES = 64


class LoadLatencyTest(BaseTest):
    """Latency over idle and under load."""

    kind: Literal["load-latency"] = "load-latency"
    duration_ms: DurationMs = Field(default=20_000, validation_alias="duration")
    """Length of all phases together: idle, up, down and both take a quarter each."""
    warmup_ms: DurationOrZeroMs = Field(default=1_000, validation_alias="warmup")
    """Time at the start of each phase that is not counted."""
    flows: Count = 4
    """Number of TCP connections per direction and client; best effort and the classes take them in turn."""
    protocol: Literal["udp", "tcp"] = "udp"
    """Transport protocol of the probes."""
    size_bytes: Annotated[SizeBytes, within(40, 1400, " bytes")] = Field(default=_PROBE_BYTES, validation_alias="size")
    """Payload of each probe and of its answer."""
    classes: Items[Literal["background", "video", "voice"]] = ()
    """Classes of traffic (CS1, CS5, EF) with a probe and a share of the load of their own, beside best effort."""
    congestion: str | None = None
    """Congestion control of the load, by the kernel's name; null: the host's default."""

    @property
    def phase_ms(self) -> int:
        """Length of each phase."""
        return self.duration_ms // len(PHASES)

    @property
    def longest_ms(self) -> int:
        """The phases, and the time between them."""
        return self.duration_ms + len(PHASES) * _BETWEEN_PHASES_MS

    @rule
    def _phases_are_long_enough(self) -> Iterator[PydanticCustomError]:
        if self.phase_ms <= self.warmup_ms < self.duration_ms:
            yield validation_error(
                f"{self.warmup_ms} ms of warm-up leave no time of a phase, a quarter of {self.duration_ms} ms",
                at=("warmup",),
                hint="give a longer duration, or a shorter warm-up",
            )

    @rule
    def _each_class_has_a_flow(self) -> Iterator[PydanticCustomError]:
        shares = 1 + len(set(self.classes))
        if self.flows < shares:
            yield validation_error(
                f"{self.flows} flows are too few for best effort and {shares - 1} classes",
                at=("flows",),
                hint=f"give at least {shares}, or fewer classes",
            )

    def flows_by_class(self) -> dict[str | None, int]:
        """Connections of the load by class, with at least one each; the key of best effort is None."""
        kinds = (None, *dict.fromkeys(self.classes))
        share, rest = divmod(self.flows, len(kinds))
        return {one: share + (place < rest) for place, one in enumerate(kinds)}


def _phase_metrics() -> Iterator[Any]:
    for phase, direction in PHASES:
        while_ = "while nothing else is sent" if direction is None else f"under TCP load {_WORDS[phase]}"
        yield from times(f"latency_{phase}", _TIMES, "us", f"the time from request to answer {while_}")
        if direction is not None:
            for name in _TIMES:
                words = (
                    f"by how much {name} of the latency under TCP load {_WORDS[phase]} exceeds that of the idle path"
                )
                yield lower(f"increase_{phase}_{name}_us", words)
        for name, code_point in CLASSES.items():
            words = f"the time from request to answer of class {name} (DSCP {code_point}) {while_}; only with classes"
            yield from times(f"latency_{phase}_{name}", _TIMES, "us", words)


_WORDS = {"up": "to the server", "down": "from the server", "both": "in both directions"}
_RATES = {
    "bulk_up_bps": ("up", "up", "TCP payload per second to the server, alone"),
    "bulk_down_bps": ("down", "down", "TCP payload per second from the server, alone"),
    "bulk_both_up_bps": ("both", "up", "TCP payload per second to the server while as much as possible returns"),
    "bulk_both_down_bps": (
        "both",
        "down",
        "TCP payload per second from the server while as much as possible is sent to it",
    ),
}
"""Figure to its phase, its direction and its explanation."""


def _class_rates() -> Iterator[tuple[str, str, str, str, str]]:
    """Returns figure, phase, direction, class and explanation."""
    for figure, (phase, direction, words) in _RATES.items():
        for one, code_point in CLASSES.items():
            name = f"{figure.removesuffix('_bps')}_{one}_bps"
            yield (
                name,
                phase,
                direction,
                one,
                f"{words}: the part of class {one} (DSCP {code_point}); only with classes",
            )


class LoadLatency(Kind[LoadLatencyTest]):
    """The kind `load-latency`: what a path's queues add to latency when they are full."""

    name = "load-latency"
    model = LoadLatencyTest
    metrics = (
        lower("latency_increase_us", "the largest increase of the median latency over the idle path's, of all loads"),
        *_phase_metrics(),
        *(higher(name, words) for name, (_, _, words) in _RATES.items()),
        *(higher(name, words) for name, _, _, _, words in _class_rates()),
    )
    primary = "latency_increase_us"
    decisive = ("latency_idle_p50_us", "latency_both_p50_us", "latency_both_p99_us")
    headline = ("latency_idle_p50_us", "latency_both_p99_us")
    verb = "adds"
    operation = "transaction"
    curves = (*(phase for phase, _ in PHASES), *(f"{phase} {name}" for phase, _ in PHASES for name in CLASSES))
    command = Command(
        LoadLatencyTest,
        "Measure how much latency grows under load (bufferbloat).\n\nThe load is TCP: up, down, and both ways.",
        "Example: leadline load-latency\n\n    leadline load-latency 192.0.2.7 -d 20s",
        position=5,
        rows=(
            o.HOST,
            Option(("-d", "--duration"), "Length of all four phases together: idle, up, down, both.", key="duration"),
            Option(("--warmup",), "Time at the start of each phase that is not counted.", key="warmup"),
            Option(
                ("-P", "--parallel"),
                "TCP connections of the load in each direction; the classes take them in turn.",
                key="flows",
            ),
            Option(("-l", "--size"), "Payload of each probe and of its answer, bytes.", key="size"),
            Option(("--tcp",), "Probe over TCP instead of UDP.", key="protocol", value="tcp"),
            Option(
                ("--classes",),
                "Probe and load also the classes background (CS1), video (CS5) and voice (EF).",
                key="classes",
                value=list(CLASSES),
            ),
            Option(
                ("--congestion",),
                "Congestion control of the load, by the kernel's name.",
                key="congestion",
                metavar="NAME",
            ),
            *(*o.SESSION, o.INTERVAL, o.JSON, o.VERBOSE, o.OUT, o.targets("latency_increase_us < 20000")),
        ),
    )

    def workload(self, test: LoadLatencyTest, server: Server) -> PhasedWorkload:
        """The tasks of each phase."""
        from leadline.contract.models import RrWorkload, StreamOptions, TcpWorkload
        from leadline.kinds.load_latency.figures import PROBE, bulk_name
        from leadline.trial.workloads import PhasedWorkload

        target = server.target(test.ip)
        common: dict[str, Any] = {
            "target": target,
            "bind": server.bind,
            "threads": test.threads,
            "duration_ms": test.phase_ms,
            "warmup_ms": test.warmup_ms,
            "interval_ms": test.interval_ms,
        }
        probe = RrWorkload(
            protocol=test.protocol,
            flows=1,
            number=None,
            request_bytes=test.size_bytes,
            response_bytes=test.size_bytes,
            timeout_ms=_PROBE_TIMEOUT_MS,
            histogram_interval_ms=_HISTOGRAM_INTERVAL_MS,
            **common,
        )
        probes: dict[str, TaskWorkload] = {PROBE: probe}
        probes |= {name: probe.model_copy(update={"dscp": CLASSES[name]}) for name in test.classes}
        phases: dict[str, dict[str, TaskWorkload]] = {}
        for phase, direction in PHASES:
            phases[phase] = {f"{phase}.{name}": work for name, work in probes.items()}
            if direction is None:
                continue
            for one, flows in test.flows_by_class().items():
                phases[phase][bulk_name(phase, one)] = TcpWorkload(
                    flows=flows,
                    direction=direction,
                    block_bytes=128 * 1024,
                    rate_bps=None,
                    congestion=test.congestion,
                    options=None if one is None else StreamOptions(dscp=CLASSES[one]),
                    **common,
                )
        return PhasedWorkload(self.name, tuple(phases.values()), test.longest_ms)

    def read_spec(self, test: Mapping[str, Any], common: TestSpec) -> TestSpec:
        """Rates differ from phase to phase. The analysis takes the warm-up of each phase from its own tasks."""
        return replace(common, steady=False, direction="both")

    def window(self, data: TestData, flows: Sequence[Flow]) -> tuple[Window | None, tuple[Series, ...]]:
        """All phases, and latency and throughput over their time."""
        from leadline.kinds.load_latency.figures import series, whole_window

        whole = whole_window(flows)
        return whole, series(data, flows, whole)

    def with_histograms(self, data: TestData, histograms: Histograms) -> Histograms:
        """The latencies of each phase by its name."""
        from leadline.kinds.load_latency.figures import with_phases

        return with_phases(data, histograms)

    def rate_columns(self, spec: TestSpec, flows: Sequence[Flow]) -> list[RateColumn]:
        """The bits of the load per second."""
        from leadline.analysis.window import throughput_column
        from leadline.kinds.load_latency.figures import is_bulk

        return [throughput_column([flow for flow in flows if is_bulk(flow.key.task)])]

    def figures(
        self, data: TestData, flows: Sequence[Flow], steady: Window | None, histograms: Histograms
    ) -> dict[str, Metric]:
        """Each phase's latency, its increase over the idle path's, and its throughput."""
        from leadline.kinds.load_latency.figures import class_latencies, class_throughput, latencies, throughput

        rates = {name: throughput(data, flows, phase, direction) for name, (phase, direction, _) in _RATES.items()}
        of_classes = {
            name: class_throughput(data, flows, phase, direction, one)
            for name, phase, direction, one, _ in _class_rates()
        }
        phases = [phase for phase, _ in PHASES]
        found = {
            **latencies(histograms, phases, _TIMES),
            **class_latencies(histograms, phases, tuple(CLASSES), _TIMES),
            **rates,
            **{name: metric for name, metric in of_classes.items() if metric is not None},
        }
        # The range of all times would hold any target that lies within: values decide on a running load.
        return {name: replace(one, low=None, high=None) for name, one in found.items()} if data.is_running else found

    def rules(self) -> Rules:
        """A path that its own load fills is what is measured: no thread's limit makes a latency wrong."""
        from leadline.analysis import rules
        from leadline.analysis.validity import Rules

        return Rules(
            findings=(rules.whole, rules.gateway_crossed, rules.journal_readable, rules.undisturbed),
            notes=(rules.shared_cpus, rules.undone, rules.even_clock, rules.clocks_compared),
        )

    def table(self, metrics: Mapping[str, Metric]) -> FigureTable:
        """The increase first, then the latency of each phase."""
        from leadline import quantities
        from leadline.report.figures import Figure, FigureTable

        phases = [
            Figure(f"latency_{phase}_{name}_us", f"{phase} {name}", quantities.microseconds)
            for phase, _ in PHASES
            for name in _TIMES
        ]
        rates = [
            Figure("bulk_up_bps", "up", quantities.bit_rate),
            Figure("bulk_down_bps", "down", quantities.bit_rate),
        ]
        return FigureTable(
            "latency added by load",
            Figure("latency_increase_us", "increase", quantities.microseconds),
            (*phases, *rates),
        )

    def time_tables(self, result: TestResult) -> list[RenderableType]:
        """None: each phase has its own line."""
        return []

    def figure_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """A line per phase, and bufferbloat in one sentence."""
        from leadline.kinds.load_latency.figures import summary_rows

        return summary_rows(result, [phase for phase, _ in PHASES], tuple(CLASSES))


_PROBE_TIMEOUT_MS = 5_000
"""A queue may hold a probe for seconds; one that is lost costs the phase this time."""

KIND = LoadLatency()
