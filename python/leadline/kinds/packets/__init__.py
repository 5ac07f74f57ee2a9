"""The kind `packets`: raw frames into an interface, counted where they arrive. `model` has its parameters, `workload`
the tasks of an agent, `command` what its command does; `analysis.packet_figures` sets the counts against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.errors import InputError
from leadline.kinds.kind import Kind
from leadline.kinds.packets.model import DEFAULT_BYTES, PacketsTest
from leadline.kinds.packets.pktgen import read_commands
from leadline.kinds.service_demand_rows import brief_demand_row, with_demand_line
from leadline.plan import options as o
from leadline.plan.ladder import ETHERNET_BYTES, Chain, Rung
from leadline.plan.metric_specs import higher, lower, neither
from leadline.plan.options import Command, Option, listed
from leadline.plan.service_demand_metrics import service_demand_specs

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.analysis.capacity import Conditions
    from leadline.analysis.flows import Flow
    from leadline.analysis.metrics import Histograms
    from leadline.analysis.model import Metric, TestResult, Window
    from leadline.analysis.packet_model import PacketFindings
    from leadline.analysis.running_intervals import IntervalGrowth
    from leadline.analysis.search_findings import Trial
    from leadline.analysis.test_data import TestData
    from leadline.analysis.test_spec import TestSpec
    from leadline.analysis.validity import Evidence, Finding, Rules
    from leadline.analysis.window import RateColumn
    from leadline.contract.models import PacketGeneratorWorkload
    from leadline.plan.ladder import Packets as PacketSizes
    from leadline.report.figures import FigureTable
    from leadline.report.page_tables import PageTable
    from leadline.trial.workloads import Receiver, Server

_RUNG_BYTES = 1418
"""Of a frame of a ladder, FCS included: one with the datagram that is the ladder's next layer."""
_FRAMES, _FIELDS, _FLOWS, _CAPTURES, _PATHS = "Frames", "Fields", "Flows", "Captures", "Paths"


def _networks(text: str) -> dict[str, str]:
    """Pairs of networks: `10.0.0.0/8:198.0.0.0/8,192.168.0.0/16:198.18.0.0/16`; an IPv6 network is in brackets."""
    found = {}
    for pair in listed(text):
        first, _, second = pair.replace("]:[", "|").strip("[]").partition("|" if "[" in pair else ":")
        if not second:
            raise InputError(f"--rewrite {pair}: not two networks", hint="as in 10.0.0.0/8:198.0.0.0/8")
        found[first] = second
    return found


