"""The kind `udp`: paced, numbered datagrams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from leadline.errors import InputError
from leadline.kinds.iperf3_peer import iperf3_requested, peer_conflicts
from leadline.kinds.kind import Kind
from leadline.kinds.second_tools import fleet_conflicts, iperf3_errors, iperf3_run
from leadline.kinds.service_demand_rows import brief_demand_row, with_demand_line
from leadline.plan import options as o
from leadline.plan.base_test import Conflict, carried_conflicts
from leadline.plan.dscp import Dscp
from leadline.plan.field_types import (
    LARGEST_UDP_PAYLOAD_BYTES,
    SMALLEST_UDP_PAYLOAD_BYTES,
    Count,
    RateBps,
    SizeBytes,
    Total,
    rule,
    validation_error,
    within,
)
from leadline.plan.frame_mix import (
    SMALLEST_PAYLOAD_BYTES,
    FrameMix,
    frame_payload,
    is_mix,
    mean_payload,
    smallest_frame,
)
from leadline.plan.ladder import Chain, Packets, Rung
from leadline.plan.metric_specs import higher, lower, neither
from leadline.plan.options import Command, Option
from leadline.plan.portions import Portion
from leadline.plan.rate_search import MAX_CONDITIONS, RateSearch, expected_ms, search_errors
from leadline.plan.service_demand_metrics import service_demand_specs
from leadline.plan.spread_starts import SpreadTest, spread_conflicts
from leadline.quantities import rounded_share

if TYPE_CHECKING:
    from leadline.analysis.capacity import Conditions
    from leadline.analysis.flows import Flow
    from leadline.analysis.iperf3_document import Iperf3Requested
    from leadline.analysis.metrics import Histograms
    from leadline.analysis.model import Metric, Reason, TestResult, Window
    from leadline.analysis.running_intervals import IntervalGrowth
    from leadline.analysis.search_findings import Trial
    from leadline.analysis.test_data import TestData
    from leadline.analysis.test_spec import TestSpec
    from leadline.analysis.validity import Evidence, Finding, Rules
    from leadline.analysis.window import RateColumn
    from leadline.contract.models import TunnelWorkload, UdpWorkload
    from leadline.report.figures import FigureTable
    from leadline.sut.model import FleetAccess
    from leadline.trial.second_tools import ToolRun
    from leadline.trial.workloads import PhasedWorkload, Server

_DATAGRAMS: Mapping[str, Any] = {"packet": 1372, "direction": "down"}
_UDP_HEADER_BYTES = 8
_DEFAULT_BYTES = 1400
_Payload = Annotated[
    SizeBytes,
    within(SMALLEST_PAYLOAD_BYTES, LARGEST_UDP_PAYLOAD_BYTES, " bytes", "by the short measurement header and by UDP"),
]
_PUSHBACK_SHARE = 0.01
"""Share of sends that the host's own socket refuses. Below one percent, a queue is full only now and then."""


