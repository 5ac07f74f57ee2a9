"""The kind `tcp`: bulk TCP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from pydantic_core import PydanticCustomError

from leadline.kinds.iperf3_peer import iperf3_requested, peer_conflicts
from leadline.kinds.kind import Kind
from leadline.kinds.second_tools import fleet_conflicts, iperf3_errors, iperf3_run
from leadline.kinds.tcp_figures import METRICS, brief_rows, figure_rows, kernel_figures
from leadline.kinds.tcp_options import OPTIONS, TcpOptions, stream_options
from leadline.plan import options as o
from leadline.plan.base_test import BaseTest, Conflict, carried_conflicts
from leadline.plan.field_types import Count, RateBps, SizeBytes, rule, within
from leadline.plan.ladder import Chain, Packets, Rung
from leadline.plan.metric_specs import MetricSpec
from leadline.plan.options import Command, Option
from leadline.plan.service_demand_metrics import service_demand_specs
from leadline.plan.spread_starts import SpreadTest, spread_conflicts

if TYPE_CHECKING:
    from leadline.analysis.flows import Flow
    from leadline.analysis.iperf3_document import Iperf3Requested
    from leadline.analysis.metrics import Histograms
    from leadline.analysis.model import Metric, TestResult, Window
    from leadline.analysis.running_intervals import IntervalGrowth
    from leadline.analysis.test_data import TestData
    from leadline.analysis.test_spec import TestSpec
    from leadline.analysis.validity import Rules
    from leadline.contract.models import TcpWorkload, TunnelWorkload
    from leadline.report.figures import FigureTable
    from leadline.sut.model import FleetAccess
    from leadline.trial.second_tools import ToolRun
    from leadline.trial.workloads import Server

_PACED_BLOCK_S = 0.01
"""Time limit of a paced block at its rate."""


class TcpTest(TcpOptions, SpreadTest):
    """Bulk TCP."""

    amounts = ("flows", "rate_bps", "pacing_bps", "total_bytes")
    rates = ("rate_bps",)
    is_divisible = True

    kind: Literal["tcp"] = "tcp"
    flows: Count = 1
    """Number of connections per client."""
    direction: Literal["up", "down", "both"] = "up"
    """Client to server, server to client, or both at the same time."""
    block_bytes: Annotated[SizeBytes, within(1, 64 * 2**20, " bytes")] = Field(
        default=128 * 1024, validation_alias="block"
    )
    """Bytes per write and read."""
    rate_bps: RateBps | None = Field(default=None, validation_alias="rate")
    """Payload bits per second and client, shared evenly by its flows. Null: as fast as possible."""
    congestion: str | None = None
    """Congestion control, by the kernel's name; null: the host's default."""
    cross_check: Literal["iperf3"] | None = None
    """A second tool that repeats the test, on the same hosts; null: none."""
    peer: Literal["leadline", "iperf3"] = "leadline"
    """The server's program. A real `iperf3 -s` serves one client at a time and reports totals only."""

    @property
    def second_tool(self) -> str | None:
        """The tool of the cross-check."""
        return self.cross_check

    @rule
    def _second_tool_fits(self) -> Iterator[PydanticCustomError]:
        yield from iperf3_errors(self, self.direction)

    def fleet_conflicts(self, clients: int) -> Iterator[Conflict]:
        """Find conflicts with a fleet: all clients take part with one flow each, at TCP's own pace."""
        yield from carried_conflicts(self, self.flows)
        yield from spread_conflicts(self)
        yield from fleet_conflicts(self)
        yield from peer_conflicts(self.peer)
        given = self.model_dump(exclude_defaults=True)
        for name in ("rate_bps", "congestion", *TcpOptions.model_fields.keys() - BaseTest.model_fields.keys()):
            if name in given and name != "line_rate_bps":
                key = str(type(self).model_fields[name].validation_alias or name)
                yield key, "TCP in a fleet's tunnels sends as fast as its congestion control allows", None


