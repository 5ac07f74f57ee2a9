"""Whether two runs were measured in turn, and by how much the load of their machine differed where they were not.

What changes slowly on a machine (its clock, its neighbours, what else runs on it) is the same for runs in turn, and a
difference between runs of which one follows the other. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leadline.analysis.model import TestResult
from leadline.quantities import rounded_share, seconds

MIN_LOAD_CHANGE_SHOWN = 0.005
"""Of the machine's CPUs: what other work differs by less is not mentioned."""


@dataclass(frozen=True, slots=True)
class Order:
    """The order of two runs that were not measured in turn, or of which that is not known."""

    text: str
    load_change: float
    """By which share of the machine's CPUs other work and a hypervisor differed between them."""


def order_of(labels: tuple[str, str], first: Sequence[TestResult], second: Sequence[TestResult]) -> Order | None:
    """The order of the tests of two runs with these labels; None where they were measured in turn."""
    times = [[one.started_at_s for one in results if one.started_at_s is not None] for results in (first, second)]
    place = ""
    if all(times):
        gap_s = max(min(times[1]) - max(times[0]), min(times[0]) - max(times[1]))
        if gap_s <= 0:
            return None
        earlier, later = labels if min(times[1]) > max(times[0]) else labels[::-1]
        place = f": {later} began {seconds(gap_s)} after the last test of {earlier}"
    loads = [_other_load(results) for results in (first, second)]
    change = abs(loads[1] - loads[0]) if loads[0] is not None and loads[1] is not None else 0.0
    work = f"; other work differed by {rounded_share(change, 1)} of its CPUs" if change >= MIN_LOAD_CHANGE_SHOWN else ""
    text = f"not interleaved{place}: the intervals allow for slow changes of the machine{work}"
    return Order(f"{text}; a plan with both as cases measures them in turn", change)


def _other_load(results: Sequence[TestResult]) -> float | None:
    """The mean share of the machine's CPUs that other work and a hypervisor took; None where it is not known."""
    known = [one.circumstances for one in results if "other_work" in one.circumstances]
    if not known:
        return None
    return sum(one["other_work"] + one.get("stolen", 0.0) for one in known) / len(known)
