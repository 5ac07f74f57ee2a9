"""Records of planning: what a gateway's work costs, what CPU links need, and what links a CPU carries.

Costs are CPU time on the measured machine, ns. With the clock speed they are cycles too. An unknown value is None.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounded:
    """A figure with its 95 % interval."""

    value: float  # In the unit of its key.
    low: float | None = None  # Lower bound at 95 %; null if unknown.
    high: float | None = None  # Upper bound at 95 %; null if unknown.


@dataclass(frozen=True, slots=True)
class CostPoint:
    """A measured cost: the mean payload of a packet, and the CPU time for it."""

    packet_bytes: float  # Mean payload of a packet, bytes.
    ns: float  # CPU time for each packet, ns.


@dataclass(frozen=True, slots=True)
class LinkNeed:
    """What a link that is full of packets of one size needs."""

    link: str  # The name of the link.
    bps: float
    """Payload that it carries."""
    packet_bytes: float | None
    """Payload of each packet; None where the size does not matter."""
    cpus: float | None
    """CPUs like the measured one that it keeps busy; None where none was measured."""
    hz: float | None
    """Cycles per second; None where the clock speed is unknown."""
    planned_hz: float | None
    """The same for a CPU that is to have time to spare."""
    cpus_low: float | None = None  # Lower bound of `cpus`, as `cpus_high`.
    cpus_high: float | None = None
    """Bounds of `cpus` at 95 %, of which `hz` and `planned_hz` have the same share; None where the cost has none."""


@dataclass(frozen=True, slots=True)
class ClientNeed:
    """What each client takes at the measured load."""

    clients: float
    """The largest number of clients that was measured."""
    bps_per_client: float | None  # Payload of each client at that load, bit/s.
    per_cpu: float | None
    """Clients that one CPU like the measured one carries."""
    per_gib: float | None
    """Clients whose memory fits into 1 GiB, beside what the system takes without clients if that is known."""
    per_cpu_low: float | None = None  # Lower bound of `per_cpu`, as `per_cpu_high`.
    per_cpu_high: float | None = None
    """Bounds of `per_cpu` at 95 %, over the repeats with that many clients; None with a single one."""
    per_gib_low: float | None = None  # Lower bound of `per_gib`, as `per_gib_high`.
    per_gib_high: float | None = None
    """Bounds of `per_gib` at 95 %, over three numbers of clients or over repeats; None with fewer."""


@dataclass(frozen=True, slots=True)
class GatewayCost:
    """What one system's work on one gateway costs: CPU time for each packet, and for each byte of its payload."""

    system: str
    """The parameters of its cases that name the system."""
    kind: str
    """The kind of test."""
    host: str  # The gateway.
    points: tuple[CostPoint, ...]  # The measured costs that the line is drawn through.
    per_packet_ns: Bounded | None
    """None where packets of one size alone were measured: `per_byte_ns` then holds for that size."""
    per_byte_ns: Bounded  # CPU time for each byte of payload, ns.
    at_most: bool
    """Whether other hosts' work is in it."""
    threads: int | None
    """Threads that share the work; None where that is not known."""
    clock_hz: float | None  # Clock speed of the gateway's CPUs, Hz; null if unknown.
    links: tuple[LinkNeed, ...] = ()  # What the usual links need.
    clients: ClientNeed | None = None  # What each client takes; null where there were none.
    notes: tuple[str, ...] = ()
    """With the reason why a cost has no bounds."""
    correlation: float | None = None
    """Of the errors of both costs, from -1 to 1; None where one of them has no bounds."""
