"""Parts of the path that took all they could: sockets of receivers that dropped datagrams, and links at their rate.
What each took is its own figure, however much more was sent. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline import quantities
from leadline.analysis import loss_places, queues
from leadline.analysis.advice import ADVICE
from leadline.analysis.datagram_figures import MAX_IN_BUNDLE, coalesced
from leadline.analysis.link_use import measure_link_use
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
    if sent and lost >= queues.DROPPED * sent and 2 * MAX_IN_BUNDLE * bundles >= lost:
        share = quantities.share(lost / sent)
        text = f"{' and '.join(places)} dropped {bundles:,} bundles of datagrams; {share} of those sent are lost"
        clause, code = f"the receiver is the limit: {share} is lost there", "receiver-socket-drops"
        yield Limit(LimitedBy.ANSWERING_SIDE, text, clause, ADVICE[code if number else "receiver-backlog-drops"])


def of_links(data: TestData, window: Window, least: float) -> Iterator[Limit]:
    """The fullest link, if it is full from this share on: of a lab, or one whose speed an interface knows."""
    fullest = max(measure_link_use(data, window), default=None)
    if fullest is not None and fullest.share >= least:
        share, rate_bps, where = fullest.share, fullest.rate_bps, fullest.where
        text = f"{where} carried {share * rate_bps / 1e6:.4g} of {rate_bps / 1e6:.4g} Mbit/s, headers included"
        yield Limit(LimitedBy.LINK, text, f"the link is the limit at {quantities.share(share)} of its rate")
