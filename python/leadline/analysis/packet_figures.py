"""The figures of generated frames: what a generator sent and a receiver counted, set against each other. Pure.

Three counts are apart: frames that were due and never left (unsent), frames that left late, and frames that left and
did not arrive (lost). Lost is what the generator sent without the distinct frames that the receiver counted: the first
and the last ones are in it too. What cannot be known is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from leadline.analysis.datagram_figures import MOST_BOUND_SHARE
from leadline.analysis.histograms import Histogram
from leadline.analysis.model import Metric, Reason, Verdict, Window
from leadline.analysis.packet_model import PacketFindings, PacketPart
from leadline.analysis.test_data import TestData
from leadline.plan.packet_rates import FCS_BYTES, PREAMBLE_AND_GAP_BYTES

if TYPE_CHECKING:
    from leadline.analysis.flows import Flow
    from leadline.analysis.metrics import Histograms
    from leadline.analysis.running_intervals import IntervalGrowth
    from leadline.analysis.validity import Evidence, Finding
    from leadline.analysis.window import RateColumn

COUNTERS_DIFFER = "interface-counters"
UNCOUNTED = "uncounted-packets"
INEXACT = "inexact-packets"
DELAY_PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_PDV_PERCENTILE = 99.9
"""RFC 8219, 7.3.1: this percentile of the delay, less the least delay."""
_UNSENT_SHARE = 0.001
"""Share of the due frames; below it a generator was held up for a moment, and is not at its limit."""
_REFUSED_SHARE = 1e-5
"""Share of the packets sent; below it a queue was full for a moment."""

Report = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PacketCounts:
    """The frames of one test by their outcome; None for what is not known."""

    sent: int | None
    received: int | None
    """With duplicates."""
    distinct: int | None
    duplicates: int | None
    reordered: int | None
    lost: int | None
    unsent: int | None
    sent_bytes: int | None
    received_bytes: int | None

    @classmethod
    def of(cls, generators: Sequence[Report], receivers: Sequence[Report]) -> PacketCounts:
        """The sums of all generators and of all receivers. A receiver that has frames of more flows than it keeps
        apart, or frames too far behind to know whether they came before, cannot tell duplicates from others. Where
        frames have no numbers, a duplicate may hide a loss."""
        sent, received = _total(generators, "sent"), _total(receivers, "received")
        is_exact = bool(receivers) and not any(
            one["beyond_flows"] or one["behind_window"] or one.get("overrun") for one in receivers
        )
        duplicates = _total(receivers, "duplicates") if is_exact else None
        # Copies of pktgen have no numbers of their own: loss is then by counts alone.
        is_numbered = all(one["duplicates"] is not None for one in receivers)
        repeated = duplicates if is_numbered or not is_exact else 0
        distinct = None if received is None or repeated is None else received - repeated
        return cls(
            sent=sent,
            received=received,
            distinct=distinct,
            duplicates=duplicates,
            reordered=_total(receivers, "reordered") if is_exact else None,
            lost=None if sent is None or distinct is None or distinct > sent else sent - distinct,
            unsent=_total(generators, "unsent"),
            sent_bytes=_total(generators, "sent_bytes"),
            received_bytes=_total(receivers, "received_bytes"),
        )

    def metrics(self) -> dict[str, Metric]:
        """The counts, and the share of the frames sent that did not arrive."""
        return {
            "sent": Metric(self.sent, "count"),
            "received": Metric(self.received, "count"),
            "lost": Metric(self.lost, "count"),
            "lost_ratio": Metric(self.lost / self.sent if self.lost is not None and self.sent else None, "ratio"),
            "duplicates": Metric(self.duplicates, "count"),
            "reordered": Metric(self.reordered, "count"),
            "unsent": Metric(self.unsent, "count"),
        }


def delay_metrics(
    delays: Histogram | None, bound_us: float | None = 0.0, name: str = "one_way_delay"
) -> dict[str, Metric]:
    """Percentiles of the one-way delay or of the round trip, and its variation against the least (PDV of RFC 5481).

    `bound_us` is the largest error of a delay by the clocks of both ends; None if it is not known. Delays with a larger
    share of error are unknown, and their variation is not: the error is the same in all."""
    found = None if delays is None else delays.percentiles_us(DELAY_PERCENTILES)
    least = None if delays is None else delays.min_us
    unknown: list[float | None] = [None] * len(DELAY_PERCENTILES)
    values = [least, *(found or unknown)]
    names = [f"p{percentile:g}".replace(".", "_") for percentile in DELAY_PERCENTILES]
    of_variation = values[1 + DELAY_PERCENTILES.index(_PDV_PERCENTILE)]
    variation = None if of_variation is None or least is None else of_variation - least
    median = values[1 + DELAY_PERCENTILES.index(50.0)]
    is_known = median is not None and bound_us is not None and bound_us <= MOST_BOUND_SHARE * median
    metrics = {
        f"{name}_{which}_us": Metric(value if is_known else None, "us")
        for which, value in zip(("min", *names), values, strict=True)
    }
    return {**metrics, "delay_variation_us": Metric(variation, "us")}


def figures(
    data: TestData, rates: Mapping[str, float | None], steady: Window | None, histograms: Histograms
) -> dict[str, Metric]:
    """Every figure of a test: rates inside the steady window, counts and delays of the whole test."""
    generators, receivers = _reports(data)
    counts = PacketCounts.of(generators, receivers)
    packets_per_s, layer_2_bps = rates.get("packets_per_s"), rates.get("throughput_bps")
    seconds = None if steady is None else (steady.last_end_ns - steady.first_start_ns) / 1e9
    offered = counts.sent / seconds if counts.sent is not None and seconds else None
    found = {
        **rate_metrics(packets_per_s, layer_2_bps, data.spec.line_bps),
        "offered_packets_per_s": Metric(offered, "1/s"),
        **counts.metrics(),
        "refused": Metric(_total(generators, "refused"), "count"),
    }
    if data.reflectors:
        reflected = [cast(Report, one.packets["receiver"]) for one in data.reflector_outcomes() if one.packets]
        found["echoed"] = Metric(_total(reflected, "echoed"), "count")
        return {**found, **delay_metrics(histograms.by_name.get("round_trip"), name="round_trip")}
    bound_us = _clock_bound_us(data)
    delays = delay_metrics(histograms.by_name.get("one_way_delay"), bound_us)
    return {**found, **delays, "one_way_delay_bound_us": Metric(bound_us, "us")}


def _clock_bound_us(data: TestData) -> float | None:
    """The largest error, us, of the known difference between the clocks of a generator and of a receiver."""
    bounds = [data.clock_bounds_ns.get(host) for host in {*data.hosts, *(host for host, _ in data.receivers)}]
    known = [bound for bound in bounds if bound is not None]
    return sum(known) / 1000 if known and len(known) == len(bounds) else None


def rate_metrics(packets_per_s: float | None, layer_2_bps: float | None, line_bps: float | None) -> dict[str, Metric]:
    """Rates of frames that arrived: in packets, in bits of layer 2, on the wire, and as a share of the line's rate."""
    wire_bps = None
    if packets_per_s is not None and layer_2_bps is not None:
        wire_bps = layer_2_bps + 8 * PREAMBLE_AND_GAP_BYTES * packets_per_s
    return {
        "packets_per_s": Metric(packets_per_s, "1/s"),
        "throughput_bps": Metric(layer_2_bps, "bit/s"),
        "wire_bps": Metric(wire_bps, "bit/s"),
        "line_rate_ratio": Metric(wire_bps / line_bps if wire_bps is not None and line_bps else None, "ratio"),
    }


