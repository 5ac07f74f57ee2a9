"""CPUs that a lab gave to some hosts alone (`lab.cpus: split`), and that had no time left.

A process is charged for its own work; what the kernel does for it beside that, and what several processes of these
hosts do in turn, shows in the CPUs themselves. The kernel forwards packets on the CPU that sent them, so the CPUs of
the ends also do what a gateway in the kernel does. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline import quantities
from leadline.analysis.host_metrics import covers, machine_samples, rate_inside
from leadline.analysis.model import Limit, LimitedBy, Window
from leadline.analysis.test_data import TestData
from leadline.plan.gateway_metrics import GATEWAYS

FULL = 0.95
"""Of the time of all CPUs of a host, from where on they count as having had no time left."""


def limits(data: TestData, window: Window) -> Iterator[Limit]:
    """The hosts whose own CPUs had no time left; gateways first."""
    shared: dict[tuple[int, ...], list[str]] = {}
    for host, facts in data.facts.items():
        if facts.get("own_cpus"):
            shared.setdefault(tuple(sorted(facts["own_cpus"])), []).append(host)
    for cpus, hosts in sorted(shared.items(), key=lambda one: not _are_gateways(one[1])):
        busy = _busy(data, hosts[0], cpus, window)
        if busy is not None and busy >= FULL:
            what = f"the {'only CPU' if len(cpus) == 1 else f'{len(cpus)} CPUs'} of {' and '.join(sorted(hosts))}"
            was, it, ends = ("was", "it", "is") if len(cpus) == 1 else ("were", "they", "are")
            text = f"{what} {was} {quantities.rounded_share(busy)} busy: {it} had no time left"
            by = LimitedBy.GATEWAY if _are_gateways(hosts) else LimitedBy.ENDS_CPUS
            yield Limit(by, text, f"{what} {ends} the limit at {quantities.rounded_share(busy)}")


def _are_gateways(hosts: list[str]) -> bool:
    return all(host in GATEWAYS for host in hosts)


def _busy(data: TestData, host: str, cpus: tuple[int, ...], window: Window) -> float | None:
    """The share of the CPUs' time that was used; None where it was not read."""
    samples = [one for one in machine_samples(data, host) if one.unused_s.keys() >= set(cpus)]
    if not covers([one.t_ns for one in samples], window):
        return None
    unused = rate_inside([(one.t_ns, sum(one.unused_s[cpu] for cpu in cpus)) for one in samples], window)
    return min(1.0, max(0.0, 1 - unused / len(cpus)))
