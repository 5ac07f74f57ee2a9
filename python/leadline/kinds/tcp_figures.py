"""The figures of TCP flows: names, units and meaning, their values, and the lines of the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from leadline.kinds.service_demand_rows import brief_demand_row, demand_line
from leadline.plan.metric_specs import higher, lower, neither

if TYPE_CHECKING:
    from leadline.analysis.flows import Flow
    from leadline.analysis.model import Metric, TestResult
    from leadline.analysis.test_data import TestData

METRICS = (
    higher("throughput_bps", "payload received per second inside the steady window"),
    lower("retransmits", "TCP segments retransmitted from the flow's start to its end"),
    lower("rtt_mean_us", "mean of the smoothed round-trip time that the sender's kernel reports"),
    lower("rtt_idle_us", "shortest round-trip time before the test: that of the idle path"),
    lower("rtt_min_us", "shortest round-trip time that the sender's kernel measured"),
    lower("rtt_max_us", "longest sample of the smoothed round-trip time"),
    lower("rtt_variance_us", "mean variance of the round-trip time"),
    neither("congestion_window_bytes", "mean congestion window of a flow"),
    neither("pacing_bps", "mean rate at which the sender's kernel paces a flow"),
    higher("delivery_bps", "mean of a flow's delivery rate, which the sender's kernel measures"),
    neither("receive_window_bytes", "mean window that a receiver announced"),
    lower("out_of_order", "segments that arrived before one with a lower sequence number"),
    neither("receiver_limited_ratio", "share of the senders' time in which the receiver's window was full"),
    neither("send_buffer_limited_ratio", "share of the senders' time in which the send buffer was too small"),
    neither("path_limited_ratio", "share of the senders' time in which they waited for the path"),
    neither("sender_idle_ratio", "share of the senders' time without data to send"),
    lower("zerocopy_copied_ratio", "share of the sends by MSG_ZEROCOPY that the kernel copied after all"),
    lower("zerocopy_fallback_ratio", "share of the sends that went by sendfile, because MSG_ZEROCOPY had no room"),
    higher("tcp_efficiency_ratio", "bytes that were not retransmitted by bytes sent (RFC 6349)"),
    lower("buffer_delay_ratio", "growth of the mean round-trip time over that of the idle path (RFC 6349)"),
    lower("transfer_time_ratio", "time of the transfer by that at the line's rate (RFC 6349)"),
    higher("line_use_ratio", "payload by the payload that the line's rate leaves room for; null if both sides send"),
    *(
        spec
        for direction in ("up", "down")
        for spec in (
            lower(f"transfer_time_{direction}_ratio", f"the same of the direction {direction}, if both sides send"),
            higher(f"line_use_{direction}_ratio", f"share of the line's payload {direction}, if both sides send"),
        )
    ),
)


def kernel_figures(
    data: TestData, flows: Sequence[Flow], rates: Mapping[str, float | None], payload_share: float
) -> dict[str, Metric]:
    """The kernels' figures of both ends, RFC 6349's, and the service demand.

    `payload_share` is the share of the payload in the bytes that pass an interface.
    """
    from leadline.analysis.service_demand import service_demand
    from leadline.analysis.tcp_kernel import interface_bps, kernel_metrics, line_use, rfc_6349

    line_bps = data.spec.line_bps or data.link_bps or interface_bps(data, flows)
    achievable_bps = line_bps * payload_share if line_bps else None
    # With both directions, each has the line for itself, and the sum is no share of it.
    both = data.spec.direction == "both"
    by_direction = {
        name.replace("_ratio", f"_{direction}_ratio"): metric
        for direction in ("up", "down")
        for name, metric in line_use(rates.get(f"throughput_{direction}_bps"), achievable_bps if both else None).items()
    }
    return {
        **kernel_metrics(flows),
        **rfc_6349(flows),
        **line_use(rates["throughput_bps"], None if both else achievable_bps),
        **by_direction,
        **service_demand(data, flows, "byte"),
    }


def figure_rows(result: TestResult) -> list[tuple[str, str]]:
    """The lines of the summary; a line without a known figure is left out."""
    metrics = result.metrics

    def value(name: str) -> float | None:
        return metrics[name].value if name in metrics else None

    def said(*parts: tuple[str, str, str]) -> str:
        """The known ones of `words figure` (`{}` stands for the figure), separated by commas."""
        known = [(text, name, unit) for text, name, unit in parts if value(name) is not None]
        return ", ".join(text.format(_written(value(name), unit)) for text, name, unit in known)

    rows = [
        ("up", said(("{}", "throughput_up_bps", "bit/s"))),
        ("down", said(("{}", "throughput_down_bps", "bit/s"))),
        ("bytes", said(("{} sent", "sent_bytes", "bytes"), ("{} received", "received_bytes", "bytes"))),
        ("retransmits", said(("{}", "retransmits", "count"), ("{} out of order", "out_of_order", "count"))),
        (
            "round-trip time",
            said(
                ("mean {}", "rtt_mean_us", "us"),
                ("{} before the test", "rtt_idle_us", "us"),
                ("at most {}", "rtt_max_us", "us"),
            ),
        ),
        (
            "windows",
            said(
                ("congestion {}", "congestion_window_bytes", "bytes"),
                ("receiver's {}", "receive_window_bytes", "bytes"),
            ),
        ),
        ("rates", said(("paced at {}", "pacing_bps", "bit/s"), ("delivered at {}", "delivery_bps", "bit/s"))),
        (
            "sender waited for",
            said(
                ("receiver's window {}", "receiver_limited_ratio", "ratio"),
                ("send buffer {}", "send_buffer_limited_ratio", "ratio"),
                ("path {}", "path_limited_ratio", "ratio"),
                ("data {}", "sender_idle_ratio", "ratio"),
            ),
        ),
        (
            "zero copy",
            said(
                ("the kernel copied {} of the sends after all", "zerocopy_copied_ratio", "ratio"),
                ("{} went by sendfile instead", "zerocopy_fallback_ratio", "ratio"),
            ),
        ),
        (
            "RFC 6349",
            said(
                ("TCP efficiency {}", "tcp_efficiency_ratio", "ratio"),
                ("buffer delay {}", "buffer_delay_ratio", "ratio"),
                ("transfer-time ratio {}", "transfer_time_ratio", ""),
                ("{} of the line", "line_use_ratio", "ratio"),
                ("{} of the line up", "line_use_up_ratio", "ratio"),
                ("{} of the line down", "line_use_down_ratio", "ratio"),
            ),
        ),
        ("CPU per byte", demand_line(metrics, "byte")),
    ]
    return [(name, text) for name, text in rows if text]


_BRIEF = ("bytes", "retransmits", "round-trip time", "zero copy")


def brief_rows(result: TestResult) -> list[tuple[str, str]]:
    """The lines of the short summary."""
    return [
        *(row for row in figure_rows(result) if row[0] in _BRIEF),
        *brief_demand_row(result.metrics, "byte"),
    ]


def _written(value: float | None, unit: str) -> str:
    from leadline import quantities

    return f"{value:.3g}" if unit == "" and value is not None else quantities.metric(value, unit)