def layer_2_column(flows: Sequence[Flow]) -> RateColumn:
    """Delivered bits of layer 2 per second, FCS included."""
    curves = [
        replace(octets, values=octets.values + FCS_BYTES * frames.at(octets.t_ns))
        for flow in flows
        if (octets := flow.delivered_bytes) is not None and (frames := flow.delivered_units) is not None
    ]
    return "throughput_bps", 8.0, curves


def interval_rates(growth: IntervalGrowth) -> dict[str, float | None]:
    """Frames, and bits of layer 2, of an interval."""
    packets_per_s = growth.rate("peer", "received_units")
    bits = growth.rate("peer", "received_bytes", 8.0)
    layer_2_bps = None if packets_per_s is None or bits is None else bits + 8 * FCS_BYTES * packets_per_s
    return {"packets_per_s": packets_per_s, "throughput_bps": layer_2_bps}


def packet_findings(data: TestData) -> PacketFindings | None:
    """Frames by size and by flow; None for a test without figures of packets."""
    return findings_of(*_reports(data))


def findings_of(generators: Sequence[Report], receivers: Sequence[Report]) -> PacketFindings | None:
    """`packet_findings`, of reports alone: one generator's, and one receiver's."""
    if not generators:
        return None
    sent, received = generators[0], receivers[0] if receivers else None
    return PacketFindings(
        sizes=tuple(_by_size(sent, received)),
        flows=tuple(_by_flow(sent, received)),
        flows_seen=None if received is None else received["flows_seen"],
    )


def _by_size(sent: Report, received: Report | None) -> Iterator[PacketPart]:
    """A path may change the sizes of frames, as by a VLAN's tag: then nothing is known of their loss. Which of them
    were duplicates is not counted by size."""
    arrived = {row["bytes"]: row["frames"] for row in received["by_size"]} if received is not None else {}
    sizes = {row["bytes"]: row["frames"] for row in sent["by_size"]}
    is_exact = received is not None and received["duplicates"] == 0 and not received.get("overrun")
    is_exact = is_exact and all(frames <= sizes.get(octets, 0) for octets, frames in arrived.items())
    for octets, frames in sorted(sizes.items()):
        there = arrived.get(octets, 0)
        lost = frames - there if is_exact else None
        yield PacketPart(octets + FCS_BYTES, frames, there, lost, None, None)


