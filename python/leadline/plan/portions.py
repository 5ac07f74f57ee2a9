"""The portion of a load that one host carries: shares of totals that hosts divide among them, or the amounts of several
clients.

Both are dealt here and nowhere else, so that the shares of all hosts add up to the total exactly. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from leadline.plan.rate import RateStage, Stages, peak_per_s


@dataclass(frozen=True, slots=True)
class Portion:
    """What one of a load's hosts carries."""

    index: int = 0
    """Which of the hosts it is, from 0."""
    hosts: int = 1
    """Number of hosts that divide the totals."""
    clients: int = 1
    """Number of the load's clients on this host."""

    def share(self, total: int) -> int:
        """The share of a total, by the largest remainder: the shares of all hosts add up to it."""
        return total // self.hosts + (self.index < total % self.hosts)

    def share_of_rate(self, total: float, unit: int = 1) -> float:
        """The share of a rate, in whole units if the rate is a whole number of them and each host can have one; else an
        equal part."""
        units = Fraction(total) / unit
        if units.denominator == 1 and units >= self.hosts:
            return float(unit * self.share(int(units)))
        return float(Fraction(total) / self.hosts)


def portions(hosts: Sequence[str], clients: int) -> dict[str, Portion]:
    """The portion of each host. Clients are dealt evenly; the first hosts have one more if some are left over."""
    dealt = (Portion(index, len(hosts)) for index in range(len(hosts)))
    return {host: replace(one, clients=one.share(clients)) for host, one in zip(hosts, dealt, strict=True)}


def most_hosts(totals: Mapping[str, Any], units: Mapping[str, int]) -> int | None:
    """The largest number of hosts of which each has a share of every total; None for any number.

    A whole number, or a rate of whole units, has no parts below one. `units` has those in which rates are dealt, by
    name, where they are not 1.
    """
    parts = (_whole_parts(value, units.get(name, 1)) for name, value in totals.items() if value is not None)
    return min((one for one in parts if one is not None), default=None)


def deal_amounts(
    amounts: Mapping[str, Any], totals: Collection[str], units: Mapping[str, int], portion: Portion
) -> dict[str, Any]:
    """A host's part of amounts by name: its share of those that are totals, and of others what its clients have
    together."""
    return {
        name: _share(value, portion, units.get(name, 1)) if name in totals else _multiply(value, portion.clients)
        for name, value in amounts.items()
        if value is not None
    }


def _whole_parts(total: Any, unit: int) -> int | None:
    peak = Fraction(peak_per_s(total)) / unit
    return int(peak) if peak.denominator == 1 else None


def _share(total: Any, portion: Portion, unit: int) -> Any:
    if isinstance(total, tuple):
        return _change(total, lambda rate: portion.share_of_rate(rate, unit))
    if isinstance(total, int):
        return unit * portion.share(total // unit)
    return portion.share_of_rate(total, unit)


def _multiply(value: Any, clients: int) -> Any:
    return _change(value, lambda rate: rate * clients) if isinstance(value, tuple) else value * clients


def _change(stages: Stages, change: Callable[[float], float]) -> Stages:
    return tuple(
        RateStage(from_per_s=change(one.from_per_s), to_per_s=change(one.to_per_s), duration_ms=one.duration_ms)
        for one in stages
    )
