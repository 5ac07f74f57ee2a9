"""The parameters of a test, read once from its record, which a plan's test or an agent's workload wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from leadline.registry import KINDS

_NS_PER_MS = 1_000_000
_DEFAULT_INTERVAL_MS = 100


@dataclass(frozen=True, slots=True)
class TestSpec:
    """The parameters of a test that its figures depend on."""

    __test__ = False  # pytest must not collect this class

    name: str
    kind: str
    direction: str  # up | down | both, as the client sees it; of a fleet, the direction of its traffic
    duration_ns: int | None
    warmup_ns: int
    interval_ns: int
    number: int | None
    connections: int | None
    # Mean time between two sends of one flow (udp) or of one client (http), or between two arrivals (tunnel), s, where
    # the rate is highest; None for as fast as possible, or all at once.
    send_gap_s: float | None
    # Whether its rate is constant: a rate in stages is not, and its intervals differ by design.
    steady: bool
    # Whether an http test's requests go over TLS.
    tls: bool
    # Whether its leading count is answers to its own operations, rather than bits that one side sends.
    counts_units: bool = False
    # Whether the connects of a fleet's clients are measured, and not only their traffic.
    connects_clients: bool = False
    # Whether operations without an answer are counted as lost.
    unanswered_is_lost: bool = False
    # Clients of a fleet that connect before the others.
    settled: int = 0
    # What load a fleet carries (echo | udp | tcp | http), and the time between two sends of one client, s.
    inside: str | None = None
    inside_gap_s: float | None = None
    # How long its requests ask the server to wait before it answers, s.
    asked_delay_s: float | None = None
    # The first part of the test, over which its clients start.
    start_spread_ns: int = 0
    # A client's payload rate in one direction that was asked for, and the rate at which its kernel paces it, bit/s.
    asked_bps: float | None = None
    pacing_bps: float | None = None
    # Rate of the line, if it was given, bit/s.
    line_bps: float | None = None
    # Whether its load's packets are UDP, and not TCP; and whether it asks for IPv6.
    over_udp: bool = False
    over_ipv6: bool = False
    # Whether its users wait by themselves between requests (think time, pacing); None where the journal does not say.
    has_waits: bool | None = None
    # Whether the server alone decides how many requests a connection of an http test carries.
    keeps_connections: bool = True
    # Metrics that the test requests in addition to those of its kind: percentiles.
    asked: tuple[str, ...] = ()

    @property
    def paced(self) -> bool:
        """Whether sends have their own times, instead of following the last answer or a free buffer."""
        return self.send_gap_s is not None

    @property
    def server_generates(self) -> bool:
        """Whether all payload is the server's, and the client only receives."""
        return self.direction == "down" and not self.counts_units

    @property
    def carries(self) -> bool:
        """Whether a fleet carries load."""
        return self.inside is not None

    @property
    def idle(self) -> bool:
        """Whether no payload is expected."""
        return self.connects_clients and not self.carries

    @classmethod
    def read(cls, test: Mapping[str, Any]) -> TestSpec:
        """Read a plan's test (`TcpTest` ...) or a workload of the contract (`TcpSpec` ...), dumped by field names."""
        kind = str(test.get("kind") or "tcp")
        common = cls(
            name=str(test.get("name") or test.get("kind") or "test"),
            kind=kind,
            direction=str(test.get("direction") or "up"),
            duration_ns=nanoseconds(test.get("duration_ms")),
            warmup_ns=nanoseconds(test.get("warmup_ms")) or 0,
            interval_ns=nanoseconds(test.get("interval_ms")) or _DEFAULT_INTERVAL_MS * _NS_PER_MS,
            number=test.get("number"),
            connections=test.get("connections"),
            send_gap_s=None,
            steady=True,
            start_spread_ns=nanoseconds(test.get("start_spread_ms")) or 0,
            tls=test.get("scheme") == "https" or test.get("tls") is not None,
            over_ipv6=_asks_for_ipv6(test),
        )
        reader: SpecReader = KINDS.find(kind)
        return reader.read_spec(test, common)


@dataclass(frozen=True, slots=True)
class HostSpecs:
    """The parameters of a load whose hosts have different parts of it, and the clients of each."""

    by_host: Mapping[str, TestSpec]
    clients: Mapping[str, int]
    is_split: bool = False
    """Whether the amounts that the test gives are those of all hosts together."""
    in_all: Mapping[str, float] = field(default_factory=dict)
    """Amounts of all hosts, by the test's fields."""

    @classmethod
    def read(cls, test: Mapping[str, Any], shares: Mapping[str, Mapping[str, Any]]) -> HostSpecs:
        """Read a plan's test, and what its record says of each host."""
        return cls(
            {host: TestSpec.read({**test, **share}) for host, share in shares.items()},
            {host: int(share.get("clients") or 1) for host, share in shares.items()},
            bool(test.get("split")),
            _sums(shares.values()),
        )

    @property
    def largest(self) -> TestSpec | None:
        """The parameters of the host with the largest part, which is the first one; None if no host has one of its
        own."""
        return next(iter(self.by_host.values()), None)


def _sums(shares: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The sums of what hosts have of each amount that is one number."""
    found: dict[str, float] = {}
    for share in shares:
        for name, value in share.items():
            if name != "clients" and isinstance(value, int | float):
                found[name] = found.get(name, 0) + value
    return found


class SpecReader(Protocol):
    """The attributes of a kind of test that this module uses."""

    def read_spec(self, test: Mapping[str, Any], common: TestSpec) -> TestSpec:
        """The parameters of the kind, in addition to those that all kinds share."""


def _asks_for_ipv6(test: Mapping[str, Any]) -> bool:
    """Whether the test of a plan, or a workload, names IPv6 or an address of it. A name alone says nothing."""
    target = test.get("target")
    near = target if isinstance(target, Mapping) else {}
    urls = [str(one.get("url")) for one in test.get("requests") or () if isinstance(one, Mapping)]
    asked = test.get("ip") == 6 or "v6" in (test.get("ip_version"), near.get("ip_version"))
    return asked or ":" in str(near.get("host") or "") or any("://[" in url for url in urls)


def nanoseconds(milliseconds: Any) -> int | None:
    """A duration of a record in ns; None if it has none."""
    return round(milliseconds * _NS_PER_MS) if isinstance(milliseconds, int | float) else None


def asked_percentiles(test: Mapping[str, Any], histograms: Iterable[str]) -> tuple[str, ...]:
    """The metrics of the percentiles that a test lists, for each of these histograms."""
    return tuple(f"{histogram}_{name}_us" for histogram in histograms for name in test.get("percentiles") or ())


def stages(test: Mapping[str, Any], *keys: str) -> list[tuple[float, float]]:
    """First and last rate of each stage under the first key that exists: one number, or stages."""
    given = next((test[key] for key in keys if key in test), None)
    if isinstance(given, int | float):
        return [(float(given), float(given))]
    return [(float(stage["from_per_s"]), float(stage["to_per_s"])) for stage in given or ()]


def shortest_gap_s(found: Iterable[tuple[float, float]]) -> float | None:
    """The time between two operations at the highest rate of the stages; None for as fast as possible."""
    highest = max((rate for stage in found for rate in stage), default=0.0)
    return 1.0 / highest if highest else None


def is_steady(found: Iterable[tuple[float, float]]) -> bool:
    """Whether all stages have the same rate."""
    return len({rate for stage in found for rate in stage}) < 2
