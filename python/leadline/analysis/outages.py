"""Outages of links during a test: an interface of a host that carried the load was set down, lost its carrier, or
disappeared. Hosts report each change when it happens, so that no sample has to fall into an outage.

An interface that carried little is none of the load's: a management network may fail without any effect. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from leadline import quantities
from leadline.analysis.flows import Curve, Flow
from leadline.analysis.link_changes import LinkChange
from leadline.analysis.model import Reason, Verdict, Window
from leadline.analysis.test_data import HostSample

LINK_OUTAGE = "link-outage"
"""A link was out for a time, and came back."""
LINK_LOST = "link-lost"
"""A link was out when the test ended."""
INTERFACE_ERRORS = "interface-errors"
OUTAGES = frozenset({LINK_OUTAGE, LINK_LOST})

CONSEQUENCES = frozenset(
    {
        *("pushback", "ran-over", "sends-late", "unsent", "connections-busy"),
        *("intervals-disagree", "change-point", "precision-unknown", "percentile-uncertain"),
        *("connections-lost", "flows-broken-off", "nothing-answered", "nothing-came-through"),
        *("no-steady-window", "window-too-short", "no-receiver-figures", "sender-side-figure"),
    }
)
"""Reasons that an outage brings about. Their advice would lead away from it."""

_LEAST_SHARE = 0.1
"""Of the bytes of the host's busiest interface, and of those that the load's flows delivered: what an interface that is
out has carried, if the load used it."""
_LEAST_BYTES = 64
"""Of an answer or a datagram, whatever it says, with its headers."""
_LOOPBACK = "lo"
_NS_PER_S = 1e9
_REPORTED_WITHIN_NS = 1_500_000_000
"""The kernel reports the loss of a carrier up to one second late."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which an interface passed nothing."""

    host: str
    interface: str
    start_ns: int
    end_ns: int | None
    """None: until the end of the test."""
    cause: str

    @property
    def is_origin(self) -> bool:
        """Whether it began on this host, not at the other end of a cable."""
        return self.cause != _NO_CARRIER

    def cut_to(self, begin_ns: int, end_ns: int) -> Outage | None:
        """The part of it inside these instants; None if there is none."""
        if self.start_ns >= end_ns or (self.end_ns is not None and self.end_ns < begin_ns):
            return None
        end = None if self.end_ns is None or self.end_ns >= end_ns else self.end_ns
        return Outage(self.host, self.interface, max(self.start_ns, begin_ns), end, self.cause)


def outages(
    changes: Iterable[LinkChange],
    samples: Mapping[str, Sequence[HostSample]],
    window: Window | None,
    flows: Sequence[Flow] = (),
) -> list[Outage]:
    """The outages while the load of these flows ran, the earliest first: of interfaces that may have carried it. A load
    over loopback leaves the others idle, and what containers on its host bring up and down is none of it. Both ends of
    a cable notice one: the end that was set down is named before the one that lost its carrier."""
    if window is None:
        return []
    by_link: dict[tuple[str, str], list[LinkChange]] = {}
    for change in sorted(changes, key=lambda change: change.t_ns):
        by_link.setdefault((change.host, change.name), []).append(change)
    found = [
        cut
        for (host, name), of_link in by_link.items()
        if _carried_load(samples.get(host, ()), name, _delivered_bytes(flows, host))
        for outage in _of_link(of_link)
        if (cut := outage.cut_to(window.first_start_ns, window.last_end_ns)) is not None
    ]
    found.sort(key=lambda one: one.start_ns)
    origin = next(
        (one for one in found if one.start_ns - found[0].start_ns <= _REPORTED_WITHIN_NS and one.is_origin), None
    )
    return found if origin is None else [origin, *(one for one in found if one is not origin)]


def reason_of(found: Sequence[Outage], window: Window, before: str = "") -> tuple[Verdict, Reason] | None:
    """The verdict on a test with these outages, and the sentence about the first of them; `before` says what was
    measured until then. None without any."""
    if not found:
        return None
    main = found[0]
    text = f"the link {main.interface} of {main.host} was out {_when(main, window)}: {main.cause}"
    if others := _further(main, found[1:]):
        text += f"; {others} more outages of links followed" if others > 1 else "; another outage of a link followed"
    if before:
        text += f"; {before}"
    if main.end_ns is None:
        return Verdict.INCOMPLETE, Reason(LINK_LOST, text)
    return Verdict.UNSTABLE, Reason(LINK_OUTAGE, text)


