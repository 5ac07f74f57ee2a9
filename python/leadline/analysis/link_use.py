"""How full the links of a test were: what interfaces carried in each direction, as a share of the link's rate. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from leadline.analysis import queues
from leadline.analysis.interfaces import BETWEEN_FRAMES_BYTES, LEAST_TUNNEL_BYTES, header_bytes, wire_bytes
from leadline.analysis.model import Window
from leadline.analysis.test_data import TestData

_PAST_ITS_SHAPER = 1.1
"""Of the link's rate: raw frames pass the queue by in which a lab's link has its rate, and then say nothing of it."""


class LinkUse(NamedTuple):
    """One direction of a link, at an interface."""

    share: float
    """The bits on the wire as a share of the link's rate."""
    rate_bps: float
    where: str
    """The interface, its host and the direction, for a sentence."""
    is_sent: bool
    """Whether it is what the interface sent, and not what it received."""
    host: str
    """The host of the interface."""
    payload_bps: float
    """What it carried without the headers of each packet, or of a tunnel's, at least."""


def measure_link_use(data: TestData, window: Window) -> Iterator[LinkUse]:
    """The use of each host's interfaces whose link's rate is known: a lab's, or the speed that the driver reports."""
    # A tunnel's packets have other headers than the load's, and interfaces do not say which they counted in bundles.
    headers = min(header_bytes(data.spec), LEAST_TUNNEL_BYTES) if data.sut_processes else header_bytes(data.spec)
    for host, samples in data.samples.items():
        inside = [sample for sample in samples if window.start_ns <= sample.t_ns <= window.end_ns]
        if len(inside) < 2:
            continue
        first, last = inside[0], inside[-1]
        seconds = (last.t_ns - first.t_ns) / 1e9
        before = {use.name: use for use in first.interfaces}
        known = {one.get("name"): one for one in data.facts.get(host, {}).get("interfaces") or ()}
        for use in last.interfaces:
            own = known.get(use.name, {})
            rate_bps = data.link_bps or own.get("speed_bps")
            if use.name not in before or use.name == "lo" or not rate_bps:
                continue
            mtu_bytes = data.link_mtu_bytes if data.link_bps else own.get("mtu") or data.link_mtu_bytes
            for number, way in enumerate(("received", "sent")):
                grown = queues.grown(before[use.name], use, number)
                # A lab's shaper counts frames as interfaces do.
                between = 0 if data.link_bps else BETWEEN_FRAMES_BYTES
                carried = wire_bytes(*grown, mtu_bytes, headers, between)
                share, where = 8.0 * carried / seconds / rate_bps, f"{use.name} of {host} ({way})"
                if share > _PAST_ITS_SHAPER:
                    continue
                # A bundle has the headers of one packet.
                payload_bps = 8.0 * (grown[0] - grown[1] * headers) / seconds
                yield LinkUse(share, rate_bps, where, number == 1, host, payload_bps)
