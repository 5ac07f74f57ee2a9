"""Why TCP flows were not faster, from what the senders' kernels say of their time. Pure.

It is the rate that was asked for, pacing, the receiver's window, the send buffer, the congestion window, or a program
that had nothing to send.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline import quantities
from leadline.analysis.metrics import sum_of_flows
from leadline.analysis.model import Limit, LimitedBy
from leadline.analysis.scope import EXPLAINED
from leadline.analysis.tcp_kernel import TimeShares, time_shares
from leadline.analysis.test_spec import TestSpec
from leadline.analysis.validity import Evidence
from leadline.analysis.window import byte_curves, rate_per_s

REACHED = 1 - EXPLAINED
"""Of a rate that was asked for, from where on it counts as reached."""
DOMINATES = 0.5
"""Of the senders' time, from where on one part of it explains the rate."""


def limits(evidence: Evidence) -> Iterator[Limit]:
    """What held the flows back; nothing if no part explains most of their time."""
    spec = evidence.data.spec
    shares = _shares(evidence)
    if shares is None:
        return
    per_s = rate_per_s(byte_curves(evidence.flows), evidence.window)
    ends = max(1, len(evidence.data.hosts)) * (2 if spec.direction == "both" else 1)
    yield from _asked_for(spec, None if per_s is None else 8.0 * per_s / ends)
    yield from _held_back(evidence, shares)


def limits_of_program(evidence: Evidence) -> Iterator[Limit]:
    """The sending program, if it had nothing to send for most of the time. One that waited for a CPU has another
    reason: ask for that before."""
    shares = _shares(evidence)
    if shares is not None and shares.idle >= DOMINATES:
        by, text = LimitedBy.SENDING_PROGRAM, "the sending program had nothing to send"
        yield Limit(by, f"{text} {quantities.share(shares.idle)} of the time", f"the {by.value} is the limit")


def _shares(evidence: Evidence) -> TimeShares | None:
    spec = evidence.data.spec
    return None if spec.counts_units or spec.connects_clients else time_shares(evidence.flows)


def _asked_for(spec: TestSpec, reached_bps: float | None) -> Iterator[Limit]:
    for asked_bps, by, what in (
        (spec.asked_bps, LimitedBy.OFFERED_RATE, "the rate that was asked for"),
        (spec.pacing_bps, LimitedBy.PACING, "the rate at which the kernel has to pace the flows"),
    ):
        if asked_bps and reached_bps is not None and reached_bps >= REACHED * asked_bps:
            share = quantities.share(min(1.0, reached_bps / asked_bps))
            yield Limit(by, f"the flows reached {share} of {what}, {quantities.bit_rate(asked_bps)}")


def _held_back(evidence: Evidence, shares: TimeShares) -> Iterator[Limit]:
    parts = (
        (shares.receiver, LimitedBy.RECEIVER_WINDOW, "the receiver's window was full", ""),
        (shares.send_buffer, LimitedBy.SEND_BUFFER, "the send buffer held less than the path", ""),
        (shares.congestion, LimitedBy.CONGESTION_WINDOW, "the congestion window was full", _losses(evidence)),
    )
    share, by, text, more = max(parts, key=lambda part: part[0])
    if share >= DOMINATES:
        yield Limit(by, f"{text} {quantities.share(share)} of the time{more}", f"the {by.value} is the limit")


def _losses(evidence: Evidence) -> str:
    again = sum_of_flows(evidence.flows, lambda flow: flow.report.get("retransmits") if flow.report else None)
    if again is None:
        return ""
    if not again:
        return ", without a loss: the path was full"
    return f", with {quantities.counted(round(again), 'segment')} lost and sent again"
