"""What a known truth is made of: the load that tools are asked for, the place where they run, and the true figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from leadline.analysis.truths import Figure, TruthText, Value
from leadline.errors import LeadlineError

LOOPBACK = "127.0.0.1"


class NotDecided(LeadlineError):
    """What is true of a load is not known: something disturbed it."""


@dataclass(frozen=True, slots=True)
class HttpLoad:
    """GET requests over kept connections."""

    connections: int
    duration_s: float
    """At most; of tools that cannot end by number also at least."""
    rate_per_s: float | None = None
    """Requests due per second; None: each connection sends its next request after the answer (a closed loop)."""
    number: int | None = None
    """Requests until the end; None: the load ends by time."""

    def __str__(self) -> str:
        end = f"{self.number:,} requests" if self.number is not None else f"{self.duration_s:g} s"
        rate = "closed loop" if self.rate_per_s is None else f"{self.rate_per_s:g} requests/s"
        return f"{self.connections} connections, {rate}, {end}"


@dataclass(frozen=True, slots=True)
class StreamLoad:
    """One TCP connection, as fast as it goes, from the client to the server."""

    duration_s: float

    def __str__(self) -> str:
        return f"one TCP connection, {self.duration_s:g} s"


@dataclass(frozen=True, slots=True)
class DatagramLoad:
    """One UDP flow from the client to the server, until a number of datagrams is sent."""

    rate_bps: int
    """Of payload."""
    packet_bytes: int
    """Payload of each datagram."""
    number: int

    @property
    def duration_s(self) -> float:
        """How long sending takes."""
        return self.number * self.packet_bytes * 8 / self.rate_bps

    def __str__(self) -> str:
        rate = f"{self.rate_bps / 1e6:g} Mbit/s"
        return f"{self.number:,} datagrams of {self.packet_bytes:,} bytes at {rate}"


@dataclass(frozen=True, slots=True)
class FloodLoad:
    """One UDP flow from the client to the server, as fast as the tool sends."""

    packet_bytes: int
    """Payload of each datagram."""
    duration_s: float

    def __str__(self) -> str:
        return f"datagrams of {self.packet_bytes:,} bytes without a rate, {self.duration_s:g} s"


@dataclass(frozen=True, slots=True)
class RoundTripLoad:
    """Small requests and answers over one TCP connection, one after the other."""

    duration_s: float

    def __str__(self) -> str:
        return f"one TCP connection, request and answer in turn, {self.duration_s:g} s"


Load = HttpLoad | StreamLoad | DatagramLoad | FloodLoad | RoundTripLoad


class Site(Protocol):
    """Where a tool runs against a truth, once."""

    @property
    def address(self) -> str:
        """The address of the server."""

    @property
    def port(self) -> int | None:
        """The port of the truth's own server; None if the tool brings its server."""

    @property
    def client(self) -> tuple[str, ...]:
        """The words before a command that run it where the client is."""

    @property
    def server(self) -> tuple[str, ...]:
        """The words before a command that run it where the server is."""

    @property
    def uncertain(self) -> Mapping[str, float]:
        """The uncertainty of true figures once they are read, in their units; those of a missing name have none."""

    def true_figures(self) -> Mapping[str, Value]:
        """The true figures of the load that has ended."""


@dataclass(frozen=True)
class Truth:
    """A server or a link whose figures are known."""

    id: str
    title: str
    made: str
    known: str
    load: Load
    figures: tuple[Figure, ...]
    site: Callable[[Any], AbstractContextManager[Site]] = field(repr=False)
    """Makes it for one load."""
    needs_lab: bool = False
    """Whether it needs hosts of its own."""

    @property
    def text(self) -> TruthText:
        """The truth in words."""
        layer = "HTTP" if isinstance(self.load, HttpLoad) else "TCP and UDP"
        return TruthText(self.id, layer, self.title, self.made, self.known, str(self.load), self.figures)