class Packets(Kind[PacketsTest]):
    """The kind `packets`: frames at a rate, or as fast as possible."""

    name = "packets"
    model = PacketsTest
    primary = "packets_per_s"
    metrics = (
        higher("packets_per_s", "frames that arrived per second inside the steady window"),
        higher("throughput_bps", "bits of layer 2 that arrived per second, FCS included"),
        higher("wire_bps", "the same with preambles and gaps: what they occupy on a wire"),
        higher("line_rate_ratio", "share of the line's rate; null if it is not known"),
        neither("offered_packets_per_s", "frames sent per second"),
        neither("sent", "frames given to the interface's driver"),
        higher("received", "frames that arrived, duplicates included"),
        lower("lost", "frames sent that did not arrive, those at head and tail included"),
        lower("lost_ratio", "share of the frames sent that did not arrive"),
        lower("refused", "of the lost ones, those that the generator's own interface did not take"),
        lower("unsent", "frames that were due and never sent"),
        lower("duplicates", "frames that arrived again"),
        lower("reordered", "frames that arrived behind a later one of their flow (RFC 4737)"),
        lower("one_way_delay_min_us", "shortest time from sending to arrival"),
        lower("one_way_delay_p50_us", "median of this time"),
        lower("one_way_delay_p90_us", "its 90th percentile"),
        lower("one_way_delay_p99_us", "its 99th percentile"),
        lower("one_way_delay_p99_9_us", "its 99.9th percentile"),
        neither("one_way_delay_bound_us", "largest error of these times by the clocks; 0 if both ends share a clock"),
        neither("echoed", "frames that the far interface sent back"),
        lower("round_trip_min_us", "shortest time from sending to the return of the frame"),
        lower("round_trip_p50_us", "median of this time"),
        lower("round_trip_p90_us", "its 90th percentile"),
        lower("round_trip_p99_us", "its 99th percentile"),
        lower("round_trip_p99_9_us", "its 99.9th percentile"),
        lower("delay_variation_us", "the delays' 99.9th percentile less the shortest (PDV; RFC 5481, RFC 8219)"),
        *service_demand_specs("packet"),
        higher("found_rate_per_s", "packets per second: the highest rate that a search found to hold"),
        higher("found_rate_bps", "bits of layer 2 per second at that rate"),
        higher("found_rate_2_per_s", "the rate for the second, weaker condition of the same search"),
        higher("found_rate_2_bps", "bits of layer 2 per second at that rate"),
    )
    decisive = ("lost_ratio",)
    verb = "forwards"
    counted = "packets"
    shortfall = ("lost_ratio", "of the packets lost")
    scaling = (("packets_per_s", "1/s"),)
    headline = ("found_rate_per_s", "lost_ratio", "one_way_delay_p99_us", "round_trip_p99_us")
    operation = "packet"
    sends_frames = True
    curves = ("one_way_delay", "round_trip", "late")
    figure_names: Mapping[str, str] = {
        "sent": "packets sent",
        "received": "packets received",
        "lost": "packets lost",
        "unsent": "packets due and never sent",
        "refused": "packets that the own interface refused",
        "offered_packets_per_s": "packets sent per second",
        "wire_bps": "bits on the wire",
        "line_rate_ratio": "share of the line rate",
        "one_way_delay_min_us": "shortest one-way delay",
        "one_way_delay_bound_us": "error of these delays",
        "echoed": "packets sent back",
        "round_trip_min_us": "shortest round trip",
        "delay_variation_us": "delay variation (PDV)",
    }
    rungs = (
        Rung(
            *("packets", "packets", "Packets", Chain.PAYLOAD, 5, "throughput_bps", {"size": _RUNG_BYTES}),
            is_offered=True,
            found_metric="found_rate_bps",
            holds="lost_ratio < 0.1%",
            is_on_request=True,
        ),
    )
    command = Command(
        PacketsTest,
        "Send raw packets: rate, loss, order and delay. A program at the far interface counts them.",
        "Example: leadline packets\n\n"
        "    leadline packets eth1 --to eth2 --dst 198.18.0.2 --rate 1Mpps --flows 1000\n\n"
        "    leadline packets eth1 --dst 198.18.0.2 --size imix --rate 50% --line 10gbit\n\n"
        "    leadline packets eth1 --to eth2 --dst 198.18.0.2 --find-rate 'lost_ratio <= 0'",
        position=7,
        rows=(
            Option(
                (),
                "Interface into which frames go, of which the default route is none. Default: a pair of virtual ones"
                " (veth) that is made for the measurement.",
                key="device",
                metavar="[DEV]",
                parameter="device",
            ),
            *(o.DURATION, o.WARMUP),
            *o.group(
                _FRAMES,
                Option(
                    ("-l", "--size"),
                    "Bytes of each frame with FCS, or frames in turn: imix, 64:7,594:4,1518:1."
                    f" Default: {DEFAULT_BYTES}.",
                    key="size",
                    metavar="BYTES",
                ),
                Option(
                    ("--rate",),
                    "Rate: 1Mpps, 500mbit of layer 2, 50% of --line. Default: as fast as possible.",
                    key="rate",
                    metavar="RATE",
                ),
                Option(("--line",), "Rate of the line, for shares of it: 10gbit.", key="line"),
                Option(("-n", "--number"), "Frames, after which it ends.", key="number"),
                Option(("--to",), "Interface of this host at which frames are counted.", key="to", metavar="DEV"),
                Option(
                    ("--stamp-every",),
                    "One frame in N has its time in it: measures the one-way delay.",
                    key="stamp_every",
                    metavar="N",
                ),
                Option(("--then",), "What becomes of counted frames.", key="then"),
                Option(("--echo",), "--to sends the frames back to DEV, which counts them: round trips.", key="echo"),
            ),
            *o.group(
                _FIELDS,
                Option(
                    ("--dst",),
                    "Destination addresses: 192.0.2.1, 192.0.2.1-192.0.2.9 or 192.0.2.0/28, with ' random' at random.",
                    key="dst",
                    metavar="ADDRESSES",
                ),
                Option(("--src",), "Source addresses. Default: the interface's own.", key="src", metavar="ADDRESSES"),
                Option(
                    ("--protocol",),
                    "Datagrams, segments that open a connection or seem to belong to one, echo requests.",
                    key="protocol",
                ),
                Option(("--dport",), "Destination ports: 9 or 1024-65535.", key="dport", metavar="PORTS"),
                Option(("--sport",), "Source ports.", key="sport", metavar="PORTS"),
                Option(
                    ("--dst-mac",),
                    "Destination MAC address. Default: the next hop's, which is asked for.",
                    key="dst_mac",
                    metavar="MAC",
                ),
                Option(("--src-mac",), "Source MAC address. Default: the interface's.", key="src_mac", metavar="MAC"),
                Option(("--vlan",), "VLAN tags: 7, 1-100, or two: 100.7.", key="vlan", metavar="VLANS"),
                Option(("--ttl",), "Time to live, hop limit. Default: 64.", key="ttl"),
                Option(("--dscp",), "Code point: 0 to 63, or a class such as EF.", key="dscp", metavar="CLASS"),
                Option(("--tunnel",), "A tunnel around the packets.", key="tunnel"),
                Option(("--tunnel-src",), "Its source address.", key="tunnel_src", metavar="ADDRESS"),
                Option(("--tunnel-dst",), "Its destination address.", key="tunnel_dst", metavar="ADDRESS"),
                Option(("--tunnel-id",), "VXLAN's network identifier, GRE's key.", key="tunnel_id"),
                Option(
                    ("--template",), "A whole frame as hex digits instead of fields.", key="template", metavar="HEX"
                ),
                Option(("--no-checksum",), "UDP over IPv4 without a checksum.", key="checksum", value=False),
            ),
            *o.group(
                _FLOWS,
                Option(("-P", "--flows"), "Flows, which differ in the fields that have ranges.", key="flows"),
                Option(("--flow-order",), "The order of their frames.", key="flow_order"),
                Option(("--zipf",), "Exponent of Zipf's law for the flows' shares.", key="zipf"),
                Option(
                    ("--new-flows",),
                    "Flows per second that new ones replace: 10k/s.",
                    key="new_flows",
                    metavar="RATE",
                ),
                Option(("--seed",), "Seed of all random choices.", key="seed"),
            ),
            *o.group(
                _CAPTURES,
                Option(("--pcap",), "Send the frames of a capture instead (pcap, pcapng).", key="pcap", metavar="FILE"),
                Option(("--speed",), "How much faster than it was recorded.", key="speed", metavar="FACTOR"),
                Option(("--top",), "As fast as possible.", key="top"),
                Option(("--loop",), "How often; 0: until the end of the duration.", key="loop", metavar="TIMES"),
                Option(
                    ("--rewrite",),
                    "Networks that replace others: 10.0.0.0/8:198.0.0.0/8, with commas between several.",
                    key="rewrite",
                    read=_networks,
                    metavar="FROM:TO",
                ),
                Option(
                    ("--rewrite-macs",), "MAC addresses become the interface's and the next hop's.", key="rewrite_macs"
                ),
                Option(("--set-vlan",), "VLAN of its tags; 0 takes them away.", key="set_vlan", metavar="VLAN"),
                Option(("--pad-cut",), "Fill frames that were cut with zeros.", key="pad_cut"),
            ),
            *o.group(
                _PATHS,
                Option(("--via",), "The path into the interface.", key="via"),
                Option(("--receive-via",), "The path out of the receiving interface.", key="receive_via"),
                Option(
                    ("--pktgen",),
                    "A command of the kernel's generator: clone_skb=0, flag=NODE; repeatable.",
                    key="pktgen",
                    type=list,
                    read=read_commands,
                    metavar="NAME=VALUE",
                ),
                o.THREADS,
                Option(("--batch",), "Frames that go to the driver together.", key="batch"),
                Option(
                    ("--yes-i-mean",),
                    "Name DEV again if it has the default route: its frames may cut this host off.",
                    key="yes_i_mean",
                    metavar="DEV",
                ),
            ),
            o.FIND_RATES,
            Option(
                ("--rfc2544",),
                "For each of RFC 2544's sizes: throughput, latency at it, frame loss by rate, the longest burst without"
                " loss. -d is the length of a trial; the RFC asks for 60s.",
                type=bool,
                default=False,
            ),
            Option(
                ("--html",),
                "Write the result of --rfc2544 as a page, with plots.",
                type=Path,
                metavar="FILE",
            ),
            *(o.INTERVAL, o.JSON, o.VERBOSE, o.OUT, o.targets("lost_ratio < 0.1%")),
        ),
        names={"line": "line"},
    )

    def run_command(self, values: Mapping[str, Any]) -> int:
        """Measure on an interface, or on a pair that is made for it."""
        from leadline.kinds.packets.command import measure

        return measure(self, values)

    def workload(self, test: PacketsTest, server: Server) -> PacketGeneratorWorkload:
        """Frames to the server's address, if they have no destination of their own."""
        from leadline.kinds.packets.workload import generator

        return generator(test, server.host)

    def receivers(self, test: PacketsTest, server: Server) -> Sequence[Receiver]:
        """A receiver at the server's interface, or one at the client's to which that sends everything back."""
        from leadline.kinds.packets.workload import receivers

        return receivers(test, server.host)

    def marked(self, workload: Any, number: int) -> Any:
        """What of an earlier load is still on its way is not counted in a later one."""
        return workload.model_copy(update={"test_id": number})

    def aligned(self, workload: Any, ahead_ns: int) -> Any:
        """Delays are differences of both clocks."""
        return workload.model_copy(update={"clock_ahead_ns": ahead_ns})

    def at_rate(self, test: PacketsTest, rate_per_s: float | None, duration_ms: int) -> PacketsTest:
        """The test at a rate in packets; without one, as fast as it goes."""
        rate = None if rate_per_s is None else repr(rate_per_s)
        return test.model_copy(update={"rate": rate, "duration_ms": duration_ms, "search": None})

    def reached_per_s(self, test: PacketsTest, result: TestResult) -> float | None:
        """What was sent: more cannot be offered."""
        offered = result.metrics.get("offered_packets_per_s")
        return None if offered is None else offered.value

    def judge_rate(
        self, conditions: Conditions, test: PacketsTest, result: TestResult, rate_per_s: float, duration_s: float
    ) -> Trial:
        """Judge by the packets that arrived, those of the warm-up too."""
        from leadline.analysis.capacity import judge_packets

        whole_s = duration_s + test.warmup_ms / 1000
        trial = judge_packets(conditions, result, rate_per_s=rate_per_s, duration_s=whole_s)
        return replace(trial, duration_s=duration_s)

    def bits_per_operation(self, test: Mapping[str, Any]) -> float:
        """Layer 2 of a frame."""
        return PacketsTest.model_validate(dict(test), by_name=True).mean_bits

    def longest_ms(self, workload: Any) -> int:
        """Its duration."""
        return int(workload.duration_ms or 0)

    def advice(self, code: str) -> str | None:
        """What to do about failures of an agent."""
        return {
            "no_bpf": "run it as root, or use --via af_packet",
            "permission_denied": "raw frames need root, or CAP_NET_RAW",
        }.get(code)

    def read_spec(self, test: Mapping[str, Any], common: TestSpec) -> TestSpec:
        """The time between two frames."""
        found = PacketsTest.model_validate(dict(test), by_name=True)
        gap_s = 1.0 / found.rate_pps if found.rate_pps else None
        return replace(common, over_udp=True, send_gap_s=gap_s, line_bps=found.line_bps)

    def rate_columns(self, spec: TestSpec, flows: Sequence[Flow]) -> list[RateColumn]:
        """Frames, then bits of layer 2."""
        from leadline.analysis.packet_figures import layer_2_column
        from leadline.analysis.window import units_column

        return [units_column("packets_per_s", flows), layer_2_column(flows)]

    def interval_values(self, spec: TestSpec, growth: IntervalGrowth) -> dict[str, float | None]:
        """Frames and bits of layer 2."""
        from leadline.analysis.packet_figures import interval_rates

        return interval_rates(growth)

    def figures(
        self, data: TestData, flows: Sequence[Flow], steady: Window | None, histograms: Histograms
    ) -> dict[str, Metric]:
        """Rates, frames by outcome, delays, and the cost of both ends."""
        from leadline.analysis import metrics as m
        from leadline.analysis.packet_figures import figures
        from leadline.analysis.service_demand import service_demand

        rates = m.window_rates(data.spec, flows, steady)
        return {**figures(data, rates, steady, histograms), **service_demand(data, flows, "packet")}

    def operations(self, spec: TestSpec, flows: Sequence[Flow], clients: int) -> float | None:
        """Frames that were sent."""
        from leadline.analysis.metrics import sum_of_flows

        return sum_of_flows(flows, lambda flow: flow.sent_units)

    def packet_findings(self, data: TestData) -> PacketFindings | None:
        """Frames by size and by flow."""
        from leadline.analysis.packet_figures import packet_findings

        return packet_findings(data)

    def time_tables(self, result: TestResult) -> list[RenderableType]:
        """Frames by size and by flow."""
        from leadline.kinds.packets.tables import terminal_tables

        return terminal_tables(result)

    def brief_tables(self, result: TestResult) -> list[RenderableType]:
        """The same, where they say more than the figures."""
        from leadline.kinds.packets.tables import terminal_tables

        return terminal_tables(result, is_brief=True)

    def page_tables(self, result: TestResult) -> list[PageTable]:
        """The same."""
        from leadline.kinds.packets.tables import page_tables

        return page_tables(result)

    def payload_share(self, test: Mapping[str, Any], packets: PacketSizes) -> float | None:
        """What its figure counts of a frame, FCS included, against the frame as interfaces count it; unknown for mixes,
        and for packets that a tunnel does not carry whole."""
        found = PacketsTest.model_validate(dict(test), by_name=True)
        if len(found.frame_bytes) != 1:
            return None
        packet_bytes = next(iter(found.frame_bytes)) - ETHERNET_BYTES
        if packet_bytes > packets.largest_bytes:
            return None
        return (found.mean_bits / 8) / (packet_bytes + packets.frame_overhead_bytes)

    def rules(self) -> Rules:
        """Where frames were not sent, the generator is the limit; a thread that waits for the next frame is not."""
        from leadline.analysis import packet_figures, rules

        return rules.rules_of(
            breaks=(rules.broken_off(lambda data, flow: data.spec.number is not None),),
            limits=(_unpaced_threads, packet_figures.unsent, packet_figures.refused),
            required=(packet_figures.is_counted, packet_figures.counters_agree),
        )

    def figure_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The service demand of both ends has one row."""
        return with_demand_line(result, "packet", super().figure_rows)

    def brief_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """Rates, loss, what else went wrong, and the service demand."""
        from leadline.report.measurement import brief_rows

        return [*brief_rows(result), *brief_demand_row(result.metrics, "packet")]

    def table(self, metrics: Mapping[str, Metric]) -> FigureTable:
        """Frames per second first, then loss and delay."""
        from leadline import quantities
        from leadline.report.figures import Figure, FigureTable

        return FigureTable(
            "Packets received",
            Figure("packets_per_s", "packets", quantities.per_second),
            (
                Figure("lost_ratio", "lost", quantities.share),
                Figure("throughput_bps", "layer 2", quantities.bit_rate),
                Figure("wire_bps", "on the wire", quantities.bit_rate),
                Figure("unsent", "never sent", quantities.count),
                Figure("reordered", "reordered", quantities.count),
                Figure("duplicates", "duplicates", quantities.count),
                Figure("one_way_delay_p50_us", "delay p50", quantities.microseconds),
                Figure("one_way_delay_p99_us", "delay p99", quantities.microseconds),
                Figure("round_trip_p50_us", "round trip p50", quantities.microseconds),
                Figure("round_trip_p99_us", "round trip p99", quantities.microseconds),
            ),
        )


def _unpaced_threads(evidence: Evidence) -> Iterator[Finding]:
    """Threads that send as fast as they can; one with a rate uses its CPU to wait for the next frame."""
    from leadline.analysis import rules

    if not evidence.data.spec.paced:
        yield from rules.busy_threads(evidence)


KIND = Packets()
