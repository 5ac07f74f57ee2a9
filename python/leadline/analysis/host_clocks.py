"""The hosts' clocks in a test: offset, drift, and how far from the agreed instant each host began. Pure.

A comparison proves that an offset lies within a bound (`agents.clocks`). Two of them bound the drift between them, and
all pairs together bound it further.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from leadline.analysis.clock_model import HostClock
from leadline.analysis.flows import Flow
from leadline.analysis.model import Reason
from leadline.analysis.test_data import ClockCheck, TestData

if TYPE_CHECKING:
    from leadline.analysis.validity import Evidence

MAX_DRIFT_PPM = 1000.0
"""A clock that moves faster was set: adjtimex(2) slews by 500 ppm at most, and crystals are off by a tenth of that."""
MAX_PAIRED = 64
"""Comparisons of which each pair counts: those of a long test are thinned to this many."""
MAX_SKEW_SHARE = 0.01
"""Of a test's length, between the first host's start and the last one's: what is beyond is reported."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How fast a clock runs away, parts per million: the truth is within the bound."""

    ppm: float
    bound_ppm: float


def drift_of(checks: Sequence[ClockCheck]) -> Drift | None:
    """The drift over all comparisons, which are in order; None if there are too few.

    A clock that runs evenly has one drift that each pair of them allows. Where none does (a slow change of temperature,
    NTP at work), it is the mean drift, which the first and the last one bound.
    """
    thinned = checks[:: -(-len(checks) // MAX_PAIRED)] if checks else []
    pairs = combinations([*thinned, checks[-1]] if checks and thinned[-1] is not checks[-1] else thinned, 2)
    bounds = [found for first, last in pairs if (found := _bounds(first, last)) is not None]
    if not bounds:
        return None
    low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
    if low > high and (mean := _bounds(checks[0], checks[-1])) is not None:
        low, high = mean
    return Drift((low + high) / 2 * 1e6, (high - low) / 2 * 1e6) if low <= high else None


def _bounds(first: ClockCheck, last: ClockCheck) -> tuple[float, float] | None:
    """The lowest and the highest drift from one comparison to the other; None if no time has passed."""
    passed_ns = last.at_ns - first.at_ns
    if passed_ns <= 0:
        return None
    moved_ns, bound_ns = last.offset_ns - first.offset_ns, last.bound_ns + first.bound_ns
    return (moved_ns - bound_ns) / passed_ns, (moved_ns + bound_ns) / passed_ns


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
    """The largest error, ns, of an instant that is mapped by the first comparison: the clock moves on. The loosest
    comparison, as of a link that carries the load, does not widen what the drift proves."""
    seen_ns = max(abs(check.offset_ns - checks[0].offset_ns) + check.bound_ns for check in checks)
    drift = drift_of(checks)
    if drift is None or is_stepped(checks):
        return seen_ns
    moved_ns = (abs(drift.ppm) + drift.bound_ppm) / 1e6 * (checks[-1].at_ns - checks[0].at_ns)
    return min(seen_ns, checks[0].bound_ns + round(moved_ns))


def is_stepped(checks: Sequence[ClockCheck]) -> bool:
    """Whether the clock was set between two neighbours: no clock drifts as fast."""
    bounds = (_bounds(first, last) for first, last in pairwise(checks))
    return any(
        found is not None and (found[0] * 1e6 > MAX_DRIFT_PPM or found[1] * 1e6 < -MAX_DRIFT_PPM) for found in bounds
    )


def start_skew(evidence: Evidence) -> Iterator[Reason]:
    """Hosts whose first flows began far from one another, as far as their clocks are known."""
    data = evidence.data
    spans = []
    for host, late_ns in _late_ns(data, evidence.flows).items():
        checks = data.clock_checks.get(host)
        bound_ns = checks[0].bound_ns if checks else 0
        spans.append((late_ns - bound_ns, late_ns + bound_ns, host))
    length_ns = data.spec.duration_ns
    if len(spans) < 2 or not length_ns:
        return
    limit_ns = MAX_SKEW_SHARE * length_ns
    # Each span is (earliest, latest, host): what the host's own clock says, and what is known of that clock.
    last, first = max(spans), min(spans, key=lambda span: span[1])
    proven_ns = last[0] - first[1]
    latest, earliest = max(spans, key=lambda span: span[1]), min(spans)
    possible_ns = latest[1] - earliest[0]
    share = f"{100 * max(proven_ns, possible_ns) / length_ns:.2g} % of the test"
    if proven_ns > limit_ns:
        text = (
            f"the load did not begin everywhere at once: {last[2]} at least {proven_ns / 1e6:.3g} ms after {first[2]}"
        )
        yield Reason("start-skew", f"{text}, at most {share}")
    elif possible_ns > limit_ns and latest[2] != earliest[2]:
        text = f"{latest[2]} may have begun up to {possible_ns / 1e6:.3g} ms after {earliest[2]}, {share}"
        yield Reason("start-skew", f"{text}: their clocks are not known better")


def stepped_clocks(evidence: Evidence) -> Iterator[Reason]:
    """Hosts whose clocks were set while the test ran: no drift explains what they moved."""
    checks = evidence.data.clock_checks
    stepped = [host for host, found in checks.items() if is_stepped(found)]
    if stepped:
        worst_ns = max(bound_ns_of(checks[host]) for host in stepped)
        text = (
            f"the clock of {', '.join(stepped)} was set meanwhile: its instants are up to {worst_ns / 1e6:.3g} ms off"
        )
        yield Reason("clock-stepped", text)
