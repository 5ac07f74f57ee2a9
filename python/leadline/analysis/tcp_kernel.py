"""What the kernels of both ends report of a test's TCP connections (TCP_INFO), and RFC 6349's figures from it. Pure.

Means over flows weigh each flow alike; shares of time and of bytes are sums over flows, divided once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from leadline.analysis.flows import Flow
from leadline.analysis.model import Metric
from leadline.analysis.test_data import TestData
from leadline.contract import records

End = Literal["sender_tcp", "receiver_tcp"]
_NS = 1e9
_LOOPBACK = ("127.", "[::1]")


@dataclass(frozen=True, slots=True)
class TimeShares:
    """How the kernel spent the senders' time, each as a share of it; together 1."""

    receiver: float
    """The receiver's window was full."""
    send_buffer: float
    """The send buffer was too small."""
    path: float
    """What is left of the busy time: segments were under way, and congestion control or pacing let no more out."""
    idle: float
    """There was nothing to send: the sending program was slower."""


def reports(flows: Iterable[Flow], end: End) -> list[records.TcpReport]:
    """The reports of one end of each flow that has one."""
    return [found for flow in flows if flow.report is not None and (found := flow.report.get(end)) is not None]


def kernel_metrics(flows: Sequence[Flow]) -> dict[str, Metric]:
    """The kernels' figures of both ends."""
    sending, receiving = reports(flows, "sender_tcp"), reports(flows, "receiver_tcp")
    shares = time_shares(flows)
    return {
        "rtt_idle_us": Metric(_mean(one.get("rtt_idle_us") for one in sending), "us"),
        "rtt_min_us": Metric(_mean(one.get("rtt_min_us") for one in sending), "us"),
        "rtt_max_us": Metric(max(_known(one.get("rtt_max_us") for one in sending), default=None), "us"),
        "rtt_variance_us": Metric(_mean(one.get("rtt_variance_us") for one in sending), "us"),
        "congestion_window_bytes": Metric(_mean(one.get("congestion_window_bytes") for one in sending), "bytes"),
        "pacing_bps": Metric(_mean(one.get("pacing_bps") for one in sending), "bit/s"),
        "delivery_bps": Metric(_mean(one.get("delivery_bps") for one in sending), "bit/s"),
        "receive_window_bytes": Metric(_mean(one.get("receive_window_bytes") for one in receiving), "bytes"),
        "out_of_order": Metric(_sum(one.get("out_of_order") for one in receiving), "count"),
        "receiver_limited_ratio": Metric(shares.receiver if shares else None, "ratio"),
        "send_buffer_limited_ratio": Metric(shares.send_buffer if shares else None, "ratio"),
        "path_limited_ratio": Metric(shares.path if shares else None, "ratio"),
        "sender_idle_ratio": Metric(shares.idle if shares else None, "ratio"),
        **_zerocopy(sending),
    }


def time_shares(flows: Sequence[Flow]) -> TimeShares | None:
    """How the senders' time was spent; None if no kernel says it."""
    spent = [
        (busy, one.get("receiver_limited_s"), one.get("send_buffer_limited_s"), (flow.end_ns - flow.start_ns) / _NS)
        for flow in flows
        if flow.report is not None and (one := flow.report.get("sender_tcp")) is not None
        if (busy := one.get("busy_s")) is not None and flow.start_ns is not None and flow.end_ns is not None
    ]
    whole_s = sum(length_s for *_, length_s in spent)
    if whole_s <= 0:
        return None
    # What was left in the send buffer at the end goes on being sent: the kernel is then busy for longer than the flow.
    busy_s = sum(min(busy, length_s) for busy, _, _, length_s in spent)
    receiver_s, buffer_s = sum(one[1] or 0.0 for one in spent), sum(one[2] or 0.0 for one in spent)
    scale = min(1.0, busy_s / (receiver_s + buffer_s)) if receiver_s + buffer_s > 0 else 1.0
    receiver, buffer = scale * receiver_s / whole_s, scale * buffer_s / whole_s
    busy = busy_s / whole_s
    return TimeShares(receiver, buffer, max(0.0, busy - receiver - buffer), max(0.0, 1.0 - busy))


def line_use(goodput_bps: float | None, achievable_bps: float | None) -> dict[str, Metric]:
    """RFC 6349's transfer-time ratio, and its inverse. `achievable_bps` is the payload that the line's rate leaves room
    for; None if unknown."""
    known = bool(goodput_bps and achievable_bps)
    return {
        "transfer_time_ratio": Metric(achievable_bps / goodput_bps if known else None, "ratio"),  # type: ignore[operator]
        "line_use_ratio": Metric(goodput_bps / achievable_bps if known else None, "ratio"),  # type: ignore[operator]
    }


def rfc_6349(flows: Sequence[Flow]) -> dict[str, Metric]:
    """RFC 6349's figures that need no rate of the line.

    The buffer delay compares the mean round-trip time with that of the idle path before the test (4.1.2 there).
    """
    sending = reports(flows, "sender_tcp")
    sent, again = (
        _sum(one.get("sent_bytes") for one in sending),
        _sum(one.get("retransmitted_bytes") for one in sending),
    )
    delays = [
        (mean_us - idle_us) / idle_us
        for one in sending
        if (idle_us := one.get("rtt_idle_us")) and (mean_us := one.get("rtt_mean_us")) is not None
    ]
    return {
        "tcp_efficiency_ratio": Metric((sent - again) / sent if sent and again is not None else None, "ratio"),
        "buffer_delay_ratio": Metric(max(0.0, sum(delays) / len(delays)) if delays else None, "ratio"),
    }


def interface_bps(data: TestData, flows: Sequence[Flow]) -> float | None:
    """The speed of the only device of each host, the slowest of them; None if a host has several or none, or if the
    flows did not leave their host."""
    remote = [str(flow.report.get("remote") or "") for flow in flows if flow.report is not None]
    if any(address.startswith(_LOOPBACK) for address in remote):
        return None
    speeds = []
    for facts in data.facts.values():
        found = [speed for one in facts.get("interfaces") or () if (speed := one.get("speed_bps"))]
        if len(found) != 1:
            return None
        speeds += found
    return float(min(speeds)) if speeds else None


def _zerocopy(sending: Sequence[records.TcpReport]) -> dict[str, Metric]:
    sends = _sum(one.get("zerocopy_sends") for one in sending)
    copied = _sum(one.get("zerocopy_copied") for one in sending) or 0.0
    fallbacks = _sum(one.get("zerocopy_fallbacks") for one in sending)
    tried = (sends or 0.0) + (fallbacks or 0.0)
    return {
        "zerocopy_copied_ratio": Metric(copied / sends if sends else None, "ratio"),
        "zerocopy_fallback_ratio": Metric(fallbacks / tried if fallbacks is not None and tried else None, "ratio"),
    }


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return sum(known) / len(known) if known else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return float(sum(known)) if known else None