class UdpTest(SpreadTest):
    """Paced, numbered datagrams. The receiver counts loss, order and jitter."""

    amounts = ("flows", "rate_bps", "number")
    rates = ("rate_bps",)
    is_divisible = True

    kind: Literal["udp"] = "udp"
    flows: Count = 1
    """Number of sockets per client."""
    direction: Literal["up", "down", "both"] = "up"
    """Client to server, server to client, or both at the same time."""
    rate_bps: RateBps | None = Field(default=None, validation_alias="rate")
    """Bits of UDP payload per second and client, shared evenly by its flows. Null: as fast as possible."""
    packet_bytes: _Payload = Field(default=_DEFAULT_BYTES, validation_alias="packet")
    """UDP payload of each datagram."""
    size: FrameMix | None = None
    """Ethernet frame sizes in turn, FCS included (RFC 6985), each with its count in a round, instead of `packet`;
    `imix` is {64: 7, 594: 4, 1518: 1}."""
    number: Total | None = None
    """Datagrams per flow; the flow ends after them, even before its duration. With `split`, those of all clients."""
    search: RateSearch | None = None
    """Search for the highest rate that holds; `duration` is then the length of the deciding trials."""
    cross_check: Literal["iperf3"] | None = None
    """A second tool that repeats the test, on the same hosts; null: none."""
    peer: Literal["leadline", "iperf3"] = "leadline"
    """The server's program. A real `iperf3 -s` serves one client at a time and reports totals only."""
    gso: bool | None = None
    """Whether datagrams pass the kernel in batches (UDP_SEGMENT, UDP_GRO). Null: without a rate they do; with one,
    batches would be bursts."""
    dscp: Dscp | None = None
    """Code point of the datagrams: 0 to 63, or a class such as EF, CS1 or AF41. Null: the host's default."""
    window_bytes: Annotated[SizeBytes, within(1024, 2**30, " bytes")] | None = Field(
        default=None, validation_alias="window"
    )
    """Size of the send and of the receive buffer on both ends (SO_SNDBUF, SO_RCVBUF). Null: up to 4 MiB, as the hosts
    allow."""

    @model_validator(mode="before")
    @classmethod
    def _mix_by_name(cls, given: Any) -> Any:
        """`packet: imix` is `size: imix`."""
        if not isinstance(given, dict) or not is_mix(given.get("packet")) or "size" in given:
            return given
        return {**{key: value for key, value in given.items() if key != "packet"}, "size": given["packet"]}

    def mean_payload(self, ip: int | None = None) -> float:
        """The mean UDP payload of its datagrams over an IP version; by default, the load's own."""
        return self.packet_bytes if self.size is None else mean_payload(self.size, ip or self.ip)

    @property
    def rate_units(self) -> Mapping[str, int]:
        """A rate of whole datagrams per second is shared in whole datagrams per second."""
        bits = 8 * self.mean_payload()
        whole = bits == int(bits) and self.rate_bps is not None and self.rate_bps % int(bits) == 0
        return {"rate_bps": int(bits)} if whole else {}

    def dealt(self, portion: Portion, totals: frozenset[str]) -> Self:
        """The test of one host. A number that is no total is that of each flow."""
        own = super().dealt(portion, totals)
        return own if "number" in totals else own.model_copy(update={"number": self.number})

    @property
    def second_tool(self) -> str | None:
        """The tool of the cross-check."""
        return self.cross_check

    @property
    def searched(self) -> RateSearch | None:
        """The search, if there is one."""
        return self.search

    @property
    def expected_ms(self) -> int:
        """A search takes several trials."""
        return self.duration_ms if self.search is None else expected_ms(self.duration_ms)

    @rule
    def _second_tool_fits(self) -> Iterator[PydanticCustomError]:
        yield from iperf3_errors(self, self.direction, self.number)
        if self.cross_check is not None and self.size is not None:
            yield validation_error("iperf3 has no mix of sizes", at=("cross_check",), hint="leave out size")
        if self.cross_check is not None and self.rate_bps is None and self.search is None:
            yield validation_error(
                "without a rate the two tools do not offer the same load", at=("cross_check",), hint="set rate"
            )

    @rule
    def _options_fit_the_peer(self) -> Iterator[PydanticCustomError]:
        for key, value in (("gso", self.gso), ("size", self.size)):
            if value is not None and self.peer == "iperf3":
                yield validation_error(
                    f"{key} is for Leadline's own server", at=(key,), hint="leave it out, or the peer"
                )

    @rule
    def _size_fits(self) -> Iterator[PydanticCustomError]:
        if self.size is None:
            return
        if "packet_bytes" in self.model_fields_set:
            yield validation_error("size and packet exclude each other", at=("size",), hint="leave out packet")
        if min(self.size) < smallest_frame(self.ip):
            yield validation_error(
                f"a frame of {min(self.size)} bytes is too small; at least {smallest_frame(self.ip)} bytes"
                f" (Ethernet, IPv{self.ip}, UDP and the measurement header)",
                at=("size",),
            )

    @rule
    def _search_fits(self) -> Iterator[PydanticCustomError]:
        yield from search_errors(self, self.search, self.rate_bps, self.number, MAX_CONDITIONS)
        if self.search is not None and self.direction == "both":
            yield validation_error(
                "a search has one direction", at=("direction",), hint="search each direction by a test of its own"
            )

    def fleet_conflicts(self, clients: int) -> Iterator[Conflict]:
        """Find conflicts with a fleet: all clients take part with one flow each, for the test's whole duration."""
        yield from carried_conflicts(self, self.flows)
        yield from spread_conflicts(self)
        yield from fleet_conflicts(self)
        yield from peer_conflicts(self.peer)
        if self.search is not None:
            yield "search", "a fleet's trials cannot be repeated at other rates", "leave it out"
        if self.number is not None:
            yield "number", "datagrams of a fleet end with the duration", "leave it out"
        if self.packet_bytes < SMALLEST_UDP_PAYLOAD_BYTES:
            text = f"{self.packet_bytes} bytes is too small in a fleet's tunnels"
            yield "packet", f"{text}; at least {SMALLEST_UDP_PAYLOAD_BYTES} bytes", None
        for key, value in (("gso", self.gso), ("dscp", self.dscp), ("size", self.size), ("window", self.window_bytes)):
            if value is not None:
                yield key, "the datagrams of a fleet pass its tunnels one by one", "leave it out"


