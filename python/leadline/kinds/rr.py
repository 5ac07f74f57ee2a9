"""The kind `rr`: request and response, one outstanding per flow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from leadline.kinds.kind import Kind
from leadline.plan import options as o
from leadline.plan.field_types import (
    LARGEST_UDP_PAYLOAD_BYTES,
    SMALLEST_UDP_PAYLOAD_BYTES,
    Count,
    DurationMs,
    Items,
    Percentile,
    SizeBytes,
    Total,
    rule,
    validation_error,
    within,
)
from leadline.plan.ladder import Chain, Rung
from leadline.plan.metric_specs import higher, times
from leadline.plan.options import Command, Option
from leadline.plan.spread_starts import SpreadTest

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

_Message = Annotated[SizeBytes, within(1, 16 * 2**20, " bytes")]
_TIMES = ("min", "mean", "p50", "p90", "p99", "p999", "max")


class RrTest(SpreadTest):
    """Request and response, one outstanding per flow."""

    kind: Literal["rr"] = "rr"
    protocol: Literal["tcp", "udp"] = "tcp"
    """Transport protocol."""
    flows: Count = 1
    """Number of connections or sockets per client."""
    request_bytes: _Message = Field(default=1, validation_alias="request")
    """Size of the request payload."""
    response_bytes: _Message = Field(default=1, validation_alias="response")
    """Size of the response payload."""
    number: Total | None = None
    """Transactions per client; the test ends after them, even before its duration."""
    timeout_ms: DurationMs = Field(default=1_000, validation_alias="timeout")
    """A transaction without an answer after this time counts as an error."""
    percentiles: Items[Percentile] = ()
    """Percentiles of the latency to report in addition to the usual ones: 25, 99.95 or p9995."""

    @model_validator(mode="before")
    @classmethod
    def _least_datagrams(cls, given: object) -> object:
        """Over UDP, sizes default to the minimum that carries the measurement header."""
        if not isinstance(given, dict) or given.get("protocol") != "udp":
            return given
        missing = {
            key: SMALLEST_UDP_PAYLOAD_BYTES
            for key in ("request", "response")
            if key not in given and f"{key}_bytes" not in given
        }
        return {**given, **missing}

    @rule
    def _datagrams_carry_it(self) -> Iterator[PydanticCustomError]:
        for key, size in (("request", self.request_bytes), ("response", self.response_bytes)):
            if self.protocol == "udp" and size < SMALLEST_UDP_PAYLOAD_BYTES:
                yield validation_error(
                    f"{size} is too small for a measured datagram; at least {SMALLEST_UDP_PAYLOAD_BYTES} bytes",
                    at=(key,),
                )
            if self.protocol == "udp" and size > LARGEST_UDP_PAYLOAD_BYTES:
                yield validation_error(
                    f"{size} is too large for a datagram; at most {LARGEST_UDP_PAYLOAD_BYTES} bytes", at=(key,)
                )


def _rung(name: str, title: str, height: int, **parameters: str) -> Rung:
    sizes = {"request": 100, "response": 100}
    return Rung(name, "rr", title, Chain.REQUESTS, height, "transactions_per_s", {**parameters, **sizes})


class Rr(Kind[RrTest]):
    """The kind `rr`: each flow sends its next request when the previous answer has arrived."""

    name = "rr"
    model = RrTest
    metrics = (
        higher("transactions", "transactions that were answered"),
        higher("transactions_per_s", "answered transactions per second inside the steady window"),
        *times("latency", _TIMES, "us", "the time from sent to answered"),
    )
    primary = "transactions_per_s"
    decisive = ("latency_p50_us", "latency_p99_us")
    verb, counted = "completes", "transactions"
    delay = ("latency_p99_us", "p99 of the latency")
    scaling = (("transactions_per_s", "1/s"), ("latency_p99_us", "us"))
    headline = ("latency_p50_us", "latency_p99_us")
    woken = ("server", "client")
    operation = "transaction"
    rungs = (
        # About the size of a small HTTP request and of its answer, so that HTTP differs by what it does, not by bytes.
        _rung("rr-udp", "UDP requests", 10, protocol="udp"),
        _rung("rr-tcp", "TCP requests", 20, protocol="tcp"),
    )
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
                "Use UDP instead of TCP (at least 40 bytes in each direction).",
                key="protocol",
                type=bool,
                default=False,
                value="udp",
            ),
            Option(
                ("-l", "--size"),
                "Request payload in bytes. Default: the protocol's minimum.",
                key="request",
                metavar="SIZE",
            ),
            Option(("--response",), "Response payload in bytes.", key="response", metavar="SIZE"),
            Option(
                ("--timeout",),
                "A transaction without an answer after this time counts as an error; over TCP it ends its flow.",
                key="timeout",
                default="1s",
                metavar="TIME",
            ),
            *(*o.SESSION, *o.PRECISION, o.INTERVAL, o.JSON, o.OUT, o.PERCENTILES, o.targets("latency_p99_us < 2000")),
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
        """rr counts answers."""
        from leadline.analysis.test_spec import asked_percentiles

        return replace(common, counts_units=True, asked=asked_percentiles(test, ("latency",)))

    def rate_columns(self, spec: TestSpec, flows: Sequence[Flow]) -> list[RateColumn]:
        """Transactions per second, then bits per second."""
        from leadline.analysis.window import throughput_column, units_column

        return [units_column("transactions_per_s", flows), throughput_column(flows)]

    def interval_values(self, spec: TestSpec, growth: IntervalGrowth) -> dict[str, float | None]:
        """Transactions per second and their bits per second."""
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
        """The flows of a host share its number of transactions; no flow takes over the rest of one that failed."""
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
            notes=(rules.idle_wake_ups(*self.woken),),
        )

    def table(self, metrics: Mapping[str, Metric]) -> FigureTable:
        """Transactions first, then latencies."""
        from leadline import quantities
        from leadline.report.figures import Figure, FigureTable, latency_figures

        return FigureTable(
            "request-response",
            Figure("transactions_per_s", "transactions", quantities.per_second),
            latency_figures(),
        )


KIND = Rr()
