"""The hosts' clocks in a test: offset, drift, and how far from the agreed instant each host began. Pure.

A comparison proves that an offset lies within a bound (`agents.clocks`). Two of them bound the drift between them, and
all pairs together bound it further; where no drift fits all, the clock was stepped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from leadline.analysis.clock_model import HostClock
from leadline.analysis.flows import Flow
from leadline.analysis.model import Reason
from leadline.analysis.test_data import ClockCheck, TestData

if TYPE_CHECKING:
    from leadline.analysis.validity import Evidence

MAX_SKEW_SHARE = 0.01
"""Of a test's length, between the first host's start and the last one's: what is beyond is reported."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How fast a clock runs away, parts per million: the truth is within the bound."""

    ppm: float
    bound_ppm: float


def drift_of(checks: Sequence[ClockCheck]) -> Drift | None:
    """The drift that all comparisons allow; None if there are too few, or if none fits all of them."""
    low, high = float("-inf"), float("inf")
    for first, last in combinations(sorted(checks), 2):
        passed_ns = last.at_ns - first.at_ns
        if passed_ns <= 0:
            continue
        moved_ns, bound_ns = last.offset_ns - first.offset_ns, last.bound_ns + first.bound_ns
        low = max(low, (moved_ns - bound_ns) / passed_ns)
        high = min(high, (moved_ns + bound_ns) / passed_ns)
    if low > high or high == float("inf"):
        return None
    return Drift((low + high) / 2 * 1e6, (high - low) / 2 * 1e6)


def host_clocks(data: TestData, flows: Sequence[Flow]) -> tuple[HostClock, ...]:
    """The clock of each host that has one of its own, in the order of its first comparison."""
    late_ns = _late_ns(data, flows)
    return tuple(_host_clock(host, checks, late_ns.get(host)) for host, checks in data.clock_checks.items() if checks)


def _host_clock(host: str, checks: Sequence[ClockCheck], late_ns: int | None) -> HostClock:
    first, drift = checks[0], drift_of(checks)
    return HostClock(
        host=host,
        offset_us=first.offset_ns / 1000,
        bound_us=bound_ns_of(checks) / 1000,
        comparisons=len(checks),
        drift_ppm=None if drift is None else drift.ppm,
        drift_bound_ppm=None if drift is None else drift.bound_ppm,
        start_late_us=None if late_ns is None else late_ns / 1000,
        start_bound_us=first.bound_ns / 1000,
    )


def _late_ns(data: TestData, flows: Sequence[Flow]) -> dict[str, int]:
    """How long after its agreed instant each generating host's first flow began, ns."""
    dues: dict[str, int] = {}
    for (host, task), (due_ns, began_ns) in data.starts_ns.items():
        if host in data.hosts and (host, task) not in data.other_parts:
            mapped_ns = data.started_ns[host, task] - (began_ns - due_ns)
            dues[host] = min(mapped_ns, dues.get(host, mapped_ns))
    first: dict[str, int] = {}
    for flow in flows:
        if flow.start_ns is not None and flow.key.host in dues:
            first[flow.key.host] = min(flow.start_ns, first.get(flow.key.host, flow.start_ns))
    return {host: began_ns - dues[host] for host, began_ns in first.items()}


def bound_ns_of(checks: Sequence[ClockCheck]) -> int:
    """The largest error, ns, of an instant that is mapped by the first comparison: the clock moves on."""
    return max(abs(check.offset_ns - checks[0].offset_ns) + check.bound_ns for check in checks)


def start_skew(evidence: Evidence) -> Iterator[Reason]:
    """Hosts whose first flows began far from one another, as far as their clocks are known."""
    data = evidence.data
    spans = []
    for host, late_ns in _late_ns(data, evidence.flows).items():
        checks = data.clock_checks.get(host)
        bound_ns = checks[0].bound_ns if checks else 0
        spans.append((late_ns + bound_ns, late_ns - bound_ns, host))
    length_ns = data.spec.duration_ns
    if len(spans) < 2 or not length_ns:
        return
    last, first = max(spans), min(spans, key=lambda span: span[1])
    skew_ns = last[0] - first[1]
    if skew_ns > MAX_SKEW_SHARE * length_ns and last[2] != first[2]:
        text = (
            f"the load did not begin everywhere at once: {last[2]} up to {skew_ns / 1e6:.3g} ms after {first[2]}, "
            f"{100 * skew_ns / length_ns:.2g} % of the test"
        )
        yield Reason("start-skew", text)


def stepped_clocks(evidence: Evidence) -> Iterator[Reason]:
    """Hosts whose clocks no single drift explains: they were set while the test ran, or run unevenly."""
    checks = evidence.data.clock_checks
    stepped = [host for host, found in checks.items() if len(found) > 1 and drift_of(found) is None]
    if stepped:
        worst_ns = max(bound_ns_of(checks[host]) for host in stepped)
        text = (
            f"the clock of {', '.join(stepped)} did not run evenly: its instants are up to {worst_ns / 1e6:.3g} ms off"
        )
        yield Reason("clock-stepped", text)
