"""The truths about a path between two hosts: what a link carries, what a wire loses, doubles, swaps and delays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

from leadline import quantities
from leadline.analysis.truths import Figure, Value
from leadline.errors import LeadlineError
from leadline.truths.hosts import link_site, wire_site
from leadline.truths.link_meter import Reading
from leadline.truths.model import DatagramLoad, FloodLoad, NotDecided, RoundTripLoad, StreamLoad, Truth
from leadline.truths.quantiles import quantiles_us
from leadline.truths.wire import Account, Behaviour

_SEGMENT_BYTES = 1448
"""TCP payload of a full Ethernet frame of 1,514 bytes."""
_LINK_BPS, _SLOW_BPS = 100_000_000, 10_000_000
_PACKET_BYTES = 1000
_UDP_HEADERS_BYTES = 42
"""Ethernet 14, IPv4 20, UDP 8."""
_DELAY_S = 0.010
_MIN_SEGMENTS = 100
_MIN_STEP_BYTES, _MIN_STEPS = 4000, 20
"""What arrives between two readings of a link that carries a load, and the least number of them."""
_FULL = 0.98
"""Of what a link can carry: one that carries less was not the limit all the time."""
_TCP_HEADERS_BYTES = 66
"""Ethernet 14, IPv4 20, TCP 20 and its timestamps 12."""


# --- What is true, by a wire's account --------------------------------------------------------------------------------


def read_datagrams(account: Account) -> Mapping[str, Value]:
    """What happened to the datagrams."""
    return {
        "sent": float(account.datagrams),
        "lost": float(account.dropped),
        "duplicates": float(account.duplicated),
        "reordered": float(account.swapped),
    }


def read_goodput(account: Account) -> Mapping[str, Value]:
    """The payload that the connection with the most of it brought to the server, per second."""
    left = [(at_s, size) for at_s, direction, size in _main_stream(account) if direction == 2]
    # What comes before the load introduces the connection.
    begin = next((number for number, (_, size) in enumerate(left) if size == _SEGMENT_BYTES), len(left))
    left = left[begin:]
    if len(left) < _MIN_SEGMENTS:
        raise LeadlineError("the wire between the hosts saw no load")
    return {
        "throughput_bps": 8 * sum(size for _, size in left) / (left[-1][0] - left[0][0]),
        "limited_by": "receiver's window",
    }


def read_link(payload_bytes: int, header_bytes: int, rate_bps: int, readings: Sequence[Reading]) -> Mapping[str, Value]:
    """The payload that a link of this rate brought to the server, per second, while it brought some; the headers are
    those of each packet.

    Raises:
        NotDecided: the sender left the link idle: it had no CPU.
    """
    steps = [(after[0], after[1] - before[1]) for before, after in pairwise(readings)]
    full = [number for number, (_, size) in enumerate(steps) if size >= _MIN_STEP_BYTES]
    if len(full) < _MIN_STEPS:
        raise LeadlineError("the link between the hosts carried no load")
    first, last = readings[full[0] + 1], readings[full[-1] + 1]
    seconds, size, packets = (last[field] - first[field] for field in range(3))
    goodput_bps = 8 * (size - packets * header_bytes) / seconds
    link_bps = rate_bps * payload_bytes / (payload_bytes + header_bytes)
    if goodput_bps < _FULL * link_bps:
        busy = quantities.rounded_share(goodput_bps / link_bps)
        raise NotDecided(f"the link was full for {busy} of the time: the sender had no CPU")
    return {"throughput_bps": goodput_bps, "limited_by": "link"}


def read_round_trips(account: Account) -> Mapping[str, Value]:
    """The time from a request's arrival at the wire to when its answer left it, on the client's side."""
    asked_s: float | None = None
    took_s = []
    for at_s, direction, _ in _main_stream(account):
        if direction == 0:
            asked_s = at_s
        elif direction == 1 and asked_s is not None:
            took_s.append(at_s - asked_s)
            asked_s = None
    return {**quantiles_us(took_s), "transactions": float(len(took_s))}


def _main_stream(account: Account) -> list[tuple[float, int, int]]:
    """The segments of the connection that carried the load: the one with the most of them."""
    if not account.streams:
        raise LeadlineError("the wire between the hosts saw no connection")
    return max(account.streams.values(), key=len)


# --- The truths -------------------------------------------------------------------------------------------------------

_SENT, _LOST, _DUPLICATES, _REORDERED = (Figure(name, "count") for name in ("sent", "lost", "duplicates", "reordered"))
_GOODPUT = Figure("throughput_bps", "bit/s", tolerance=0.015)
_LIMIT = Figure("limited_by", "")
_DATAGRAMS = DatagramLoad(rate_bps=8_000_000, packet_bytes=_PACKET_BYTES, number=2010)
_WIRE_LOG = "the wire between the hosts counts what it does"

TRUTHS = (
    Truth(
        "tcp-link",
        "what a link leaves for TCP",
        made="two hosts on a link of 100 Mbit/s (a token bucket, tbf)",
        known="the counters of the server's interface; by arithmetic 1,448 of the 1,514 bytes of a frame are payload",
        load=StreamLoad(duration_s=3),
        figures=(_GOODPUT, _LIMIT),
        site=partial(link_site, _LINK_BPS, partial(read_link, _SEGMENT_BYTES, _TCP_HEADERS_BYTES, _LINK_BPS)),
        needs_lab=True,
    ),
    Truth(
        "tcp-window",
        "a small receive window on a long path",
        made="two hosts with 10 ms between them in each direction; the server's receive buffer is 32 KiB at most",
        known="the wire's log of segments",
        load=StreamLoad(duration_s=3),
        figures=(Figure("throughput_bps", "bit/s", tolerance=0.03), _LIMIT),
        site=partial(wire_site, Behaviour(delay_s=_DELAY_S), read_goodput, {"net/ipv4/tcp_rmem": "4096 32768 32768"}),
        needs_lab=True,
    ),
    Truth(
        "udp-loss",
        "each lost datagram is counted",
        made="a wire that loses every 100th datagram",
        known=_WIRE_LOG,
        load=_DATAGRAMS,
        figures=(_SENT, _LOST),
        site=partial(wire_site, Behaviour(payload_bytes=_PACKET_BYTES, drop_every=100), read_datagrams, {}),
        needs_lab=True,
    ),
    Truth(
        "udp-duplicates",
        "what comes twice is neither lost nor out of order",
        made="a wire that passes every 50th datagram on twice, and loses every 101st",
        known=_WIRE_LOG,
        load=_DATAGRAMS,
        figures=(_SENT, _LOST, _DUPLICATES, _REORDERED),
        site=partial(
            wire_site, Behaviour(payload_bytes=_PACKET_BYTES, duplicate_every=50, drop_every=101), read_datagrams, {}
        ),
        needs_lab=True,
    ),
    Truth(
        "udp-reordering",
        "what comes late is not lost",
        made="a wire on which every 20th datagram is overtaken by the next one",
        known=_WIRE_LOG,
        load=_DATAGRAMS,
        figures=(_SENT, _LOST, _REORDERED),
        site=partial(wire_site, Behaviour(payload_bytes=_PACKET_BYTES, swap_every=20), read_datagrams, {}),
        needs_lab=True,
    ),
    Truth(
        "udp-deep-queue",
        "what still waits in a queue is not lost",
        made="a wire of 250 kbit/s with a queue that holds everything: the last datagram arrives 9 s after it was sent",
        known=_WIRE_LOG,
        load=DatagramLoad(rate_bps=2_000_000, packet_bytes=_PACKET_BYTES, number=300),
        figures=(_SENT, _LOST),
        site=partial(wire_site, Behaviour(payload_bytes=_PACKET_BYTES, rate_bps=250_000), read_datagrams, {}),
        needs_lab=True,
    ),
    Truth(
        "udp-slow-link",
        "what a link carries of datagrams that are three times too many",
        made="two hosts on a link of 10 Mbit/s (a token bucket, tbf)",
        known="the counters of the server's interface; by arithmetic 1,000 of the 1,042 bytes of a frame are payload",
        load=DatagramLoad(rate_bps=30_000_000, packet_bytes=_PACKET_BYTES, number=10_000),
        figures=(Figure("throughput_bps", "bit/s", tolerance=0.03), _LIMIT),
        site=partial(link_site, _SLOW_BPS, partial(read_link, _PACKET_BYTES, _UDP_HEADERS_BYTES, _SLOW_BPS)),
        needs_lab=True,
    ),
    Truth(
        "udp-flood",
        "what a link carries of datagrams without a rate",
        made="two hosts on a link of 10 Mbit/s (a token bucket, tbf)",
        known="the counters of the server's interface; by arithmetic 1,000 of the 1,042 bytes of a frame are payload",
        load=FloodLoad(packet_bytes=_PACKET_BYTES, duration_s=3),
        figures=(Figure("throughput_bps", "bit/s", tolerance=0.03), _LIMIT),
        site=partial(link_site, _SLOW_BPS, partial(read_link, _PACKET_BYTES, _UDP_HEADERS_BYTES, _SLOW_BPS)),
        needs_lab=True,
    ),
    Truth(
        "rr-delay",
        "the round trips of a long path",
        made="two hosts with 10 ms between them in each direction",
        known="the wire's log of requests and answers",
        load=RoundTripLoad(duration_s=3),
        figures=(
            Figure("latency_p50_us", "us", tolerance=0.05, slack=300),
            Figure("latency_p99_us", "us", tolerance=0.1, slack=500),
        ),
        site=partial(wire_site, Behaviour(delay_s=_DELAY_S), read_round_trips, {}),
        needs_lab=True,
    ),
)
