"""The tests that a plan can hold, as parameters only; `trial` maps them to what an agent runs.

Rates and flows count per client.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from leadline.plan.base_test import BaseTest, Conflict, carried_conflicts
from leadline.plan.field_types import (
    Count,
    DurationMs,
    Items,
    Percentile,
    RateBps,
    SizeBytes,
    Total,
    rule,
    validation_error,
    within,
)

SMALLEST_UDP_PAYLOAD_BYTES = 40
"""The measuring header: session, flow, sequence number, and when the datagram was due and sent."""
LARGEST_UDP_PAYLOAD_BYTES = 65507
"""65535 less the headers of IPv4 (20) and UDP (8)."""
_UdpPayload = Annotated[
    SizeBytes,
    within(SMALLEST_UDP_PAYLOAD_BYTES, LARGEST_UDP_PAYLOAD_BYTES, " bytes", "by the measuring header and by UDP"),
]
_Message = Annotated[SizeBytes, within(1, 16 * 2**20, " bytes")]


class TcpTest(BaseTest):
    """Bulk TCP."""

    kind: Literal["tcp"] = "tcp"
    flows: Count = 1
    """Connections per client."""
    direction: Literal["up", "down", "both"] = "up"
    """Client to server, server to client, or both at once."""
    block_bytes: Annotated[SizeBytes, within(1, 64 * 2**20, " bytes")] = Field(
        default=128 * 1024, validation_alias="block"
    )
    """Bytes per write and read."""
    rate_bps: RateBps | None = Field(default=None, validation_alias="rate")
    """Payload bits per second and client, shared evenly by its flows; as fast as it goes where null."""
    congestion: str | None = None
    """Congestion control by the kernel's name; the host's default where null."""

    def fleet_conflicts(self, clients: int) -> Iterator[Conflict]:
        """All clients take part with one flow each, and TCP has no pace of its own inside."""
        yield from carried_conflicts(self, self.flows)
        if self.rate_bps is not None or self.congestion is not None:
            key = "rate" if self.rate_bps is not None else "congestion"
            yield key, "TCP inside of a fleet's tunnels goes as fast as it can, by its own congestion control", None


class UdpTest(BaseTest):
    """Paced, numbered datagrams; loss, order and jitter are counted where they arrive."""

    kind: Literal["udp"] = "udp"
    flows: Count = 1
    """Sockets per client."""
    direction: Literal["up", "down", "both"] = "up"
    """Client to server, server to client, or both at once."""
    rate_bps: RateBps | None = Field(default=None, validation_alias="rate")
    """Bits of UDP payload per second and client, shared evenly by its flows; as fast as it goes where null."""
    packet_bytes: _UdpPayload = Field(default=1400, validation_alias="packet")
    """UDP payload of each datagram."""
    number: Total | None = None
    """Datagrams per flow, after which it ends before its duration does."""

    def fleet_conflicts(self, clients: int) -> Iterator[Conflict]:
        """All clients take part with one flow each, for as long as the test lasts."""
        yield from carried_conflicts(self, self.flows)
        if self.number is not None:
            yield "number", "a fleet's datagrams end with the duration", "leave it out"


class RrTest(BaseTest):
    """Request and response, one outstanding per flow."""

    kind: Literal["rr"] = "rr"
    protocol: Literal["tcp", "udp"] = "tcp"
    """Over which transport."""
    flows: Count = 1
    """Connections or sockets per client."""
    request_bytes: _Message = Field(default=1, validation_alias="request")
    """Request payload."""
    response_bytes: _Message = Field(default=1, validation_alias="response")
    """Response payload."""
    number: Total | None = None
    """Transactions per client, after which the test ends before its duration does."""
    timeout_ms: DurationMs = Field(default=1_000, validation_alias="timeout")
    """After this a transaction counts as an error."""
    percentiles: Items[Percentile] = ()
    """Percentiles of the latency beside the usual ones: 25, 99.95 or p9995."""

    @model_validator(mode="before")
    @classmethod
    def _least_datagrams(cls, given: object) -> object:
        """Over UDP, sizes that are not given are the least that carry the measuring header."""
        if not isinstance(given, dict) or given.get("protocol") != "udp":
            return given
        missing = {
            key: SMALLEST_UDP_PAYLOAD_BYTES
            for key in ("request", "response")
            if key not in given and f"{key}_bytes" not in given
        }
        return {**given, **missing}

    @rule
    def _datagrams_carry_it(self) -> Iterator[PydanticCustomError]:
        for key, size in (("request", self.request_bytes), ("response", self.response_bytes)):
            if self.protocol == "udp" and size < SMALLEST_UDP_PAYLOAD_BYTES:
                yield validation_error(
                    f"{size} is too small for a measured datagram; at least {SMALLEST_UDP_PAYLOAD_BYTES} bytes",
                    at=(key,),
                )
            if self.protocol == "udp" and size > LARGEST_UDP_PAYLOAD_BYTES:
                yield validation_error(
                    f"{size} is too large for a datagram; at most {LARGEST_UDP_PAYLOAD_BYTES} bytes", at=(key,)
                )
