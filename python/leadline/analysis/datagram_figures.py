"""The figures of numbered datagrams that their flows report beyond counts: what was outstanding when a receiver was cut
off, bursts of loss, the extents of reordering and the one-way delay. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from leadline.analysis.flows import Flow
from leadline.analysis.metrics import sum_of_flows
from leadline.analysis.model import Metric, Reason, Verdict
from leadline.analysis.validity import Evidence, Finding

MOST_BOUND_SHARE = 0.1
"""A delay is known if the bound of the clocks' difference is at most this share of its mean."""


STILL_ARRIVING = "still-arriving"
_NOT_ARRIVED = ("lost", "lost_ratio")


def datagram_reports(flows: Sequence[Flow]) -> list[Mapping[str, Any]]:
    """The further figures of each flow that has some."""
    reports = (flow.report.get("datagrams") for flow in flows if flow.report)
    return [report for report in reports if report]


def datagram_metrics(flows: Sequence[Flow]) -> dict[str, Metric]:
    """Bursts of loss, extents of reordering and delays of all flows. What one of the flows that began does not report
    is unknown."""
    reports = datagram_reports(flows)
    if len(reports) < sum(flow.start_ns is not None for flow in flows):
        reports = []
    # What may still have come splits, shortens or ends the bursts.
    outstanding = sum_of_flows(flows, _outstanding)
    bursts = None if outstanding else _lengths(reports, "loss_bursts")
    extents = _lengths(reports, "reorder_extents")
    # Without the extent of each reordered datagram, neither figure is known.
    if any(report.get("unknown_extents") for report in reports):
        extents = None
    return {
        "outstanding": Metric(outstanding, "count"),
        "loss_bursts": Metric(_sum(bursts, "count"), "count"),
        "loss_burst_mean": Metric(_mean(bursts), "count"),
        "loss_burst_max": Metric(_longest(bursts), "count"),
        "reorder_extent_mean": Metric(_mean(extents), "count"),
        "reorder_extent_max": Metric(_longest(extents), "count"),
        **_delays(reports),
    }


def still_arriving(evidence: Evidence) -> Iterator[Finding]:
    """Receivers that had waited as long as they may after the last send, while datagrams still arrived."""
    flows = evidence.flows
    left = [count for flow in flows if (count := _outstanding(flow))]
    if not left:
        return
    sent = sum_of_flows(flows, lambda flow: flow.sent_units)
    of = f"of {sent:,.0f} datagrams" if sent else "datagrams"
    text = f"{sum(left):,.0f} {of} were outstanding when the receiver stopped counting, 20 s after the last was sent"
    yield (
        Verdict.UNDETERMINED,
        Reason(STILL_ARRIVING, f"{text}, while others still arrived: they are late or lost", metrics=_NOT_ARRIVED),
    )


def _outstanding(flow: Flow) -> float | None:
    """How many datagrams of a flow had not arrived when its receiver was cut off; 0 if it waited until none came."""
    datagrams = flow.report.get("datagrams") if flow.report else None
    if flow.report is None or not datagrams or (is_cut_off := datagrams.get("is_cut_off")) is None:
        return None
    return flow.report.get("lost") if is_cut_off else 0


MAX_IN_BUNDLE = 128
"""Datagrams that a kernel passes on as one (UDP_MAX_SEGMENTS since Linux 6.9): a drop may be all of them."""


def coalesced(flows: Sequence[Flow]) -> bool:
    """Whether datagrams passed a kernel in batches, so that those of a batch share one time."""
    return any(report.get("segmented") or report.get("coalesced") for report in datagram_reports(flows))


def _lengths(reports: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]] | None:
    found = [report.get(name) for report in reports]
    return [one for one in found if one] if found and all(found) else None


def _sum(lengths: Sequence[Mapping[str, Any]] | None, name: str) -> float | None:
    return None if lengths is None else sum(one[name] for one in lengths)


def _mean(lengths: Sequence[Mapping[str, Any]] | None) -> float | None:
    count, total = _sum(lengths, "count"), _sum(lengths, "sum")
    return total / count if count and total is not None else None


def _longest(lengths: Sequence[Mapping[str, Any]] | None) -> float | None:
    return None if lengths is None else max(one["longest"] for one in lengths)


def _known_delays(reports: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [delay for report in reports if (delay := report.get("one_way_delay"))]


def _delays(reports: Sequence[Mapping[str, Any]]) -> dict[str, Metric]:
    """Delays, if both clocks are known well enough; the bound in any case."""
    delays = _known_delays(reports)
    bounds = [delay.get("bound_us") for delay in delays]
    bound = max((one for one in bounds if one is not None), default=None) if None not in bounds else None
    mean = sum(delay["mean_us"] for delay in delays) / len(delays) if delays else None
    is_known = mean is not None and bound is not None and bound <= MOST_BOUND_SHARE * mean
    known = delays if is_known and len(delays) == len(reports) else []
    return {
        "one_way_delay_min_us": Metric(min((one["min_us"] for one in known), default=None), "us"),
        "one_way_delay_mean_us": Metric(mean if known else None, "us"),
        "one_way_delay_max_us": Metric(max((one["max_us"] for one in known), default=None), "us"),
        "one_way_delay_bound_us": Metric(bound, "us"),
    }
