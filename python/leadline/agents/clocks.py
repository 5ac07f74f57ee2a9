"""What one clock says about another: pure arithmetic over exchanges of four stamps (RFC 5905, section 8).

An exchange that leaves at t1, arrives at t2, is answered at t3 and is back at t4 proves t3 - t4 <= offset <= t2 - t1,
however asymmetric the path: an answer cannot be back before it left. Many exchanges intersect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Exchange:
    """Four stamps, ns: the outer two by the controller's clock, the inner two by the agent's."""

    sent_ns: int
    received_ns: int
    answered_ns: int
    back_ns: int

    @property
    def low_ns(self) -> int:
        """The minimum by which the agent's clock is ahead of the controller's."""
        return self.answered_ns - self.back_ns

    @property
    def high_ns(self) -> int:
        """The most that it can be ahead."""
        return self.received_ns - self.sent_ns

    @property
    def round_trip_ns(self) -> int:
        """Time on the way, both ways, the agent's own time left out: the width of what the exchange leaves open."""
        return (self.back_ns - self.sent_ns) - (self.answered_ns - self.received_ns)


@dataclass(frozen=True, slots=True)
class ClockComparison:
    """An agent's clock against the controller's: the true offset lies within `offset_ns` +- `bound_ns`."""

    host: str
    offset_ns: int
    """Agent minus controller; subtract it from the agent's stamps."""
    bound_ns: int
    exchanges: int
    longest_round_trip_ns: int
    shortest_round_trip_ns: int
    same_clock: bool
    """Both read one kernel's clock, so that offset and bound are exactly 0."""
    steady: bool
    """False where no single offset fits all exchanges: a clock was stepped or drifts; then the tightest one counts."""


def compare(host: str, exchanges: Sequence[Exchange], *, same_boot: bool) -> ClockComparison:
    """Intersect what the exchanges prove.

    Equal boot ids mean one kernel; an interval that holds 0 besides rules out a time namespace of its own.

    Raises:
        ValueError: there is no exchange, or one that came back before it left.
    """
    if not exchanges:
        raise ValueError("a comparison of clocks needs an exchange")
    if any(exchange.round_trip_ns < 0 for exchange in exchanges):
        raise ValueError("an exchange came back before it left: a clock ran backwards")
    low = max(exchange.low_ns for exchange in exchanges)
    high = min(exchange.high_ns for exchange in exchanges)
    steady = low <= high
    if not steady:
        tightest = min(exchanges, key=lambda exchange: exchange.round_trip_ns)
        low, high = tightest.low_ns, tightest.high_ns
    same_clock = same_boot and steady and low <= 0 <= high
    offset = 0 if same_clock else (low + high) // 2
    bound = 0 if same_clock else max(high - offset, offset - low)
    trips = [exchange.round_trip_ns for exchange in exchanges]
    return ClockComparison(host, offset, bound, len(exchanges), max(trips), min(trips), same_clock, steady)


def start_instant(
    comparisons: Mapping[str, ClockComparison], *, now_ns: int, ahead_ms: float | None = None
) -> dict[str, int]:
    """One instant on each agent's own clock, ns, far enough ahead for every agent to have heard of it.

    Args:
        comparisons: by host.
        now_ns: the controller's monotonic clock.
        ahead_ms: from now to the instant. By default 100 ms, 2 ms for each agent (the commands leave one after the
            other), twice the longest round trip and the widest bound.
    """
    if ahead_ms is None:
        trip_ns = max((comparison.longest_round_trip_ns for comparison in comparisons.values()), default=0)
        bound_ns = max((comparison.bound_ns for comparison in comparisons.values()), default=0)
        ahead_ms = 100 + 2 * len(comparisons) + (2 * trip_ns + bound_ns) / NS_PER_MS
    at_ns = now_ns + round(ahead_ms * NS_PER_MS)
    return {host: at_ns + comparison.offset_ns for host, comparison in comparisons.items()}
