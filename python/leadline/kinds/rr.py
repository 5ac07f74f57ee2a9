"""The kind `rr`: request and response over kept or new connections, in a closed loop or at a rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from leadline.kinds.kind import Kind
from leadline.kinds.service_demand_rows import brief_demand_row, with_demand_line
from leadline.plan import options as o
from leadline.plan.dscp import Dscp
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
from leadline.plan.metric_specs import higher, lower, times
from leadline.plan.options import Command, Option
from leadline.plan.rate import PerSecond
from leadline.plan.service_demand_metrics import service_demand_specs
from leadline.plan.spread_starts import SpreadTest

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.analysis.flows import Flow
    from leadline.analysis.metrics import Histograms
    from leadline.analysis.model import Metric, TestResult, Window
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
_PARTS = ("p50", "p99", "max")
"""The statistics of times that are parts of the latency."""
_MOST_OUTSTANDING = 65_536


class RrTest(SpreadTest):
    """Request and response: a closed loop of `outstanding` transactions per flow, or an open loop if `rate` is set."""

    amounts = ("flows", "number", "rate_per_s")
    rates = ("rate_per_s",)
    is_divisible = True

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
    connect: bool = False
    """A new connection for each transaction, or over UDP a new source port; the latency includes the connect."""
    outstanding: Count = 1
    """Transactions that each flow may have outstanding."""
    rate_per_s: PerSecond | None = Field(default=None, validation_alias="rate")
    """Transactions per second and client, shared evenly by its flows, due whether or not the answers keep up. Null: a
    closed loop."""
    busy_poll: bool = False
    """Whether the client polls without sleeping, which takes a whole CPU per thread."""
    dscp: Dscp | None = None
    """Code point of requests and answers; null: the hosts' default. Not with `connect`."""
    percentiles: Items[Percentile] = ()
    """Percentiles of the latency to report in addition to the usual ones: 25, 99.95 or p9995."""

    @model_validator(mode="before")
    @classmethod
    def _least_datagrams(cls, given: object) -> object:
        """Set sizes that are not given, over UDP, to the minimum that carries the measurement header."""
        if not isinstance(given, dict) or given.get("protocol") != "udp":
            return given
        missing = {
            key: SMALLEST_UDP_PAYLOAD_BYTES
            for key in ("request", "response")
            if key not in given and f"{key}_bytes" not in given
        }
        return {**given, **missing}

    @rule
    def _outstanding_are_bounded(self) -> Iterator[PydanticCustomError]:
        if self.flows * self.outstanding > _MOST_OUTSTANDING:
            yield validation_error(
                f"{self.flows} flows with {self.outstanding} transactions each are too many; at most"
                f" {_MOST_OUTSTANDING:,} in all",
                at=("outstanding",),
            )

    @rule
    def _kept_sockets_are_marked(self) -> Iterator[PydanticCustomError]:
        if self.connect and self.dscp is not None:
            yield validation_error("dscp and connect exclude each other", at=("dscp",))

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
    """The kind `rr`: each flow sends its next request when an answer has arrived, or when it is due."""

    name = "rr"
    model = RrTest
    metrics = (
        higher("transactions", "transactions that were answered"),
        higher("transactions_per_s", "answered transactions per second inside the steady window"),
        *times("latency", _TIMES, "us", "the time from sent to answered; at a rate, from due to answered"),
        lower("unsent", "requests that were due and were not sent; only at a rate"),
        lower("due_while_busy", "requests that waited because as many as allowed were outstanding; only at a rate"),
        *times("service", _PARTS, "us", "the time from sent to answered; only at a rate"),
        higher("connections_opened", "connections, or source ports, that were used; only with connect"),
        *times("connect", _PARTS, "us", "the time to connect; only with connect over TCP"),
        *service_demand_specs("transaction"),
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
        RrTest,
        "Measure request and response: latency and transaction rate.",
        "Example: leadline rr\n\n    leadline rr 192.0.2.7 --udp -l 64 --response 64 -d 10s",
        position=4,
        rows=(
            *(o.HOST, o.DURATION, o.WARMUP, o.NUMBER, o.FLOWS, o.THREADS),
            Option(
                ("--udp",),
                f"Use UDP instead of TCP (at least {SMALLEST_UDP_PAYLOAD_BYTES} bytes in each direction).",
                key="protocol",
                value="udp",
            ),
            Option(
                ("-l", "--size"),
                "Request payload in bytes. Default: the protocol's minimum.",
                key="request",
                default=None,
            ),
            Option(
                ("--response",),
                "Response payload in bytes. Default: the protocol's minimum.",
                key="response",
                default=None,
            ),
            Option(
                ("--connect",),
                "Open a connection for each transaction; with --udp, use a new source port.",
                key="connect",
            ),
            Option(("--outstanding",), "Transactions that each flow may have outstanding.", key="outstanding"),
            Option(
                ("--rate",),
                "Transactions per second of all flows, due by schedule: 1000, 20k. Default: a closed loop.",
                key="rate",
                metavar="RATE",
            ),
            Option(
                ("--busy-poll",), "Poll without sleeping: lower latency for a whole CPU per thread.", key="busy_poll"
            ),
            Option(
                ("--dscp",),
                "Code point of requests and answers: 0 to 63, or a class such as EF or CS1.",
                key="dscp",
                metavar="CLASS",
            ),
            Option(
                ("--timeout",),
                "A transaction without an answer after this time counts as an error; over TCP it ends its flow.",
                key="timeout",
            ),
            *(
                *o.SESSION,
                *o.PRECISION,
                o.INTERVAL,
                o.JSON,
                o.VERBOSE,
                o.OUT,
                o.PERCENTILES,
                o.targets("latency_p99_us < 2000"),
            ),
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
            connect=test.connect,
            outstanding=test.outstanding,
            rate_per_s=None if test.rate_per_s is None else test.rate_per_s / test.flows,
            busy_poll=test.busy_poll,
            dscp=test.dscp,
        )

    def read_spec(self, test: Mapping[str, Any], common: TestSpec) -> TestSpec:
        """rr counts answers. A plan has a client's rate, a workload a flow's."""
        from leadline.analysis.test_spec import asked_percentiles

        flows = 1.0 if "target" in test else float(test.get("flows") or 1)
        gap_s = flows / float(test["rate_per_s"]) if test.get("rate_per_s") else None
        return replace(
            common,
            counts_units=True,
            over_udp=test.get("protocol") == "udp",
            send_gap_s=gap_s,
            connections=int(test.get("flows") or 1) * int(test.get("outstanding") or 1),
            asked=asked_percentiles(test, ("latency", "service")),
        )

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
        from leadline.analysis.service_demand import service_demand

        rates = m.window_rates(data.spec, flows, steady)
        return {
            "transactions": Metric(m.sum_of_flows(flows, m.received_units), "count"),
            "transactions_per_s": Metric(rates["transactions_per_s"], "1/s"),
            **m.times("latency", histograms.sample("latency"), _TIMES),
            **(self._paced_figures(data, histograms) if data.spec.paced else {}),
            **self._connect_figures(data, histograms),
            **service_demand(data, flows, "transaction"),
        }

    def _paced_figures(self, data: TestData, histograms: Histograms) -> dict[str, Metric]:
        """What became of the schedule, and the time of a transaction without its wait."""
        from leadline.analysis import metrics as m
        from leadline.analysis.model import Metric

        unsent, busy = m.counter(data, "unsent"), m.counter(data, "due_while_busy")
        return {
            "unsent": Metric(unsent, "count"),
            "due_while_busy": Metric(None if unsent is None else busy or 0, "count"),
            **m.times("service", histograms.sample("service"), _PARTS),
        }

    def _connect_figures(self, data: TestData, histograms: Histograms) -> dict[str, Metric]:
        """The connections of transactions that had one each."""
        from leadline.analysis import metrics as m
        from leadline.analysis.model import Metric

        opened, connects = m.counter(data, "connections_opened"), histograms.sample("connect")
        return {
            **({} if opened is None else {"connections_opened": Metric(opened, "count")}),
            **(m.times("connect", connects, _PARTS) if connects.count else {}),
        }

    def rules(self) -> Rules:
        """The flows of a host share its number of transactions; no flow takes over the rest of one that failed."""
        from leadline.analysis import rules

        return rules.rules_of(
            breaks=(
                rules.broken_off(
                    lambda data, flow: (
                        (number := data.spec_of(flow.key.host).number) is not None
                        and rules.operations_ended(data, flow) >= number
                    )
                ),
            ),
            limits=(rules.busy_threads, rules.late_sends, rules.unsent_by_flows),
            required=(rules.receiver_known,),
            notes=(rules.idle_wake_ups(*self.woken),),
        )

    def figure_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The times that are parts of the latency have one row each."""
        from leadline import quantities
        from leadline.report.measurement import figure_rows

        parts = {
            name: {part: metric for part in _PARTS if (metric := result.metrics.get(f"{name}_{part}_us")) is not None}
            for name in ("connect", "service")
        }
        named = {f"{name}_{part}_us" for name, found in parts.items() for part in found}
        others = {name: metric for name, metric in result.metrics.items() if name not in named}
        rest = replace(result, metrics=others)
        rows = with_demand_line(rest, "transaction", lambda shown: figure_rows(shown, self.figure_names))
        return rows + [
            (name, ", ".join(f"{part} {quantities.microseconds(metric.value)}" for part, metric in found.items()))
            for name, found in parts.items()
            if found
        ]

    def brief_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The transactions, those that could not be sent, the latency, and the service demand."""
        from leadline import quantities
        from leadline.report.measurement import latency_row

        counts = [(name, result.metrics[name].value) for name in ("transactions", "unsent") if name in result.metrics]
        return [
            *((name, quantities.count(value)) for name, value in counts if value),
            *(row for times in ("latency", "service", "connect") for row in latency_row(result.metrics, times)),
            *brief_demand_row(result.metrics, "transaction"),
        ]

    def brief_tables(self, result: TestResult) -> list[RenderableType]:
        """None: a row has the latency."""
        return []

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