def _by_flow(sent: Report, received: Report | None) -> Iterator[PacketPart]:
    arrived = {row["flow"]: row for row in received["flows"]} if received is not None else {}
    is_exact = received is not None and received["duplicates"] is not None and not received["behind_window"]
    is_exact = is_exact and received is not None and not received.get("overrun")
    for row in sent["flows"]:
        there = arrived.get(row["flow"])
        if there is None:
            continue
        distinct = there["frames"] - there["duplicates"]
        lost = row["frames"] - distinct if is_exact and distinct <= row["frames"] else None
        counts = (there["duplicates"], there["reordered"]) if is_exact else (None, None)
        yield PacketPart(row["flow"], row["frames"], there["frames"], lost, *counts)


def counters_agree(evidence: Evidence) -> Iterator[Finding]:
    """Findings where an interface's own counter has fewer frames than a generator sent or a receiver counted: the count
    is wrong, or not all of them passed there. More is no contradiction: others may use the interface too."""
    yield from counter_findings(*_reports(evidence.data))


def counter_findings(generators: Sequence[Report], receivers: Sequence[Report]) -> Iterator[Finding]:
    """`counters_agree`, of reports alone."""
    for report in generators:
        of_interface, refused = report["interface"].get("tx_packets"), report.get("refused") or 0
        if of_interface is not None and of_interface + refused < report["sent"]:
            text = f"the generator sent {report['sent']:,} packets, its interface counted {of_interface:,}"
            yield Verdict.UNDETERMINED, Reason(COUNTERS_DIFFER, text)
    for report in receivers:
        of_interface = report["interface"].get("rx_packets")
        if of_interface is not None and of_interface < report["received"]:
            text = f"the receiver counted {report['received']:,} packets, its interface {of_interface:,}"
            yield Verdict.UNDETERMINED, Reason(COUNTERS_DIFFER, text)


def unsent(evidence: Evidence) -> Iterator[Finding]:
    """A finding if frames were due and never left. On one core this also happens where the forwarder is the limit: it
    runs in the generator's time, and nothing is lost."""
    yield from unsent_findings(_reports(evidence.data)[0])


def unsent_findings(generators: Sequence[Report]) -> Iterator[Finding]:
    """`unsent`, of reports alone."""
    sent, never = _total(generators, "sent"), _total(generators, "unsent")
    if sent is None or not never or never < _UNSENT_SHARE * (sent + never):
        return
    text = f"{never:,} of {sent + never:,} packets were due and never left: more could not be sent here"
    yield Verdict.GENERATOR_LIMITED, Reason("unsent", text)


def refused(evidence: Evidence) -> Iterator[Finding]:
    """A finding if the generator's own interface did not take packets: what is lost there says nothing of the path."""
    yield from refused_findings(_reports(evidence.data)[0])


def refused_findings(generators: Sequence[Report]) -> Iterator[Finding]:
    """`refused`, of reports alone."""
    sent, kept_out = _total(generators, "sent"), _total(generators, "refused")
    if sent and kept_out and kept_out >= _REFUSED_SHARE * sent:
        text = f"the generator's own interface did not take {kept_out:,} of {sent:,} packets: its queue was full"
        yield Verdict.GENERATOR_LIMITED, Reason("pushback", text)


def is_counted(evidence: Evidence) -> Iterator[Finding]:
    """A finding if no receiver counted, or one that could not tell duplicates apart."""
    if evidence.data.status != "done":
        return
    _, receivers = _reports(evidence.data)
    if not receivers:
        yield Verdict.UNDETERMINED, Reason(UNCOUNTED, "nothing counted the packets where they arrive")
    for report in receivers:
        if report["beyond_flows"] or report["behind_window"]:
            far = f"{report['behind_window']:,} packets arrived more than 63 behind their flow"
            text = far if report["behind_window"] else f"{report['beyond_flows']:,} packets are of unknown flows"
            yield Verdict.UNDETERMINED, Reason(INEXACT, f"{text}: they may be duplicates")
        if report.get("overrun"):
            text = f"the receiver's socket had no room for {report['overrun']:,} packets"
            yield Verdict.RECEIVER_LIMITED, Reason("receiver-socket-drops", text)


def _reports(data: TestData) -> tuple[list[Report], list[Report]]:
    """What generators and receivers report."""
    found = [packets for one in data.load_outcomes() if (packets := one.packets)]
    generators = [cast(Report, sent) for packets in found if (sent := packets.get("generator")) is not None]
    receivers = [cast(Report, counted) for packets in found if (counted := packets.get("receiver")) is not None]
    return generators, receivers


def _total(reports: Sequence[Report], name: str) -> int | None:
    """The sum of a count; None if a report lacks it, or there is no report."""
    counts = [report.get(name) for report in reports]
    known = [int(count) for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