def error_notes(samples: Mapping[str, Sequence[HostSample]]) -> Iterator[Reason]:
    """Notes on interfaces that carried the load and counted errors meanwhile: of the cable, the port or the driver."""
    for host, of_host in samples.items():
        counted: dict[str, list[tuple[int, int]]] = {}
        for sample in of_host:
            for use in sample.interfaces:
                counted.setdefault(use.name, []).append(use.errors)
        for name, errors in counted.items():
            received, sent = (max(column) - min(column) for column in zip(*errors, strict=True))
            if received + sent > 0 and name != _LOOPBACK and _carried_load(of_host, name, 0.0):
                text = f"{name} of {host} counted {received:,} errors of receiving and {sent:,} of sending meanwhile"
                text += f" (`ethtool -S {name}`): see its cable, its port and its driver"
                yield Reason(INTERFACE_ERRORS, text)


def outage_in(reasons: Iterable[Reason]) -> Reason | None:
    """The reason that names an outage, if one does."""
    return next((reason for reason in reasons if reason.code in OUTAGES), None)


def without_consequences(findings: Sequence[tuple[Verdict, Reason]]) -> list[tuple[Verdict, Reason]]:
    """The findings; beside an outage, without those that it brings about."""
    if outage_in(reason for _, reason in findings) is None:
        return list(findings)
    return [(verdict, reason) for verdict, reason in findings if reason.code not in CONSEQUENCES]


def _when(outage: Outage, window: Window) -> str:
    """Its length, and its start as a time into the test."""
    start = quantities.seconds((outage.start_ns - window.first_start_ns) / _NS_PER_S)
    last_ns = window.last_end_ns if outage.end_ns is None else outage.end_ns
    if last_ns <= outage.start_ns:
        return f"for a moment, {start} into the test"
    length = quantities.seconds((last_ns - outage.start_ns) / _NS_PER_S)
    if outage.end_ns is None:
        return f"from {start} into the test on to its end, for {length}"
    return f"for {length}, from {start} into the test on"


def _further(main: Outage, others: Iterable[Outage]) -> int:
    """The outages that began when the first had ended; the other end of its cable is not one more."""
    return 0 if main.end_ns is None else sum(1 for one in others if one.start_ns > (main.end_ns or 0))


_SET_DOWN = "its host set it down"
_NO_CARRIER = "it had no carrier (the cable, the port, or the other end)"
_GONE = "it was gone from its host"
_BRIEFLY = "it lost its carrier and had it again before its host reported it"


def _of_link(changes: Sequence[LinkChange]) -> Iterator[Outage]:
    """The outages of one interface, by its changes in order of time. How it was before the first is not known."""
    began: LinkChange | None = None
    before: LinkChange | None = None
    for change in changes:
        if began is None and not change.works:
            began = change
        elif began is not None and change.works:
            yield _outage(began, change.t_ns)
            began = None
        elif before is not None and before.works and change.works and _has_lost(before, change):
            yield Outage(change.host, change.name, change.t_ns, change.t_ns, _BRIEFLY)
        elif began is not None and _cause(change) != _NO_CARRIER and _cause(began) == _NO_CARRIER:
            # The carrier goes with the interface that is set down, and the kernel may report it first.
            began = change._replace(t_ns=began.t_ns)
        before = change
    if began is not None:
        yield _outage(began, None)


def _outage(began: LinkChange, end_ns: int | None) -> Outage:
    return Outage(began.host, began.name, began.t_ns, end_ns, _cause(began))


def _cause(change: LinkChange) -> str:
    if change.is_removed:
        return _GONE
    return _NO_CARRIER if change.is_up else _SET_DOWN


def _has_lost(before: LinkChange, after: LinkChange) -> bool:
    """Whether the carrier was lost between two states that both have it."""
    return None not in (before.carrier_losses, after.carrier_losses) and (
        (after.carrier_losses or 0) > (before.carrier_losses or 0)
    )


def _delivered_bytes(flows: Sequence[Flow], host: str) -> float:
    """What a host's flows delivered, at least; of a host without flows, as a gateway, what all did."""
    own = [flow for flow in flows if flow.key.host == host] or flows
    return sum(
        max(
            _last(flow.delivered_bytes),
            _LEAST_BYTES * _last(flow.delivered_units),
        )
        for flow in own
    )


def _last(curve: Curve | None) -> float:
    return 0.0 if curve is None or not len(curve.values) else float(curve.values[-1])


def _carried_load(samples: Sequence[HostSample], name: str, delivered_bytes: float) -> bool:
    """Whether an interface carried a part of its host's packets that a load leaves, and of what the load delivered."""
    carried: dict[str, int] = {}
    first: dict[str, int] = {}
    for sample in samples:
        for use in sample.interfaces:
            count = sum(bytes_ for bytes_, _ in use.counted)
            begin = first.setdefault(use.name, count)
            carried[use.name] = max(carried.get(use.name, 0), count - begin)
    busiest = max((count for one, count in carried.items() if one != _LOOPBACK), default=0)
    return busiest > 0 and carried.get(name, 0) >= _LEAST_SHARE * max(busiest, delivered_bytes)
