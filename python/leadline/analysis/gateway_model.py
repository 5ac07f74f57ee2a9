"""Records of what a system under test used on a gateway. An unknown value is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CountedTime(StrEnum):
    """What a gateway's CPU time was read from."""

    OWN = "own"
    """Counters of what the system did."""
    TICKS = "ticks"
    """Soft interrupts of all hosts of its machine, as ticks of the kernel's timer find them, with the busy time that no
    tick saw: an upper bound."""
    BUSY = "busy time"
    """All busy time of its machine, where no counter shows the system's own: an upper bound."""


@dataclass(frozen=True, slots=True)
class GatewayStatistics:
    """One gateway in one test's steady window: what the system under test used there, and what it carried."""

    host: str  # The gateway.
    attribution: str
    """Whose CPU time counts: process, cgroup, kernel, machine."""
    basis: str
    """The same in words."""
    cpu_percent: float | None
    """Percent of one CPU."""
    cpu_unknown: str | None
    """Why that is unknown."""
    at_most: bool
    """Whether the CPU time is an upper bound, since other work is in it."""
    memory_bytes: float | None  # Memory that the system used there, bytes.
    memory_unknown: str | None  # Why that is unknown.
    threads: int | None
    """Threads of the system's processes there; None where it has none of its own."""
    payload_bps: float | None  # Payload that it carried, bit/s.
    packets_per_s: float | None
    """Packets that it forwarded, in both directions."""
    clients: float | None  # Clients that were connected.
    clock_hz: float | None = None
    """Clock speed of its machine's CPUs, the mean of the window; None where the kernel does not report it."""
    counted: CountedTime = CountedTime.OWN
    """What its CPU time was read from."""
