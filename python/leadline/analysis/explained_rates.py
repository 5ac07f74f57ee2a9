"""Whether something else than the CPUs sets a test's rate: a full link, a window, or a pace that was asked for.

A rate that lies within `EXPLAINED` of what its link carries cannot be higher on a quieter machine, nor with a faster
generator: it is known, and no lower bound. A link that something else fills, too, explains nothing: how it was shared
may be due to a lack of CPU. Times are doubted on their own. Pure.
"""

from __future__ import annotations

from leadline.analysis import loss_places, queues
from leadline.analysis.datagram_figures import coalesced
from leadline.analysis.link_use import measure_link_use
from leadline.analysis.metrics import sum_of_flows
from leadline.analysis.model import Limit, LimitedBy, Window
from leadline.analysis.rules import primary_rate_per_s, receivers_drops
from leadline.analysis.scope import EXPLAINED, LACKS, LACKS_OF_SENDERS
from leadline.analysis.tcp_kernel import reports
from leadline.analysis.validity import Evidence
from leadline.analysis.window import byte_curves, rate_per_s

OWN_SHARE = 0.95
"""Of what a link carried, from where on it counts as the test's own: the rest are packets that were sent again, and the
samples' instants."""
OWN_SHARE_IN_TUNNELS = 0.85
"""The same behind a tunnel, whose packets have headers of their own in them, and inner ones."""


def find_spared_lacks(evidence: Evidence, full: Limit | None) -> frozenset[str]:
    """The reasons by which the test's rate would be higher, and is not, because its link, a window, a pace or `full`, a
    part of the path that took no more, sets it. Of a gateway that had no CPU to spare other work may be the cause, and
    a receiver may have dropped what the path carried: then more that is sent makes the rate no higher, but nothing
    else is ruled out."""
    if is_rate_explained(evidence) or (full is not None and full.by is LimitedBy.LINK and _is_path_own(evidence)):
        return LACKS
    return LACKS_OF_SENDERS if full is not None else frozenset()


def is_rate_explained(evidence: Evidence) -> bool:
    """Whether the link, a window, or a pace explains the test's rate within 2 %."""
    window = evidence.window
    if window is None or window.end_ns <= window.start_ns or evidence.data.spec.connects_clients:
        return False
    if _has_receiver_drops(evidence):
        return False
    return _is_link_full(evidence, window) or _is_as_asked(evidence, window) or _is_window_full(evidence)


def _is_path_own(evidence: Evidence) -> bool:
    """Whether the test's flows alone filled the path, as far as interfaces tell, and its end took what came through."""
    window = evidence.window
    if window is None or _has_receiver_drops(evidence):
        return False
    busiest = max(measure_link_use(evidence.data, window), default=None)
    return busiest is None or _is_own(evidence, window, busiest.host, busiest.payload_bps)


def _has_receiver_drops(evidence: Evidence) -> bool:
    """Whether the receivers' own sockets, or what is before them, dropped more than a few of what the path carried."""
    sent = sum_of_flows(evidence.flows, lambda flow: flow.sent_units) or 0
    dropped = sum(count for count, _ in receivers_drops(evidence.data))
    dropped += sum(place.count for place in loss_places.before_sockets(evidence))
    return dropped > 0 if coalesced(evidence.flows) else dropped > 0 and dropped >= queues.DROPPED * sent


def _is_link_full(evidence: Evidence, window: Window) -> bool:
    """Whether a link carried all it could, nearly all of it for this test; where both sides send, both ways."""
    data = evidence.data
    uses = (use for use in measure_link_use(data, window) if use.share >= 1 - EXPLAINED)
    full = {use.is_sent for use in uses if _is_own(evidence, window, use.host, use.payload_bps)}
    if data.spec.direction == "both" and not data.spec.counts_units:
        return len(full) == 2
    shapers = queues.find_standing_shapers(data, window, 1 - EXPLAINED)
    return bool(full) or any(_is_own(evidence, window, one.host, one.payload_bps) for one in shapers)


def _is_own(evidence: Evidence, window: Window, host: str, payload_bps: float) -> bool:
    """Whether what a host's interface carried is what the test's flows moved. A lab's links carry nothing else."""
    data = evidence.data
    if data.in_lab:
        return True
    flows = [flow for flow in evidence.flows if flow.key.host == host or host not in data.hosts]
    arrived_per_s = rate_per_s(byte_curves(flows), window) or 0.0
    sent_per_s = sum(
        1e9 * flow.sent_bytes / (flow.end_ns - flow.start_ns)
        for flow in flows
        if flow.sent_bytes and flow.start_ns is not None and flow.end_ns is not None and flow.end_ns > flow.start_ns
    )
    share = OWN_SHARE_IN_TUNNELS if data.sut_processes else OWN_SHARE
    return 8.0 * max(arrived_per_s, sent_per_s) >= share * payload_bps


def _is_as_asked(evidence: Evidence, window: Window) -> bool:
    """Whether each client reached the rate that was asked for or that its kernel paces, or each connection of a closed
    loop waited for as long as its requests asked the server to."""
    data, spec = evidence.data, evidence.data.spec
    asked_bps = min((bps for bps in (data.asked_bps, data.pacing_bps) if bps), default=None)
    if asked_bps and (per_s := rate_per_s(byte_curves(evidence.flows), window)) is not None:
        directions = 2 if spec.direction == "both" else 1
        return 8.0 * per_s / directions >= (1 - EXPLAINED) * asked_bps
    connections = data.connections
    if spec.paced or not spec.asked_delay_s or not connections:
        return False
    rate = primary_rate_per_s(evidence)
    return rate is not None and rate * spec.asked_delay_s >= (1 - EXPLAINED) * connections


def _is_window_full(evidence: Evidence) -> bool:
    """Whether TCP's rate is what the receivers' windows allow in a round trip of the idle path. In one that is longer
    than that, something made the round trips longer."""
    if evidence.data.spec.counts_units:
        return False
    per_s = rate_per_s(byte_curves(evidence.flows), evidence.window)
    sending, receiving = reports(evidence.flows, "sender_tcp"), reports(evidence.flows, "receiver_tcp")
    windows = [one.get("receive_window_bytes") for one in receiving]
    trips_us = [one.get("rtt_min_us") for one in sending]
    if not per_s or not windows or len(windows) < len(evidence.flows) or len(windows) != len(trips_us):
        return False
    if None in windows or not all(trips_us):
        return False
    allowed_per_s = sum(1e6 * (size or 0.0) / (us or 1.0) for size, us in zip(windows, trips_us, strict=True))
    return abs(per_s - allowed_per_s) <= EXPLAINED * allowed_per_s
