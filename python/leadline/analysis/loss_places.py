"""Where datagrams were lost that a receiving host had already taken from its link: before they reached a socket; and
those that a sending host's own interface dropped, as a veth does whose far end does not keep up.

A CPU's backlog (net.core.netdev_max_backlog) and an interface's own ring drop what comes faster than the kernel
handles it; the interface counts both, and the receiver's socket neither. Where no counter of the observed hosts saw
the loss, a note says so: it was on the path between them, or on a host without an agent. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leadline.analysis.datagram_figures import MAX_IN_BUNDLE, coalesced
from leadline.analysis.host_metrics import machine_samples
from leadline.analysis.metrics import reported, sum_of_flows
from leadline.analysis.model import Reason, Verdict, Window
from leadline.analysis.own_cpu import SERVER, answers_here
from leadline.analysis.rules import receivers_drops
from leadline.analysis.test_data import HostSample, TestData
from leadline.analysis.validity import Evidence, Finding
from leadline.quantities import rounded_share

CODE, LEAVING, UNSEEN = "receiver-backlog-drops", "sender-interface-drops", "loss-unseen"
SHARE = 0.01
"""Of the lost datagrams, or of those sent: less is not worth a reason."""
LEAST_DROPS = 10
"""Fewer drops are no evidence, whatever their share."""
_RECEIVED, _SENT = 0, 1
"""Places in an interface's counters."""
_MARGIN_NS = 500_000_000
"""What is on its way when the last datagram is sent is counted a little later."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """What a receiving host dropped before its sockets, and whether the backlogs of its machine dropped as much."""

    host: str
    count: int
    interfaces: tuple[str, ...]
    in_backlog: bool


def findings(evidence: Evidence) -> Iterator[Finding]:
    """Receiving hosts that dropped a notable share of what was lost before it reached a socket."""
    lost = reported(evidence.flows, "lost").value or 0
    for dropped in before_sockets(evidence):
        what = "bundles of datagrams" if coalesced(evidence.flows) else "datagrams"
        text = f"{dropped.count:,} {what} arrived at {dropped.host} and were dropped before its sockets"
        text += f", on {' and '.join(dropped.interfaces)}"
        text += ": the backlog of a CPU was full" if dropped.in_backlog else ""
        if dropped.count <= lost and what == "datagrams":
            text += f"; that is {rounded_share(dropped.count / lost)} of the {lost:,.0f} that count as lost"
        yield Verdict.RECEIVER_LIMITED, Reason(CODE, text)


def on_leaving(evidence: Evidence) -> Iterator[Finding]:
    """Sending hosts whose own interfaces dropped a notable share of what was lost: the path did not lose it. Where the
    interface's far end is at the receiver, the receiver's drops are the same ones."""
    lost = reported(evidence.flows, "lost").value or 0
    if not lost or evidence.window is None or coalesced(evidence.flows):
        return
    at_receivers = sum(dropped.count for dropped in before_sockets(evidence))
    for host in dict.fromkeys(_senders(evidence.data)):
        count, interfaces = _interface_drops(evidence.data, host, evidence.window, _SENT)
        count = min(count, int(lost))
        if count < max(LEAST_DROPS, SHARE * lost) or count <= at_receivers:
            continue
        text = (
            f"{' and '.join(interfaces)} of {host} dropped {count:,} datagrams as they left: the queue of the "
            f"interface was full; that is {rounded_share(count / lost)} of the {lost:,.0f} that count as lost"
        )
        yield Verdict.GENERATOR_LIMITED, Reason(LEAVING, text)


def notes(evidence: Evidence) -> Iterator[Reason]:
    """A loss that no counter of the observed hosts explains."""
    data, flows = evidence.data, evidence.flows
    lost, sent = reported(flows, "lost").value or 0, sum_of_flows(flows, lambda flow: flow.sent_units) or 0
    if lost < max(LEAST_DROPS, SHARE * sent) or evidence.window is None:
        return
    each = MAX_IN_BUNDLE if coalesced(flows) else 1
    places = {
        "sockets": sum(number for number, _ in receivers_drops(data)),
        "interfaces": sum(
            _interface_drops(data, host, evidence.window, way)[0] for host in data.samples for way in (_RECEIVED, _SENT)
        ),
        "queues": sum(_queue_drops(data, host, evidence.window) for host in data.samples),
    }
    if each * sum(places.values()) < lost / 2:
        seen = ", ".join(f"{name} {count:,}" for name, count in places.items())
        hosts = ", ".join(sorted(data.samples)) or "no host"
        text = f"where {lost:,.0f} datagrams were lost is not known: the counters of {hosts} saw few of them ({seen})"
        yield Reason(UNSEEN, f"{text}; the path between hosts, or a host without an agent, dropped the others")


def before_sockets(evidence: Evidence) -> Iterator[Dropped]:
    """The drops of each receiving host that is observed, if they are a notable share of the loss."""
    lost = reported(evidence.flows, "lost").value or 0
    window = evidence.window
    if not lost or window is None:
        return
    for host in dict.fromkeys(_receivers(evidence.data)):
        count, interfaces, backlog = _received_drops(evidence.data, host, window)
        if count >= max(LEAST_DROPS, SHARE * lost / (MAX_IN_BUNDLE if coalesced(evidence.flows) else 1)):
            yield Dropped(host, count, interfaces, backlog >= count / 2)


def _receivers(data: TestData) -> Iterator[str]:
    """The observed hosts that the datagrams came to."""
    if data.spec.direction != "up":
        yield from (host for host in data.hosts if host in data.samples)
    if data.spec.direction != "down":
        if SERVER in data.samples:
            yield SERVER
        else:
            yield from (found.host for found in data.load_outcomes() if answers_here(found.outcome, if_unknown=False))


def _senders(data: TestData) -> Iterator[str]:
    """The observed hosts that the datagrams came from."""
    if data.spec.direction != "down":
        yield from (host for host in data.hosts if host in data.samples)
    if data.spec.direction != "up" and SERVER in data.samples:
        yield SERVER


def _received_drops(data: TestData, host: str, window: Window) -> tuple[int, tuple[str, ...], int]:
    """What the interfaces of a host dropped on receipt, which of them, and what the backlogs of its machine did."""
    count, interfaces = _interface_drops(data, host, window, _RECEIVED)
    machine = _around(machine_samples(data, host), window)
    backlogs = [one.backlog_drops for one in machine if one.backlog_drops is not None]
    return count, interfaces, backlogs[-1] - backlogs[0] if backlogs else 0


def _interface_drops(data: TestData, host: str, window: Window, way: int) -> tuple[int, tuple[str, ...]]:
    """What the interfaces of a host dropped one way, and which of them did."""
    around = _around(data.samples.get(host, ()), window)
    if len(around) < 2:
        return 0, ()
    before = {use.name: use.dropped[way] for use in around[0].interfaces}
    grown = {use.name: use.dropped[way] - before.get(use.name, use.dropped[way]) for use in around[-1].interfaces}
    dropped = {name: count for name, count in grown.items() if count > 0}
    return sum(dropped.values()), tuple(dropped)


def _queue_drops(data: TestData, host: str, window: Window) -> int:
    """What the queues by which packets leave a host dropped; its interfaces count none of it."""
    around = [one for one in _around(data.samples.get(host, ()), window) if one.queues]
    if len(around) < 2:
        return 0
    before = {queue.name: queue.drops for queue in around[0].queues}
    return sum(max(0, queue.drops - before.get(queue.name, queue.drops)) for queue in around[-1].queues)


def _around(samples: Sequence[HostSample], window: Window) -> list[HostSample]:
    """The samples from the last one before the flows began to the first one after the last of them ended."""
    first_ns, last_ns = window.first_start_ns, window.last_end_ns + _MARGIN_NS
    before = [one for one in samples if one.t_ns < first_ns][-1:]
    return [*before, *(one for one in samples if first_ns <= one.t_ns <= last_ns)]
