"""Why TCP flows were not faster, from what the senders' kernels say of their time. Pure.

It is the rate that was asked for, pacing, the receiver's window, the send buffer, the path, or a program that had
nothing to send.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from leadline import quantities
from leadline.analysis.metrics import sum_of_flows
from leadline.analysis.model import Limit, LimitedBy
from leadline.analysis.scope import EXPLAINED
from leadline.analysis.tcp_kernel import End, TimeShares, reports, time_shares
from leadline.analysis.test_data import TestData
from leadline.analysis.validity import Evidence
from leadline.analysis.window import byte_curves, rate_per_s

REACHED = 1 - EXPLAINED
"""Of a rate that was asked for, from where on it counts as reached."""
FILLED = 0.9
"""Of the receiver's windows, from where on what is under way fills them: windows and times are means of samples."""
FILLED_BELOW = 0.7
"""The same where the congestion windows were larger, which therefore did not bound it."""
NO_QUEUE = 1.5
"""Times the round trip of the idle path, up to which no queue explains it: in a queue any window fills."""
MAINLY = 0.7
"""Of the senders' time, at most the rest of which passed with a short send buffer, or without data to send."""
DOMINATES = 0.5
"""Of the senders' time, from where on one part of it explains the rate."""


def limits(evidence: Evidence) -> Iterator[Limit]:
    """What held the flows back; nothing if no part explains most of their time."""
    spec = evidence.data.spec
    shares = _shares(evidence)
    if shares is None:
        return
    per_s = rate_per_s(byte_curves(evidence.flows), evidence.window)
    directions = 2 if spec.direction == "both" else 1
    yield from _asked_for(evidence.data, None if per_s is None else 8.0 * per_s / directions)
    if shares.path + shares.receiver >= MAINLY:
        yield from _filled_windows(evidence, per_s)
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


def _asked_for(data: TestData, reached_bps: float | None) -> Iterator[Limit]:
    # A rate is that of each client, unless they share it.
    clients = 1 if data.host_specs.is_split else data.client_count
    in_all = " in all" if data.host_specs.is_split and len(data.hosts) > 1 else ""
    for asked_bps, by, what in (
        (data.asked_bps, LimitedBy.OFFERED_RATE, "the rate that was asked for"),
        (data.pacing_bps, LimitedBy.PACING, "the rate at which the kernel has to pace the flows"),
    ):
        if asked_bps and reached_bps is not None and reached_bps >= REACHED * asked_bps:
            share = quantities.share(min(1.0, reached_bps / asked_bps))
            yield Limit(by, f"the flows reached {share} of {what}, {quantities.bit_rate(asked_bps / clients)}{in_all}")


def _held_back(evidence: Evidence, shares: TimeShares) -> Iterator[Limit]:
    parts = (
        (shares.receiver, LimitedBy.RECEIVER_WINDOW, "the receiver's window was full", ""),
        (shares.send_buffer, LimitedBy.SEND_BUFFER, "the send buffer held less than the path", ""),
        (shares.path, LimitedBy.PATH, "the senders waited for the path", _losses(evidence)),
    )
    share, by, text, more = max(parts, key=lambda part: part[0])
    if share >= DOMINATES:
        yield Limit(by, f"{text} {quantities.share(share)} of the time{more}", f"the {by.value} is the limit")


def _filled_windows(evidence: Evidence, per_s: float | None) -> Iterator[Limit]:
    """Receiver's windows that were full of what was under way: a sender that paces itself hardly runs into them, and
    its kernel counts that time as busy."""
    windows, round_trip_us = _sum(evidence, "receiver_tcp", "receive_window_bytes"), _mean_rtt_us(evidence)
    if per_s is None or not windows or round_trip_us is None:
        return
    filled = per_s * round_trip_us / 1e6 / windows
    congestion = _sum(evidence, "sender_tcp", "congestion_window_bytes")
    if filled >= (FILLED_BELOW if congestion is not None and congestion > windows else FILLED):
        each = windows / len(evidence.flows)
        what = f"{quantities.metric(each, 'bytes')} in {quantities.microseconds(round_trip_us)}"
        text = f"the rate is {quantities.rounded_share(filled)} of the receiver's window by the round-trip time, {what}"
        yield Limit(LimitedBy.RECEIVER_WINDOW, text, f"the {LimitedBy.RECEIVER_WINDOW.value} is the limit")


def _sum(
    evidence: Evidence, end: End, name: Literal["receive_window_bytes", "congestion_window_bytes"]
) -> float | None:
    """A window over all flows; None if one of them does not tell it."""
    known = [one.get(name) for one in reports(evidence.flows, end)]
    sizes = [size for size in known if size is not None]
    return sum(sizes) if len(sizes) == len(evidence.flows) else None


def _mean_rtt_us(evidence: Evidence) -> float | None:
    """The mean round-trip time; None if it is unknown, or that of a queue on the path."""
    sending = reports(evidence.flows, "sender_tcp")
    means = [mean_us for one in sending if (mean_us := one.get("rtt_mean_us"))]
    idle = [idle_us for one in sending if (idle_us := one.get("rtt_idle_us") or one.get("rtt_min_us"))]
    if not means or not idle or sum(means) / len(means) > NO_QUEUE * sum(idle) / len(idle):
        return None
    return sum(means) / len(means)


def _losses(evidence: Evidence) -> str:
    again = sum_of_flows(evidence.flows, lambda flow: flow.report.get("retransmits") if flow.report else None)
    if again is None:
        return ""
    if not again:
        return ", without a loss"
    return f", with {quantities.counted(round(again), 'segment')} lost and sent again"
