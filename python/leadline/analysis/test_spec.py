"""What a test was to do, read from its record once, whether a plan's test or an agent's workload wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NS_PER_MS = 1_000_000
_DEFAULT_INTERVAL_MS = 100
_PACED_BLOCK_S = 0.01


@dataclass(frozen=True, slots=True)
class TestSpec:
    """A test's parameters as far as its figures depend on them."""

    __test__ = False  # the name is not for pytest to collect

    name: str
    kind: str
    direction: str  # up | down | both, as the client sees it; a fleet's is that of the load inside
    duration_ns: int | None
    warmup_ns: int
    interval_ns: int
    number: int | None
    connections: int | None
    # Mean time between two sends of one flow (udp) or of one client (http), or between two arrivals (tunnel), s, where
    # the rate is highest; None for as fast as it goes, or all at once.
    send_gap_s: float | None
    # Whether it is to go at one speed: a rate in stages is not, and its intervals differ as they were told to.
    steady: bool
    # Whether an http test's requests go over TLS.
    tls: bool
    # Clients of a fleet that connect before the others.
    settled: int = 0
    # What load a fleet carries (echo | udp | tcp | http), and the time between two sends of one client, s.
    inside: str | None = None
    inside_gap_s: float | None = None
    # Metrics that the test's author asked for beside those that its kind has: percentiles.
    asked: tuple[str, ...] = ()

    @property
    def paced(self) -> bool:
        """Whether sends have times of their own, instead of following the last answer or a free buffer."""
        return self.send_gap_s is not None

    @property
    def counts_units(self) -> bool:
        """Whether answers to its own operations are what it counts first, rather than bits that one side sends."""
        return self.kind in ("rr", "http") or self.inside in ("echo", "http")

    @property
    def carries(self) -> bool:
        """Whether a fleet carries load."""
        return self.inside is not None

    @classmethod
    def read(cls, test: Mapping[str, Any]) -> TestSpec:
        """Takes a plan's test (`TcpTest` ...) or a workload of the contract (`TcpSpec` ...), dumped by field names."""
        inside = (test.get("traffic") or None) if test.get("kind") == "tunnel" else None
        return cls(
            name=str(test.get("name") or test.get("kind") or "test"),
            kind=str(test.get("kind") or "tcp"),
            direction=str((inside or test).get("direction") or "up"),
            duration_ns=_duration_ns(test),
            warmup_ns=_ns(test.get("warmup_ms")) or 0,
            interval_ns=_ns(test.get("interval_ms")) or _DEFAULT_INTERVAL_MS * _NS_PER_MS,
            number=test.get("number"),
            connections=test.get("connections"),
            send_gap_s=_send_gap_s(test),
            # A fleet carries its load at one rate, however it arrives.
            steady=inside is not None or len({rate for stage in _stages(test) for rate in stage}) < 2,
            tls=test.get("scheme") == "https" or test.get("tls") is not None,
            settled=int(test.get("settled") or 0),
            inside=str(inside.get("kind") or "udp") if inside is not None else None,
            inside_gap_s=_inside_gap_s(test),
            asked=_asked(test),
        )


def _ns(milliseconds: Any) -> int | None:
    return round(milliseconds * _NS_PER_MS) if isinstance(milliseconds, int | float) else None


def _asked(test: Mapping[str, Any]) -> tuple[str, ...]:
    """Percentiles that the test lists, of the times that its kind has a spread of."""
    families = {"rr": ("latency",), "http": ("latency", "service")}.get(str(test.get("kind")), ())
    return tuple(f"{family}_{name}_us" for family in families for name in test.get("percentiles") or ())


def _duration_ns(test: Mapping[str, Any]) -> int | None:
    """Of a fleet that of its traffic: it stays as long as its clients take."""
    if test.get("kind") == "tunnel":
        return _ns((test.get("traffic") or {}).get("duration_ms"))
    return _ns(test.get("duration_ms"))


def _inside_gap_s(test: Mapping[str, Any]) -> float | None:
    """A plan's traffic has a rate, a workload's one in packets or requests."""
    traffic = test.get("traffic") if test.get("kind") == "tunnel" else None
    rate = next((rate for key in ("rate_per_s", "rate_pps") if (rate := (traffic or {}).get(key))), None)
    return 1.0 / float(rate) if rate else None


def _send_gap_s(test: Mapping[str, Any]) -> float | None:
    """A plan gives a client's rate, a workload a flow's."""
    kind = test.get("kind")
    if kind in ("http", "tunnel"):
        highest = max((rate for stage in _stages(test) for rate in stage), default=0.0)
        return 1.0 / highest if highest else None
    if kind == "udp" and test.get("rate_pps"):
        return 1.0 / float(test["rate_pps"])
    if kind == "udp" and test.get("rate_bps"):
        bits = 8.0 * float(test.get("packet_bytes") or test.get("datagram_bytes") or 1400)
        return bits * float(test.get("flows") or 1) / float(test["rate_bps"])
    if kind == "tcp" and test.get("rate_bps"):
        bits_per_s = float(test["rate_bps"]) / float(test.get("flows") or 1)
        # A paced block is no longer than 10 ms of its rate.
        block_bytes = min(float(test.get("block_bytes") or 128 * 1024), max(1.0, bits_per_s / 8.0 * _PACED_BLOCK_S))
        return 8.0 * block_bytes / bits_per_s
    return None


def _stages(test: Mapping[str, Any]) -> list[tuple[float, float]]:
    """First and last rate of each stage of an http or tunnel test: a plan's (one number, or stages) or a workload's
    (stages)."""
    keys = {"http": ("rate_per_s", "rate"), "tunnel": ("rate_per_s", "arrivals")}.get(str(test.get("kind")), ())
    given = next((test[key] for key in keys if key in test), None)
    if isinstance(given, int | float):
        return [(float(given), float(given))]
    return [(float(stage["from_per_s"]), float(stage["to_per_s"])) for stage in given or ()]
