"""Queues that were full: an interface's drops, and the drops of the queueing discipline by which packets leave it.

A queue drops because packets come faster than they can leave. In front of a lab's link, and on a host that sends or
answers, what they leave by is the link; on a gateway it is the gateway's own. A few drops are how TCP finds its rate,
so they count where they are a share of the packets, or where the queue was hardly ever empty. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from leadline import quantities
from leadline.analysis.interfaces import header_bytes, wire_bytes
from leadline.analysis.model import Limit, LimitedBy, Window
from leadline.analysis.rules import receivers_drops
from leadline.analysis.test_data import HostSample, InterfaceUse, QueueUse, TestData
from leadline.plan.gateway_metrics import GATEWAYS

DROPPED = 0.01
"""Of the packets at an interface, from where on its queue counts as the limit."""
NOTICED = 0.001
"""Of what arrived at a tunnel's sockets, from where on drops tell beside busy CPUs."""
OVERFLOWING = 0.1
"""Of the packets, from where on no busy sender explains the rate: bursts of one that is at its own limit lose less."""
STANDING = 0.9
"""Of the samples, from where on a queue that drops and holds packets counts as never empty."""
LEAST_SAMPLES = 8
"""Fewer samples do not show that a queue was never empty."""

MAIN_SHARE = 0.5
"""Of the bytes that a host's busiest interface sent, from where on another one carries the load, too."""
LEAST_DROPS = 10
"""Fewer drops are no evidence, whatever their share."""

EVEN = 0.05
"""By how much of the median rate a shaper's output may differ from sample to sample: what waits for something else
comes less evenly."""
_RATE, _DELAY = "tbf", "netem"
"""Disciplines that give a lab's link its rate, and its delay."""
_SHAPERS = frozenset({"tbf", "htb", "hfsc", "cake"})
"""Disciplines that send at a rate of their own."""
_DELAYS = frozenset({"netem", "fq"})
"""Disciplines that hold packets for another reason than that the link is busy."""
_QUEUE = "look first at the queue of {}: its length, its rate, and what lies behind it"
_SOCKET = (
    "look first at the tunnel's socket on {}: a larger buffer (net.core.rmem_max, net.core.rmem_default) holds what "
    "comes while its process is kept from reading"
)


def of_links(data: TestData, window: Window, least: float = DROPPED) -> Iterator[Limit]:
    """Queues in front of links: the shapers of a lab, and those of given hosts that are no gateways. `least` is the
    share of the packets from which on drops alone count."""
    for host in data.samples:
        is_gateway = host in GATEWAYS
        for queue, text, what in _full(data.samples[host], window, host, least):
            if _is_the_labs(queue, data) if data.in_lab else not is_gateway:
                yield Limit(LimitedBy.LINK, text, f"the link is the limit: its queue on {host} {what}")


def find_standing_shapers(data: TestData, window: Window, least: float) -> Iterator[Shaper]:
    """Shapers on the path, of sending hosts and gateways, that held packets in this share of the samples and let them
    out evenly: they gave the rate, whatever the hosts did. Other queues may also wait for a host that reads them."""
    gateways = [host for host in data.samples if host in GATEWAYS]
    return (one for one in _standing_shapers(data, window, (*_senders(data), *gateways)) if one.held >= least)


def of_shapers(data: TestData, window: Window) -> Iterator[Limit]:
    """Shapers of the sending hosts' own interfaces. TCP keeps what waits in its own host so short that nothing is
    dropped."""
    for one in _standing_shapers(data, window, _senders(data)):
        rate = quantities.bit_rate(one.rate_bps)
        text = f"{one.what} held packets {quantities.rounded_share(one.held)} of the time, and let out {rate}"
        yield Limit(LimitedBy.LINK, text, f"the link is the limit: {one.what} lets out {rate}")


class Shaper(NamedTuple):
    """A shaper that always held packets."""

    what: str
    """The shaper, its interface and host, for a sentence."""
    held: float
    """The share of the samples in which it held packets."""
    rate_bps: float
    """Of what it let out, each packet's headers included."""
    host: str
    """The host of its interface."""
    payload_bps: float
    """Of the same without these headers."""


