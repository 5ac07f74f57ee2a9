"""The figures of generated frames: what a generator sent and a receiver counted, set against each other. Pure.

Three counts are apart: frames that were due and never left (unsent), frames that left late, and frames that left and
did not arrive (lost). Lost is what the generator sent without the distinct frames that the receiver counted: the first
and the last ones are in it too. What cannot be known is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leadline.analysis.histograms import Histogram
from leadline.analysis.model import Metric, Reason, Verdict
from leadline.plan.packet_rates import FCS_BYTES, wire_bits

COUNTERS_DIFFER = "interface-counters"
UNSENT = "unsent-packets"
DELAY_PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_PDV_PERCENTILE = 99.9
"""RFC 8219, 7.3.1: this percentile of the delay, less the least delay."""
_UNSENT_SHARE = 0.001
"""Share of the due frames; below it a generator was held up for a moment, and is not at its limit."""

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
        apart, or frames too far behind to know whether they came before, cannot tell duplicates from others."""
        sent, received = _total(generators, "sent"), _total(receivers, "received")
        is_exact = bool(receivers) and not any(
            one["beyond_flows"] or one["behind_window"] or one.get("overrun") for one in receivers
        )
        duplicates = _total(receivers, "duplicates") if is_exact else None
        distinct = None if received is None or duplicates is None else received - duplicates
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


def rate_metrics(
    frames: float | None, frame_bytes: float | None, seconds: float, line_bps: float | None
) -> dict[str, Metric]:
    """The rates of frames that arrived in a time: in packets, in bits of layer 2, on the wire, and as a share of the
    line's rate."""
    if frames is None or frame_bytes is None or seconds <= 0:
        return {
            "packets_per_s": Metric(None, "1/s"),
            "throughput_bps": Metric(None, "bit/s"),
            "wire_bps": Metric(None, "bit/s"),
            "line_rate_ratio": Metric(None, "ratio"),
        }
    on_wire_bps = wire_bits(frames, frame_bytes) / seconds
    return {
        "packets_per_s": Metric(frames / seconds, "1/s"),
        "throughput_bps": Metric(8 * (frame_bytes + frames * FCS_BYTES) / seconds, "bit/s"),
        "wire_bps": Metric(on_wire_bps, "bit/s"),
        "line_rate_ratio": Metric(on_wire_bps / line_bps if line_bps else None, "ratio"),
    }


def delay_metrics(delays: Histogram | None) -> dict[str, Metric]:
    """Percentiles of the one-way delay, and its variation against the least delay (PDV of RFC 5481)."""
    found = None if delays is None else delays.percentiles_us(DELAY_PERCENTILES)
    least = None if delays is None else delays.min_us
    unknown: list[float | None] = [None] * len(DELAY_PERCENTILES)
    values = [least, *(found or unknown)]
    names = [f"one_way_delay_p{percentile:g}_us".replace(".", "_") for percentile in DELAY_PERCENTILES]
    metrics = {name: Metric(value, "us") for name, value in zip(names, values[1:], strict=True)}
    of_variation = values[1 + DELAY_PERCENTILES.index(_PDV_PERCENTILE)]
    variation = None if of_variation is None or values[0] is None else of_variation - values[0]
    return {"one_way_delay_min_us": Metric(values[0], "us"), **metrics, "delay_variation_us": Metric(variation, "us")}


def cpu_per_packet(cpu_s: float | None, packets: float | None) -> Metric:
    """CPU time for each packet."""
    return Metric(1e9 * cpu_s / packets if cpu_s is not None and packets else None, "ns")


def counter_reasons(generators: Sequence[Report], receivers: Sequence[Report]) -> Iterator[tuple[Verdict, Reason]]:
    """Findings where an interface's own counter has fewer frames than a generator sent or a receiver counted: the count
    is wrong, or not all of them passed there. More is no contradiction: others may use the interface too."""
    counted = (
        ("sent", "tx_packets", generators, "the generator sent", "its interface counted"),
        ("received", "rx_packets", receivers, "the receiver counted", "its interface"),
    )
    for count, counter, reports, own_words, interface_words in counted:
        for report in reports:
            of_interface = report["interface"].get(counter)
            if of_interface is not None and of_interface < report[count]:
                text = f"{own_words} {report[count]:,} frames, {interface_words} {of_interface:,}"
                yield Verdict.UNDETERMINED, Reason(COUNTERS_DIFFER, text)


def unsent_reasons(generators: Sequence[Report]) -> Iterator[tuple[Verdict, Reason]]:
    """A finding if frames were due and never left. On one core this also happens where the forwarder is the limit: it
    runs in the generator's time, and nothing is lost."""
    sent, unsent = _total(generators, "sent"), _total(generators, "unsent")
    if sent is None or not unsent or unsent < _UNSENT_SHARE * (sent + unsent):
        return
    text = f"{unsent:,} of {sent + unsent:,} frames were due and never left: more could not be sent here"
    yield Verdict.GENERATOR_LIMITED, Reason(UNSENT, text)


def _total(reports: Sequence[Report], name: str) -> int | None:
    """The sum of a count; None if a report lacks it, or there is no report."""
    counts = [report.get(name) for report in reports]
    known = [int(count) for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