class Udp(Kind[UdpTest]):
    """The kind `udp`: datagrams at a rate. The receiver counts loss, order and jitter."""

    name = "udp"
    model = UdpTest
    metrics = (
        higher("throughput_bps", "payload received per second inside the steady window"),
        higher("packets_per_s", "datagrams received per second inside the steady window"),
        neither("sent", "distinct datagrams sent"),
        higher("received", "distinct datagrams received"),
        lower("lost", "datagrams that did not arrive, those missing at the end included"),
        lower("lost_ratio", "share of the datagrams sent that did not arrive"),
        lower("outstanding", "of those lost, datagrams that may only be late: others still arrived at the end"),
        lower("duplicates", "datagrams that arrived again"),
        lower("reordered", "datagrams that arrived behind a later one (RFC 4737)"),
        lower("jitter_us", "mean interarrival jitter (RFC 3550, 6.4.1)"),
        lower("loss_bursts", "runs of consecutive datagrams that did not arrive"),
        lower("loss_burst_mean", "mean length of these runs, datagrams"),
        lower("loss_burst_max", "length of the longest of them, datagrams"),
        lower("reorder_extent_mean", "mean extent of reordered datagrams (RFC 4737, 4.2.2), datagrams"),
        lower("reorder_extent_max", "largest extent of a reordered datagram, datagrams"),
        lower("one_way_delay_min_us", "shortest time from sending to arrival; null if the clocks are too far apart"),
        lower("one_way_delay_mean_us", "mean time from sending to arrival"),
        lower("one_way_delay_max_us", "longest time from sending to arrival"),
        neither("one_way_delay_bound_us", "largest error of these times by the clocks; 0 if both ends share a clock"),
        *service_demand_specs("packet"),
        higher("found_rate_per_s", "datagrams per second: the highest rate that a search found to hold"),
        higher("found_rate_bps", "bits of payload per second at that rate"),
        higher("found_rate_2_per_s", "the rate for the second, weaker condition of the same search"),
        higher("found_rate_2_bps", "bits of payload per second at that rate"),
    )
    decisive = ("lost_ratio",)
    shortfall = ("lost_ratio", "of the packets lost")
    scaling = (("throughput_bps", "bit/s"),)
    headline = ("found_rate_bps", "lost_ratio", "jitter_us")
    woken = ("server",)
    operation = "datagram"
    rungs = (
        # The packets fit into a tunnel's MTU of 1420, over IPv6 too; downwards, as HTTP's bodies go.
        Rung(
            *("udp", "udp", "UDP", Chain.PAYLOAD, 10, "throughput_bps", _DATAGRAMS),
            is_offered=True,
            found_metric="found_rate_bps",
            holds="lost_ratio < 0.1%",
        ),
    )
    command = Command(
        UdpTest,
        "Measure UDP throughput, loss, reordering and jitter. The receiver counts them.",
        "Example: leadline udp\n\n    leadline udp 192.0.2.7 --rate 100mbit -l 1400 -d 10s\n\n"
        "    leadline udp 192.0.2.7 -l 1400 -d 1s --find-rate 'lost_ratio < 0.1%'",
        position=3,
        rows=(
            *(o.HOST, o.DURATION, o.WARMUP, o.NUMBER, o.FLOWS, o.THREADS, o.REVERSE, o.BIDIRECTIONAL),
            Option(
                ("--rate",),
                "Bits of UDP payload per second of all flows: 20mbit. Default: as fast as possible.",
                key="rate",
            ),
            Option(
                ("-l", "--size"),
                f"UDP payload, {SMALLEST_PAYLOAD_BYTES} to {LARGEST_UDP_PAYLOAD_BYTES} bytes, or Ethernet frames in "
                f"turn: imix, 64:7,594:4,1518:1. Default: {_DEFAULT_BYTES}.",
                key="packet",
                default=None,
            ),
            Option(
                ("--gso/--no-gso",),
                "Pass datagrams to and from the kernel in batches. Default: on without --rate, off with it.",
                key="gso",
            ),
            Option(
                ("--dscp",),
                "Code point of the datagrams: 0 to 63, or a class such as EF or CS1.",
                key="dscp",
                metavar="CLASS",
            ),
            Option(
                ("-w", "--window"),
                "Size of the send and the receive buffer on both ends. Default: up to 4 MiB, as the hosts allow.",
                key="window",
            ),
            o.FIND_RATES,
            *(o.PEER, *o.LOGIN, *o.IPERF3, o.SHORT_COUNTERS, *o.SESSION, o.cross_check(UdpTest), *o.PRECISION),
            *(o.INTERVAL, o.JSON, o.VERBOSE, o.FORMAT, o.OUT, o.targets("lost_ratio < 0.1%")),
        ),
        names={"size": "size"},
    )
    figure_names: Mapping[str, str] = {
        "sent": "datagrams sent",
        "received": "datagrams received",
        "lost": "datagrams lost",
        "outstanding": "datagrams outstanding at the end",
        "loss_burst_mean": "mean loss burst",
        "loss_burst_max": "longest loss burst",
        "reorder_extent_mean": "mean reorder extent",
        "reorder_extent_max": "longest reorder extent",
        "one_way_delay_min_us": "shortest one-way delay",
        "one_way_delay_max_us": "longest one-way delay",
        "one_way_delay_bound_us": "error of these delays",
    }

    def run_command(self, values: Mapping[str, Any]) -> int:
        """Measure, or search for the highest rate."""
        if not values["find_rate"]:
            return super().run_command(values)
        from leadline.kinds.datagram_search import find_rate

        return find_rate(self, values)

    def workload(self, test: UdpTest, server: Server) -> UdpWorkload | PhasedWorkload:
        """Each flow gets an equal share of the rate, in datagrams, and of a number that clients share.

        Raises:
            InputError: a mix has frames that are too small for the server's IP version.
        """
        from leadline.kinds.shared_number import share_number

        whole = self.whole_workload(test, server)
        return share_number(whole) if test.split and test.number is not None else whole

    def whole_workload(self, test: UdpTest, server: Server) -> UdpWorkload:
        """The load whose flows are all alike.

        Raises:
            InputError: a mix has frames that are too small for the server's IP version.
        """
        from leadline.contract.models import SizeShare, UdpWorkload

        target = server.target(test.ip)
        ip = 6 if target.ip_version == "v6" or ":" in target.host else 4
        payloads = {frame_payload(frame, ip): count for frame, count in (test.size or {}).items()}
        if payloads and min(payloads) < SMALLEST_PAYLOAD_BYTES:
            raise InputError(
                f"frames of {min(test.size or ())} bytes carry no measured datagram over IPv{ip}",
                hint=f"the smallest ones have {smallest_frame(ip)} bytes",
            )
        return UdpWorkload(
            target=target,
            bind=server.bind,
            flows=test.flows,
            threads=test.threads,
            direction=test.direction,
            duration_ms=test.duration_ms,
            number=test.number,
            warmup_ms=test.warmup_ms,
            datagram_bytes=max(payloads, default=test.packet_bytes),
            sizes=[SizeShare(bytes=size, count=count) for size, count in payloads.items()] or None,
            rate_pps=None if test.rate_bps is None else test.rate_bps / test.flows / 8 / test.mean_payload(ip),
            interval_ms=test.interval_ms,
            peer=test.peer,
            gso=test.gso,
            dscp=test.dscp,
            window_bytes=test.window_bytes,
        )

    def iperf3_request(self, workload: UdpWorkload) -> Iperf3Requested:
        """A block is one datagram."""
        size = workload.datagram_bytes
        rate_bps = None if workload.rate_pps is None else round(workload.rate_pps * 8 * size)
        blocks = None if workload.number is None else workload.number * workload.flows
        return iperf3_requested(workload, "UDP", size, rate_bps, dscp=workload.dscp, blocks=blocks)

    def second_tool_run(self, test: UdpTest, server: Server, port: int) -> ToolRun:
        """iperf3, with the same flows, datagrams and rate."""
        rate_bps = round((test.rate_bps or 0) / test.flows)
        options = ["-u", "-l", str(test.packet_bytes), "-b", str(rate_bps)]
        return iperf3_run(test, server, port, flows=test.flows, direction=test.direction, options=options)

    def fleet_workload(self, test: UdpTest, access: FleetAccess, clients: int, server: str) -> TunnelWorkload:
        """One flow per client, at the whole rate."""
        from leadline.kinds.tunnel.gateway_fleet import carried
        from leadline.kinds.tunnel.model import TunnelLoad

        load = TunnelLoad(
            kind="udp",
            rate_per_s=None if test.rate_bps is None else test.rate_bps / 8 / test.packet_bytes,
            packet_bytes=test.packet_bytes,
            direction=test.direction,
            duration_ms=test.duration_ms,
        )
        return carried(test, load, access, clients, server)

    def at_rate(self, test: UdpTest, rate_per_s: float | None, duration_ms: int) -> UdpTest:
        """All clients together send the rate; without one, each as fast as it can."""
        rate = None if rate_per_s is None else max(1, round(rate_per_s * 8 * test.mean_payload()))
        return test.model_copy(update={"rate_bps": rate, "duration_ms": duration_ms, "search": None})

    def reached_per_s(self, test: UdpTest, result: TestResult) -> float | None:
        """What was sent: more cannot be offered, and a path that is flooded may carry less than it can."""
        sent, arrived = (result.metrics.get(name) for name in ("sent", "received"))
        if result.window is None or sent is None or not sent.value or arrived is None or not arrived.value:
            return None
        whole_s = (result.window.last_end_ns - result.window.first_start_ns) / 1e9
        return sent.value / whole_s if whole_s > 0 else None

    def judge_rate(
        self, conditions: Conditions, test: UdpTest, result: TestResult, rate_per_s: float, duration_s: float
    ) -> Trial:
        """Judge by the datagrams that arrived, those of the warm-up too."""
        from leadline.analysis.capacity import judge_packets

        whole_s = duration_s + test.warmup_ms / 1000
        trial = judge_packets(conditions, result, rate_per_s=rate_per_s, duration_s=whole_s)
        return replace(trial, duration_s=duration_s)

    def bits_per_operation(self, test: Mapping[str, Any]) -> float:
        """The payload of a datagram."""
        return 8.0 * _mean_payload(test)

    def read_spec(self, test: Mapping[str, Any], common: TestSpec) -> TestSpec:
        """Convert the rate: a plan has a client's rate in bits, a workload a flow's in datagrams."""
        number = test.get("number")
        if number is not None and test.get("split"):
            number = number // int(test.get("flows") or 1)
        common = replace(common, over_udp=True, number=number)
        if test.get("rate_pps"):
            return replace(common, send_gap_s=1.0 / float(test["rate_pps"]))
        if not test.get("rate_bps"):
            return common
        bits = 8.0 * _mean_payload(test)
        return replace(common, send_gap_s=bits * float(test.get("flows") or 1) / float(test["rate_bps"]))

    def rate_columns(self, spec: TestSpec, flows: Sequence[Flow]) -> list[RateColumn]:
        """Bits, then datagrams."""
        from leadline.analysis.window import throughput_column, units_column

        return [throughput_column(flows), units_column("packets_per_s", flows)]

    def interval_values(self, spec: TestSpec, growth: IntervalGrowth) -> dict[str, float | None]:
        """Throughput, datagrams and loss."""
        from leadline.analysis.running_intervals import datagrams, throughput

        return {**throughput(spec, growth), **datagrams(growth)}

    def figures(
        self, data: TestData, flows: Sequence[Flow], steady: Window | None, histograms: Histograms
    ) -> dict[str, Metric]:
        """Throughput, and the datagrams by outcome."""
        from leadline.analysis import metrics as m
        from leadline.analysis.datagram_figures import datagram_metrics
        from leadline.analysis.model import Metric
        from leadline.analysis.service_demand import service_demand
        from leadline.analysis.window import arrived_afterwards, unit_curves

        rates = m.window_rates(data.spec, flows, steady)
        is_late = arrived_afterwards(unit_curves(flows), steady)
        sent, lost = m.sum_of_flows(flows, lambda flow: flow.sent_units), m.reported(flows, "lost")
        jitters = [us for flow in flows if flow.report and (us := flow.report.get("jitter_us")) is not None]
        return {
            **m.throughput(data.spec, flows, steady, rates),
            "packets_per_s": Metric(None if is_late else rates["packets_per_s"], "1/s"),
            "sent": Metric(sent, "count"),
            "received": Metric(m.sum_of_flows(flows, m.received_units), "count"),
            "lost": lost,
            "lost_ratio": Metric(lost.value / sent if lost.value is not None and sent else None, "ratio"),
            "duplicates": m.reported(flows, "duplicates"),
            "reordered": m.reported(flows, "reordered"),
            "jitter_us": Metric(sum(jitters) / len(jitters) if jitters else None, "us"),
            **datagram_metrics(flows),
            **service_demand(data, flows, "packet"),
        }

    def operations(self, spec: TestSpec, flows: Sequence[Flow], clients: int) -> float | None:
        """Datagrams that were sent."""
        from leadline.analysis.metrics import sum_of_flows

        return sum_of_flows(flows, lambda flow: flow.sent_units)

    def payload_share(self, test: Mapping[str, Any], packets: Packets) -> float | None:
        """A datagram in each frame; unknown for datagrams that are fragmented."""
        if test.get("size"):
            return None
        payload = int(test["packet_bytes"])
        packet_bytes = payload + _UDP_HEADER_BYTES + packets.ip_header_bytes
        if packet_bytes > packets.largest_bytes:
            return None
        return payload / (packet_bytes + packets.frame_overhead_bytes)

    def rules(self) -> Rules:
        """The server generates the downstream load, and a flow may end after its number of datagrams."""
        from leadline.analysis import datagram_figures, loss_places, rules

        return rules.rules_of(
            breaks=(
                rules.broken_off(
                    lambda data, flow: (
                        (number := data.spec_of(flow.key.host).number) is not None and (flow.sent_units or 0) >= number
                    )
                ),
            ),
            limits=(
                *(rules.busy_threads_by_direction, loss_places.findings, loss_places.on_leaving),
                *(pushback, rules.late_sends, rules.ran_over, rules.unsent_by_flows),
            ),
            required=(rules.receiver_known, datagram_figures.still_arriving),
            notes=(one_way_wake_ups, batched, loss_places.notes),
        )

    def figure_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The service demand of both ends has one row."""
        return with_demand_line(result, "packet", super().figure_rows)

    def brief_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """Loss and what else went wrong with datagrams, and the service demand."""
        from leadline.report.measurement import brief_rows

        return [*brief_rows(result), *brief_demand_row(result.metrics, "packet")]

    def table(self, metrics: Mapping[str, Metric]) -> FigureTable:
        """Throughput first, then loss."""
        from leadline import quantities
        from leadline.report.figures import Figure, FigureTable

        found = Figure("found_rate_bps", "highest rate", quantities.bit_rate)
        throughput = Figure("throughput_bps", "throughput", quantities.bit_rate)
        is_search = found.metric in metrics
        return FigureTable(
            "UDP: highest rate that holds" if is_search else "UDP throughput and loss",
            found if is_search else throughput,
            (
                *((throughput,) if is_search else ()),
                Figure("lost_ratio", "lost", quantities.share),
                Figure("packets_per_s", "packets", quantities.per_second),
                Figure("jitter_us", "jitter", quantities.microseconds),
                Figure("reordered", "reordered", quantities.count),
                Figure("duplicates", "duplicates", quantities.count),
                Figure("one_way_delay_mean_us", "mean one-way delay", quantities.microseconds),
            ),
        )


def _mean_payload(test: Mapping[str, Any]) -> float:
    """The mean payload of a test as in a manifest, or of a workload, bytes."""
    if test.get("size"):
        return mean_payload({int(size): count for size, count in test["size"].items()}, int(test.get("ip") or 4))
    if test.get("sizes"):
        counts = [(share["bytes"], share["count"]) for share in test["sizes"]]
        return float(sum(size * count for size, count in counts) / sum(count for _, count in counts))
    return float(test.get("packet_bytes") or test.get("datagram_bytes") or 1400)


def one_way_wake_ups(evidence: Evidence) -> Iterator[Reason]:
    """A note if waking the receiving side up is a notable share of the mean one-way latency."""
    from leadline.analysis import wake_ups

    means = [us for flow in evidence.flows if flow.report and (us := flow.report.get("latency_mean_us")) is not None]
    receiver = wake_ups.CLIENT if evidence.data.spec.direction == "down" else wake_ups.SERVER
    mean_us = sum(means) / len(means) if means else None
    yield from wake_ups.notes(evidence.data, (receiver,), "mean one-way latency", mean_us)


def batched(evidence: Evidence) -> Iterator[Reason]:
    """A note if datagrams passed a kernel in batches: it concerns their times, not their counts."""
    from leadline.analysis.datagram_figures import coalesced
    from leadline.analysis.model import Reason

    if coalesced(evidence.flows):
        text = "datagrams passed the kernel in batches (GSO, GRO): jitter and delay are those of the batches"
        yield Reason("batched-datagrams", f"{text}; --no-gso measures single datagrams")


def pushback(evidence: Evidence) -> Iterator[Finding]:
    """Sends that the host's own socket refused."""
    from leadline.analysis.model import Reason, Verdict

    if evidence.data.spec.direction == "down":
        return
    for found in evidence.data.load_outcomes():
        sends = sum(flow.get("sent_units") or 0 for flow in found.outcome["flows"])
        refused = found.outcome["generator"]["pushback"]
        if refused and refused >= _PUSHBACK_SHARE * (sends + refused):
            share = rounded_share(refused / (sends + refused), 1)
            text = f"the socket on {found.host} refused {share} of the sends: the host's own queue was full"
            yield Verdict.GENERATOR_LIMITED, Reason("pushback", text)


KIND = Udp()
