"""CPUs that a lab gave to some hosts alone (`lab.cpus: split`), and that had no time left.

A process is charged for its own work; what the kernel does for it beside that, and what several processes of these
hosts do in turn, shows in the CPUs themselves. The kernel forwards packets on the CPU that sent them, so the CPUs of
the ends also do what a gateway in the kernel does. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from leadline import quantities
from leadline.analysis.host_metrics import covers, machine_samples, rate_inside
from leadline.analysis.machine_rules import notes_without_machine
from leadline.analysis.model import Bound, Limit, LimitedBy, Reason, Verdict, Window
from leadline.analysis.scope import Family, Judged, family_of
from leadline.analysis.test_data import TestData
from leadline.analysis.validity import ENDS_FULL
from leadline.plan.gateway_metrics import GATEWAYS

FULL = 0.95
"""Of the time of all CPUs of a host, from where on they count as having had no time left."""
OVERFLOWING = 0.85
"""The same where sockets of a tunnel overflowed meanwhile: its processes did not get the rest of the time when they
needed it."""


def limits(data: TestData, window: Window, overflow: Limit | None = None) -> Iterator[Limit]:
    """The hosts whose own CPUs had no time left, gateways first; after them the busiest CPUs beside which sockets of
    the tunnel dropped what arrived (`overflow`): these drops come and go, and follow from the lack of CPU."""
    shares = sorted(_shares(data, window), key=lambda one: -one[0])
    full = [one for one in shares if one[0] >= FULL]
    found = sorted(full, key=lambda one: not _are_gateways(one[2])) or shares[:1]
    for busy, cpus, hosts in found:
        if busy < (FULL if overflow is None else OVERFLOWING):
            return
        what = f"the {'only CPU' if len(cpus) == 1 else f'{len(cpus)} CPUs'} of {' and '.join(sorted(hosts))}"
        was, it, ends = ("was", "it", "is") if len(cpus) == 1 else ("were", "they", "are")
        text = f"{what} {was} {quantities.rounded_share(busy)} busy"
        text += f": {it} had no time left" if busy >= FULL else ""
        text += f"; {overflow.evidence}" if overflow is not None else ""
        by = LimitedBy.GATEWAY if _are_gateways(hosts) else LimitedBy.ENDS_CPUS
        yield Limit(by, text, f"{what} {ends} the limit at {quantities.rounded_share(busy)}")


def bound_rates(judged: Judged, limit: Limit, data: TestData, flows: int) -> Judged:
    """The figures where the CPUs of the ends were the limit: the rates, and a gateway's use, are lower bounds. One
    operation at a time is no such load: its parts take turns."""
    note = Reason(ENDS_FULL, f"{limit.evidence}; the gateway may carry more: its rates are lower bounds")
    in_turns = data.spec.counts_units and max(flows, data.spec.connections or 0) <= 1
    if limit.by is not LimitedBy.ENDS_CPUS or in_turns or not notes_without_machine([note]):
        return judged
    metrics = {
        name: metric.doubted(Verdict.VALID, ENDS_FULL, Bound.LEAST)
        if metric.value is not None and family_of(name) in (Family.RATE, Family.USE)
        else metric
        for name, metric in judged.metrics.items()
    }
    return Judged(metrics, replace(judged.validity, notes=(note, *judged.validity.notes)))


def _shares(data: TestData, window: Window) -> Iterator[tuple[float, tuple[int, ...], list[str]]]:
    """How busy the CPUs were that some hosts have to themselves, these CPUs, and the hosts."""
    shared: dict[tuple[int, ...], list[str]] = {}
    for host, facts in data.facts.items():
        if facts.get("own_cpus"):
            shared.setdefault(tuple(sorted(facts["own_cpus"])), []).append(host)
    for cpus, hosts in shared.items():
        busy = busy_share(data, hosts[0], cpus, window)
        if busy is not None:
            yield busy, cpus, hosts


def _are_gateways(hosts: list[str]) -> bool:
    return all(host in GATEWAYS for host in hosts)


def busy_share(data: TestData, host: str, cpus: tuple[int, ...], window: Window) -> float | None:
    """The share of the CPUs' time that was used; None where it was not read."""
    samples = [one for one in machine_samples(data, host) if one.unused_s.keys() >= set(cpus)]
    if not covers([one.t_ns for one in samples], window):
        return None
    unused = rate_inside([(one.t_ns, sum(one.unused_s[cpu] for cpu in cpus)) for one in samples], window)
    return min(1.0, max(0.0, 1 - unused / len(cpus)))
