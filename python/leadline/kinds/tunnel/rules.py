"""The rules for the verdict on a fleet of VPN clients: its threads and sockets, and the server behind the gateway."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.analysis import fleet_validity, rules
from leadline.analysis.datagram_figures import still_arriving
from leadline.analysis.metrics import generators_late_p99_us
from leadline.analysis.model import Reason, Verdict
from leadline.analysis.validity import SATURATED_BUSY, STARVED_BUSY_AND_WAITING, Evidence, Finding


def fleet_limits(evidence: Evidence) -> Iterator[Finding]:
    """Threads that were busy all the time, and late sends in the tunnels."""
    yield from fleet_validity.limits(evidence.data, evidence.histograms, SATURATED_BUSY, STARVED_BUSY_AND_WAITING)


def late_arrivals(evidence: Evidence) -> Iterator[Finding]:
    """Clients that began to connect too late. The fleet is always the cause."""
    yield from rules.too_late(evidence, generators_late_p99_us(evidence.data, evidence.histograms))


def behind_the_gateway(evidence: Evidence) -> Iterator[Finding]:
    """Limits of the server at the other end of the traffic, and of the fleet's own sockets."""
    data = evidence.data
    for found in data.load_outcomes():
        far, where = found.outcome.get("receiver"), f"the server that {found.host} used"
        if far is not None and data.spec.direction != "up":
            yield from ((Verdict.GENERATOR_LIMITED, reason) for reason in rules.thread_limits(far, where))
            late_us = far.get("late_p99_us")
            if late_us is not None and late_us > fleet_validity.late_allowed_inside_us(data):
                text = f"sends of {where} were late by {late_us / 1e3:.3g} ms at p99"
                yield Verdict.GENERATOR_LIMITED, Reason("sends-late", text)
        elif far is not None:
            yield from ((Verdict.RECEIVER_LIMITED, reason) for reason in rules.thread_limits(far, where))
        for load, host in ((found.outcome["generator"], found.host), (far, where)):
            drops = load.get("socket_drops") if load is not None else None
            if drops and data.spec.carries:
                text = f"{drops} datagrams arrived and were dropped by the sockets on {host}"
                yield Verdict.RECEIVER_LIMITED, Reason("receiver-socket-drops", text)


def receiver_known(evidence: Evidence) -> Iterator[Finding]:
    """Whether the receiver's load is known: only a Leadline responder reports it; a VPN server does not."""
    if evidence.data.spec.inside in ("tcp", "udp"):
        yield from rules.receiver_known(evidence)
        yield from still_arriving(evidence)


def fleet_notes(evidence: Evidence) -> Iterator[Reason]:
    """Notes on the figures."""
    yield from fleet_validity.notes(evidence.data)
