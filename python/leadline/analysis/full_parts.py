"""Parts of the path that took all they could: sockets of receivers that dropped datagrams, and links at their rate.
What each took is its own figure, however much more was sent. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline import quantities
from leadline.analysis import loss_places, queues
from leadline.analysis.advice import ADVICE
from leadline.analysis.datagram_figures import MOST_IN_BUNDLE, coalesced
from leadline.analysis.interfaces import BETWEEN_FRAMES_BYTES, LEAST_TUNNEL_BYTES, header_bytes, wire_bytes
from leadline.analysis.metrics import reported, sum_of_flows
from leadline.analysis.model import Limit, LimitedBy, Window
from leadline.analysis.rules import receivers_drops
from leadline.analysis.test_data import TestData
from leadline.analysis.validity import Evidence

LINK_FULL = 0.97
"""Of a link's rate, from where on the link counts as the limit: a shaper gives a few percent less or more."""


def of_sockets(evidence: Evidence) -> Iterator[Limit]:
    """Receivers whose own sockets dropped more than the others' lack of CPU explains: that much more was sent, and
    arrived."""
    sent = sum_of_flows(evidence.flows, lambda flow: flow.sent_units) or 0
    dropped = receivers_drops(evidence.data)
    number = sum(one for one, _ in dropped)
    if coalesced(evidence.flows):
        yield from _full_for_bundles(evidence, sent, number, " and ".join(dict.fromkeys(name for _, name in dropped)))
        return
    for before in loss_places.before_sockets(evidence):
        if sent and before.count >= queues.DROPPED * sent:
            share, of_sent = quantities.share(before.count / sent), f"of the datagrams sent ({before.count:,})"
            text = f"{before.host} dropped {share} {of_sent} on {' and '.join(before.interfaces)}, before its sockets"
            clause = f"the receiver's backlog is the limit: it drops {share}"
            yield Limit(LimitedBy.ANSWERING_SIDE, text, clause, ADVICE["receiver-backlog-drops"])
    if sent and number >= queues.DROPPED * sent:
        where = " and ".join(dict.fromkeys(name for _, name in dropped))
        share = quantities.share(number / sent)
        text = f"the socket on {where} dropped {share} of the datagrams sent ({number:,}): its buffer was full"
        clause = f"the receiver's socket is the limit: it drops {share}"
        yield Limit(LimitedBy.ANSWERING_SIDE, text, clause, ADVICE["receiver-socket-drops"])


def _full_for_bundles(evidence: Evidence, sent: float, number: int, where: str) -> Iterator[Limit]:
    """The same where each drop was a bundle of datagrams: the loss counts, if that many bundles may be most of it."""
    lost = reported(evidence.flows, "lost").value or 0
    before = list(loss_places.before_sockets(evidence))
    places = [*([f"the socket on {where}"] if number else []), *(f"{one.host}, before its sockets," for one in before)]
    bundles = number + sum(one.count for one in before)
    if sent and lost >= queues.DROPPED * sent and 2 * MOST_IN_BUNDLE * bundles >= lost:
        share = quantities.share(lost / sent)
        text = f"{' and '.join(places)} dropped {bundles:,} bundles of datagrams; {share} of those sent are lost"
        clause, code = f"the receiver is the limit: {share} is lost there", "receiver-socket-drops"
        yield Limit(LimitedBy.ANSWERING_SIDE, text, clause, ADVICE[code if number else "receiver-backlog-drops"])


def of_links(data: TestData, window: Window) -> Iterator[Limit]:
    """The fullest link, if its rate left no more: of a lab, or one whose speed an interface knows."""
    fullest = max(_used(data, window), default=None)
    if fullest is not None and fullest[0] >= LINK_FULL:
        share, rate_bps, where = fullest
        text = f"{where} carried {share * rate_bps / 1e6:.4g} of {rate_bps / 1e6:.4g} Mbit/s, headers included"
        yield Limit(LimitedBy.LINK, text, f"the link is the limit at {quantities.share(share)} of its rate")


def _used(data: TestData, window: Window) -> Iterator[tuple[float, float, str]]:
    """The use of each host's interfaces in both directions: the bits on the wire as a share of the link's rate, the
    rate in bit/s, and where it is."""
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
                yield 8.0 * carried / seconds / rate_bps, rate_bps, f"{use.name} of {host} ({way})"
