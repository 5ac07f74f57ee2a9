"""Request and response, one outstanding per flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leadline.kinds.kind import Kind
from leadline.plan import options as o
from leadline.plan.options import Command, Option
from leadline.plan.workloads import RrTest

if TYPE_CHECKING:
    from leadline.analysis.flows import Flow
    from leadline.analysis.metrics import Histograms
    from leadline.analysis.model import Metric, Window
    from leadline.analysis.running_intervals import IntervalGrowth
    from leadline.analysis.test_data import TestData
    from leadline.analysis.test_spec import TestSpec
    from leadline.analysis.validity import Rules
    from leadline.analysis.window import RateColumn
    from leadline.contract.models import RrWorkload
    from leadline.report.figures import FigureTable
    from leadline.trial.workloads import Server

_TIMES = ("min", "mean", "p50", "p90", "p99", "p999", "max")


class Rr(Kind[RrTest]):
    """Each flow sends its next request when the answer to the last one is there."""

    name = "rr"
    model = RrTest
    metrics = ("transactions", "transactions_per_s", *(f"latency_{name}_us" for name in _TIMES))
    primary = "transactions_per_s"
    scaling = (("transactions_per_s", "1/s"), ("latency_p99_us", "us"))
    headline = ("latency_p50_us", "latency_p99_us")
    operation = "transaction"
    command = Command(
        "Measure the latency of request and response, one outstanding per flow.",
        "Example: leadline rr 192.0.2.7 --udp -l 64 --response 64 -d 10s",
        position=4,
        options=(
            o.HOST,
            o.DURATION,
            o.WARMUP,
            o.NUMBER,
            o.FLOWS,
            o.THREADS,
            Option(
                ("--udp",),
                "Over UDP instead of TCP (at least 40 bytes each way).",
                key="protocol",
                type=bool,
                default=False,
                value="udp",
            ),
            Option(
                ("-l", "--size"),
                "Request payload, bytes; the protocol's minimum unless given.",
                key="request",
                metavar="SIZE",
            ),
            Option(("--response",), "Response payload, bytes.", key="response", metavar="SIZE"),
            Option(
                ("--timeout",),
                "After this a transaction counts as an error; over TCP it ends its flow.",
                key="timeout",
                default="1s",
                metavar="TIME",
            ),
            *(*o.SESSION, o.INTERVAL, o.JSON, o.OUT, o.PERCENTILES, o.targets("latency_p99_us < 2000")),
        ),
    )

    def workload(self, test: RrTest, server: Server) -> RrWorkload:
        """The flows share the number of transactions."""
        from leadline.contract.models import RrWorkload

        return RrWorkload(
            target=server.target(test.ip),
            bind=server.bind,
            protocol=test.protocol,
            flows=test.flows,
            threads=test.threads,
            duration_ms=test.duration_ms,
            number=test.number,
            warmup_ms=test.warmup_ms,
            request_bytes=test.request_bytes,
            response_bytes=test.response_bytes,
            timeout_ms=test.timeout_ms,
            interval_ms=test.interval_ms,
        )

    def read_spec(self, test: Mapping[str, Any], common: TestSpec) -> TestSpec:
        """It counts answers."""
        from leadline.analysis.test_spec import asked_percentiles

        return replace(common, counts_units=True, asked=asked_percentiles(test, ("latency",)))

    def rate_columns(self, spec: TestSpec, flows: Sequence[Flow]) -> list[RateColumn]:
        """Transactions, then bits."""
        from leadline.analysis.window import throughput_column, units_column

        return [units_column("transactions_per_s", flows), throughput_column(flows)]

    def interval_values(self, spec: TestSpec, growth: IntervalGrowth) -> dict[str, float | None]:
        """Transactions and their bits."""
        from leadline.analysis.running_intervals import answers

        return answers("transactions_per_s", growth)

    def figures(
        self, data: TestData, flows: Sequence[Flow], steady: Window | None, histograms: Histograms
    ) -> dict[str, Metric]:
        """Transactions and their latency."""
        from leadline.analysis import metrics as m
        from leadline.analysis.model import Metric

        rates = m.window_rates(data.spec, flows, steady)
        return {
            "transactions": Metric(m.sum_of_flows(flows, m.received_units), "count"),
            "transactions_per_s": Metric(rates["transactions_per_s"], "1/s"),
            **m.times("latency", histograms.sample("latency"), _TIMES),
        }

    def rules(self) -> Rules:
        """The flows of a host share its number of transactions: what one leaves undone, no other takes up."""
        from leadline.analysis import rules

        return rules.rules_of(
            breaks=(
                rules.broken_off(
                    lambda data, flow: (
                        data.spec.number is not None and rules.operations_ended(data, flow) >= data.spec.number
                    )
                ),
            ),
            limits=(rules.busy_threads, rules.late_sends, rules.unsent_by_flows),
            required=(rules.receiver_known,),
        )

    def table(self, metrics: Mapping[str, Metric]) -> FigureTable:
        """Transactions first, then latencies."""
        from leadline.report import quantities
        from leadline.report.figures import Figure, FigureTable, latency_figures

        return FigureTable(
            "request-response",
            Figure("transactions_per_s", "transactions", quantities.per_second, capacity=True),
            latency_figures(),
        )


KIND = Rr()