def _senders(data: TestData) -> tuple[str, ...]:
    hosts = tuple(data.hosts) if data.spec.direction != "down" else ()
    return (*hosts, "server") if data.spec.direction != "up" else hosts


def _standing_shapers(data: TestData, window: Window, hosts: Iterable[str]) -> Iterator[Shaper]:
    """Shapers of the hosts' interfaces on the path that always held packets, and let them out evenly."""
    for host in hosts:
        around = _around([sample for sample in data.samples.get(host, ()) if sample.queues], window)
        for name in dict.fromkeys(queue.name for sample in around for queue in sample.queues):
            read = [(sample, queue) for sample in around for queue in sample.queues if queue.name == name]
            kind = read[-1][1].kind
            rates_bps = _even_rates_bps([sample for sample, _ in read], name, data, host)
            held = sum(1 for _, queue in read if queue.backlog_bytes > 0) / len(read)
            if kind in _SHAPERS and held >= STANDING and rates_bps is not None and _on_path(around, name):
                rate_bps, payload_bps = rates_bps
                yield Shaper(f"the shaper ({kind}) of {name} on {host}", held, rate_bps, host, payload_bps)


def _even_rates_bps(samples: Sequence[HostSample], name: str, data: TestData, host: str) -> tuple[float, float] | None:
    """The rate of what an interface sent, with each packet's headers and without them; None if the samples are too few,
    or mostly differ from their median."""
    sent = [(one.t_ns, use.counted[1][0]) for one in samples for use in one.interfaces if use.name == name]
    if len(sent) <= LEAST_SAMPLES:
        return None
    rates = [8e9 * (after[1] - before[1]) / (after[0] - before[0]) for before, after in pairwise(sent)]
    middle = median(rates)
    even = sum(1 for rate in rates if abs(rate - middle) <= EVEN * middle)
    if middle <= 0 or even < MAIN_SHARE * len(rates):
        return None
    facts = data.facts.get(host, {}).get("interfaces") or ()
    mtu_bytes = next((one.get("mtu") for one in facts if one.get("name") == name), None) or data.link_mtu_bytes
    first, last = (next(use for use in one.interfaces if use.name == name) for one in (samples[0], samples[-1]))
    headers, (count, packets) = header_bytes(data.spec), grown(first, last, 1)
    carried, length_ns = wire_bytes(count, packets, mtu_bytes, headers), sent[-1][0] - sent[0][0]
    return 8e9 * carried / length_ns, 8e9 * (count - packets * headers) / length_ns


def of_gateway(data: TestData, gateway: str, window: Window, least: float = DROPPED) -> Iterator[Limit]:
    """Queues of a gateway that are not in front of a lab's link, and interfaces that dropped packets."""
    samples = [sample for sample in data.samples[gateway] if window.start_ns <= sample.t_ns <= window.end_ns]
    if len(samples) >= 2:
        yield from _of_interfaces(samples, gateway, least)
    for queue, text, what in _full(data.samples[gateway], window, gateway, least):
        if not (data.in_lab and _is_the_labs(queue, data)):
            clause = f"the gateway's queue is the limit: it {what}"
            yield Limit(LimitedBy.GATEWAY, text, clause, _QUEUE.format(f"{queue.name} on {gateway}"))


def _is_the_labs(queue: QueueUse, data: TestData) -> bool:
    """Whether a discipline is that of a lab's link: where links have no rate, a system under test made it."""
    return queue.kind == _DELAY or (queue.kind == _RATE and bool(data.link_bps))


def of_tunnel_sockets(data: TestData, host: str, window: Window, least: float = DROPPED) -> Iterator[Limit]:
    """UDP sockets of a host on which a tunnel ends, whose process did not read what arrived in time. What the sockets
    of the load itself dropped is not the tunnel's."""
    known = [(sample, sample.datagrams) for sample in data.samples[host] if sample.datagrams is not None]
    around = {sample.t_ns: counts for sample, counts in known}
    read = [around[sample.t_ns] for sample in _around([sample for sample, _ in known], window)]
    if len(read) < 2:
        return
    own = sum(dropped for dropped, where in receivers_drops(data) if where == host)
    arrived, dropped = read[-1][0] - read[0][0], read[-1][1] - read[0][1] - own
    if dropped >= LEAST_DROPS and arrived >= 0 and dropped >= least * (arrived + dropped):
        share = quantities.rounded_share(dropped / (arrived + dropped), 1)
        text = (
            f"sockets on {host} dropped {share} of the datagrams that arrived ({dropped:,}): they were not read in time"
        )
        clause = f"the tunnel's socket on {host} is the limit: it drops {share}"
        yield Limit(LimitedBy.GATEWAY, text, clause, _SOCKET.format(host))


