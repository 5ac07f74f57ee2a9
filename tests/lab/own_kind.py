"""`leadline` with one more kind of test, which this file adds: a pulse is a small UDP request with its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from leadline import quantities
from leadline.analysis import metrics as m
from leadline.analysis.flows import Flow
from leadline.analysis.model import Metric, Window
from leadline.analysis.running_intervals import IntervalGrowth, answers
from leadline.analysis.test_data import TestData
from leadline.analysis.test_spec import TestSpec
from leadline.analysis.window import RateColumn, throughput_column, units_column
from leadline.contract.models import RrWorkload
from leadline.kinds.kind import Kind
from leadline.plan import options as o
from leadline.plan.base_test import BaseTest
from leadline.plan.field_types import Total, UdpPayload
from leadline.plan.metric_specs import higher, times
from leadline.plan.options import Command, Option
from leadline.registry import KINDS
from leadline.report.figures import Figure, FigureTable
from leadline.trial.workloads import Server

_TIMES = ("p50", "p99", "max")


class PulseTest(BaseTest):
    """Pulses, one after another."""

    kind: Literal["pulse"] = "pulse"
    number: Total | None = None
    """Pulses per client, after which the test ends before its duration does."""
    size_bytes: UdpPayload = Field(default=64, validation_alias="size")
    """UDP payload of each pulse and of its answer."""


class Pulse(Kind[PulseTest]):
    """One pulse is outstanding at a time."""

    name = "pulse"
    model = PulseTest
    metrics = (
        higher("pulses", "pulses that came back"),
        higher("pulses_per_s", "pulses that came back per second"),
        *times("latency", _TIMES, "us", "the time from sent to answered"),
    )
    primary = "pulses_per_s"
    scaling = (("pulses_per_s", "1/s"),)
    headline = ("latency_p50_us",)
    operation = "pulse"
    command = Command(
        PulseTest,
        "Send pulses to a server.",
        "Example: leadline pulse 192.0.2.7 -n 100",
        position=9,
        rows=(
            *(o.HOST, o.DURATION, o.WARMUP, o.NUMBER, o.THREADS),
            Option(("-l", "--size"), "UDP payload of each pulse, bytes.", key="size"),
            *(*o.SESSION, o.INTERVAL, o.JSON, o.OUT, o.targets("latency_p99_us < 2000")),
        ),
    )

    def workload(self, test: PulseTest, server: Server) -> RrWorkload:
        return RrWorkload(
            target=server.target(test.ip),
            bind=server.bind,
            protocol="udp",
            flows=1,
            threads=test.threads,
            duration_ms=test.duration_ms,
            number=test.number,
            warmup_ms=test.warmup_ms,
            request_bytes=test.size_bytes,
            response_bytes=test.size_bytes,
            timeout_ms=1000,
            interval_ms=test.interval_ms,
        )

    def read_spec(self, test: Mapping[str, Any], common: TestSpec) -> TestSpec:
        return replace(common, counts_units=True)

    def rate_columns(self, spec: TestSpec, flows: Sequence[Flow]) -> list[RateColumn]:
        return [units_column("pulses_per_s", flows), throughput_column(flows)]

    def interval_values(self, spec: TestSpec, growth: IntervalGrowth) -> dict[str, float | None]:
        return answers("pulses_per_s", growth)

    def figures(
        self, data: TestData, flows: Sequence[Flow], steady: Window | None, histograms: m.Histograms
    ) -> dict[str, Metric]:
        rates = m.window_rates(data.spec, flows, steady)
        return {
            "pulses": Metric(m.sum_of_flows(flows, m.received_units), "count"),
            "pulses_per_s": Metric(rates["pulses_per_s"], "1/s"),
            **m.times("latency", histograms.sample("latency"), _TIMES),
        }

    def table(self, metrics: Mapping[str, Metric]) -> FigureTable:
        return FigureTable(
            "pulses that came back",
            Figure("pulses_per_s", "pulses", quantities.per_second),
            (Figure("latency_p50_us", "p50", quantities.microseconds),),
        )


if __name__ == "__main__":
    with KINDS.added("pulse", Pulse()):
        # The commands are made when this is imported.
        from leadline.cli.app import main

        main()