class Tcp(Kind[TcpTest]):
    """The kind `tcp`: one stream of bytes per flow, as fast as possible or at a rate."""

    name = "tcp"
    model = TcpTest
    metrics: tuple[MetricSpec, ...] = (*METRICS, *service_demand_specs("byte"))
    scaling = (("throughput_bps", "bit/s"),)
    headline = ("retransmits", "rtt_mean_us")
    operation = "byte"
    rungs = (Rung("tcp", "tcp", "TCP", Chain.PAYLOAD, 20, "throughput_bps", {"direction": "down"}),)
    command = Command(
        TcpTest,
        "Measure TCP throughput to or from a server.",
        "Example: leadline tcp\n\n    leadline tcp 192.0.2.7 -P 4 -d 10s --warmup 1s",
        position=2,
        rows=(
            *(o.HOST, o.DURATION, o.WARMUP, o.FLOWS, o.THREADS, o.REVERSE, o.BIDIRECTIONAL),
            Option(("--rate",), "Payload bits per second: 100mbit. Default: as fast as possible.", key="rate"),
            Option(("-l", "--size"), "Bytes per write and read call.", key="block"),
            *OPTIONS,
            Option(("--congestion",), "Congestion control, by the kernel's name.", key="congestion", metavar="NAME"),
            *(
                o.PEER,
                *o.LOGIN,
                *o.IPERF3,
                *o.SESSION,
                o.cross_check(TcpTest),
                *o.PRECISION,
                o.INTERVAL,
                o.JSON,
                o.VERBOSE,
            ),
            *(o.FORMAT, o.OUT, o.targets("throughput_bps > 100mbit")),
        ),
    )

    def workload(self, test: TcpTest, server: Server) -> TcpWorkload:
        """Each flow gets an equal share of the rate."""
        from leadline.contract.models import TcpWorkload

        return TcpWorkload(
            target=server.target(test.ip),
            bind=server.bind,
            flows=test.flows,
            threads=test.threads,
            direction=test.direction,
            duration_ms=test.duration_ms,
            warmup_ms=test.warmup_ms,
            block_bytes=test.block_bytes,
            rate_bps=None if test.rate_bps is None else round(test.rate_bps / test.flows),
            congestion=test.congestion,
            interval_ms=test.interval_ms,
            peer=test.peer,
            options=stream_options(test, test.flows),
            payload_file=test.payload_file,
        )

    def iperf3_request(self, workload: TcpWorkload) -> Iperf3Requested:
        """A block is one write."""
        options = workload.options
        return iperf3_requested(
            workload,
            "TCP",
            workload.block_bytes,
            workload.rate_bps,
            dscp=None if options is None else options.dscp,
            total_bytes=None if options is None else options.total_bytes,
            pacing_bps=None if options is None else options.pacing_bps,
        )

    def second_tool_run(self, test: TcpTest, server: Server, port: int) -> ToolRun:
        """iperf3, with the same flows, blocks, rate and congestion control."""
        options = ["-l", str(test.block_bytes)]
        if test.rate_bps is not None:
            options += ["-b", str(round(test.rate_bps / test.flows))]
        if test.congestion is not None:
            options += ["-C", test.congestion]
        return iperf3_run(test, server, port, flows=test.flows, direction=test.direction, options=options)

    def fleet_workload(self, test: TcpTest, access: FleetAccess, clients: int, server: str) -> TunnelWorkload:
        """One stream per client."""
        from leadline.kinds.tunnel.gateway_fleet import carried
        from leadline.kinds.tunnel.model import TunnelLoad

        load = TunnelLoad(kind="tcp", direction=test.direction, duration_ms=test.duration_ms)
        return carried(test, load, access, clients, server)

    def read_spec(self, test: Mapping[str, Any], common: TestSpec) -> TestSpec:
        """Convert the rate: a plan has a client's rate, a workload a flow's."""
        line_bps, pacing_bps = test.get("line_rate_bps"), test.get("pacing_bps")
        common = replace(common, line_bps=line_bps, pacing_bps=pacing_bps, asked_bps=test.get("rate_bps"))
        if not test.get("rate_bps"):
            return common
        bits_per_s = float(test["rate_bps"]) / float(test.get("flows") or 1)
        block_bytes = min(float(test.get("block_bytes") or 128 * 1024), max(1.0, bits_per_s / 8.0 * _PACED_BLOCK_S))
        return replace(common, send_gap_s=8.0 * block_bytes / bits_per_s)

    def interval_values(self, spec: TestSpec, growth: IntervalGrowth) -> dict[str, float | None]:
        """Throughput, retransmits and round-trip time."""
        from leadline.analysis.running_intervals import throughput

        return {
            **throughput(spec, growth),
            "retransmits": growth.both_sides("retransmits"),
            "rtt_mean_us": growth.round_trip_us,
        }

    def figures(
        self, data: TestData, flows: Sequence[Flow], steady: Window | None, histograms: Histograms
    ) -> dict[str, Metric]:
        """Throughput, and the kernels' figures of the connections."""
        from leadline.analysis import metrics as m
        from leadline.analysis.model import Metric

        round_trips = [us for flow in flows if flow.report and (us := flow.report.get("rtt_mean_us"))]
        rates = m.window_rates(data.spec, flows, steady)
        throughputs = m.throughput(data.spec, flows, steady, rates)
        goodput = {name: metric.value for name, metric in throughputs.items()}
        return {
            **throughputs,
            "retransmits": m.reported(flows, "retransmits"),
            "rtt_mean_us": Metric(sum(round_trips) / len(round_trips) if round_trips else None, "us"),
            "sent_bytes": Metric(m.sum_of_flows(flows, lambda flow: flow.sent_bytes), "bytes"),
            "received_bytes": Metric(m.sum_of_flows(flows, m.received_bytes), "bytes"),
            **kernel_figures(data, flows, goodput, stream_share(Packets(data.link_mtu_bytes, 0))),
        }

    def operations(self, spec: TestSpec, flows: Sequence[Flow], clients: int) -> float | None:
        """Bytes that were sent."""
        from leadline.analysis.metrics import sum_of_flows

        return sum_of_flows(flows, lambda flow: flow.sent_bytes)

    def payload_share(self, test: Mapping[str, Any], packets: Packets) -> float:
        """Full segments."""
        return stream_share(packets)

    def rules(self) -> Rules:
        """The server generates the downstream load."""
        from leadline.analysis import rules

        return rules.rules_of(
            breaks=(rules.broken_off(),),
            limits=(rules.busy_threads_by_direction, rules.late_sends, rules.unsent_by_flows),
            required=(rules.receiver_known,),
        )

    def figure_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """What the kernels of both ends say, on few lines."""
        return figure_rows(result)

    def brief_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """What was sent, how often again, and the round-trip time."""
        return brief_rows(result)

    def table(self, metrics: Mapping[str, Metric]) -> FigureTable:
        """Throughput first."""
        from leadline import quantities
        from leadline.report.figures import Figure, FigureTable

        return FigureTable(
            "TCP throughput",
            Figure("throughput_bps", "throughput", quantities.bit_rate),
            (
                Figure("retransmits", "retransmits", quantities.count),
                Figure("rtt_mean_us", "mean RTT", quantities.microseconds),
            ),
        )


def stream_share(packets: Packets) -> float:
    """The share of a TCP stream in the bytes of its frames: full segments, with timestamps."""
    payload = packets.largest_bytes - packets.ip_header_bytes - _TCP_HEADER_BYTES
    return payload / (packets.largest_bytes + packets.frame_overhead_bytes)


_TCP_HEADER_BYTES = 20 + 12

KIND = Tcp()