def _of_interfaces(samples: Sequence[HostSample], gateway: str, least: float) -> Iterator[Limit]:
    """Interfaces of the gateway that dropped packets, since their own queue was full."""
    before = {use.name: use for use in samples[0].interfaces}
    for use in samples[-1].interfaces:
        if use.name not in before or use.name == "lo":
            continue
        for number, way in enumerate(("received", "to send")):
            _, packets = grown(before[use.name], use, number)
            dropped = use.dropped[number] - before[use.name].dropped[number]
            if dropped >= least * (packets + dropped) and dropped > 0:
                share = quantities.rounded_share(dropped / (packets + dropped), 1)
                text = f"{use.name} of {gateway} dropped {share} of the packets {way}: its queue was full"
                clause = f"the gateway's queue is the limit: it drops {share}"
                yield Limit(LimitedBy.GATEWAY, text, clause, _QUEUE.format(f"{use.name} on {gateway}"))


def grown(first: InterfaceUse, last: InterfaceUse, way: int) -> tuple[int, int]:
    """Bytes and packets in one direction."""
    return last.counted[way][0] - first.counted[way][0], last.counted[way][1] - first.counted[way][1]


def _full(
    samples: Sequence[HostSample], window: Window, host: str, least: float
) -> Iterator[tuple[QueueUse, str, str]]:
    """Queues that were full: at their end, the evidence, and what each does."""
    around = _around([sample for sample in samples if sample.queues], window)
    for name in dict.fromkeys(queue.name for sample in around for queue in sample.queues):
        if not _on_path(around, name):
            continue
        read = [queue for sample in around for queue in sample.queues if queue.name == name]
        evidence = _evidence(read, host, least)
        if evidence is not None:
            yield read[-1], *evidence


def _evidence(read: Sequence[QueueUse], host: str, least: float) -> tuple[str, str] | None:
    """The evidence that one queue was full, and what it does; None if it was not."""
    dropped, packets = read[-1].drops - read[0].drops, read[-1].packets - read[0].packets
    if dropped < LEAST_DROPS or packets < 0:
        return None
    share = dropped / (packets + dropped)
    held = sum(1 for queue in read if queue.backlog_bytes > 0) / len(read)
    where = f"the queue ({read[-1].kind}) of {read[-1].name} on {host}"
    if share >= least:
        dropping = quantities.rounded_share(share, 1)
        return f"{where} dropped {dropping} of the packets to send: it was full", f"drops {dropping}"
    if held >= STANDING and len(read) >= LEAST_SAMPLES and read[-1].kind not in _DELAYS:
        full = quantities.rounded_share(held)
        text = f"{where} held packets {full} of the time and dropped {dropped:,}: more came than could leave"
        return text, f"is hardly ever empty, and drops {quantities.count(dropped)} packets"
    return None


def _on_path(samples: Sequence[HostSample], name: str) -> bool:
    """Whether an interface sent at least half as much as the one that sent most: others carry no load of the test."""
    first = {use.name: use for use in samples[0].interfaces}
    sent = {use.name: grown(first[use.name], use, 1)[0] for use in samples[-1].interfaces if use.name in first}
    return name not in sent or sent[name] >= MAIN_SHARE * max(sent.values())


def _around(samples: Sequence[HostSample], window: Window) -> list[HostSample]:
    """The samples inside the window, with those next to it where it is too short to have two."""
    inside = [sample for sample in samples if window.start_ns <= sample.t_ns <= window.end_ns]
    if len(inside) >= 2:
        return inside
    before = [sample for sample in samples if sample.t_ns < window.start_ns][-1:]
    after = [sample for sample in samples if sample.t_ns > window.end_ns][:1]
    return [*before, *inside, *after]
