"""The tests that a plan can hold, as parameters only; `trial` maps them to what an agent runs.

Rates and flows count per client. A new workload belongs here (a model with its `kind`, added to `Test`), in
`crates/wire`, and with its figures' names in `leadline.plan.targets`.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from leadline.plan.fields import (
    Clients,
    Count,
    DurationMs,
    DurationOrZeroMs,
    IpVersion,
    Items,
    Label,
    PeriodMs,
    PerSecond,
    PlanModel,
    RateBps,
    SizeBytes,
    Total,
    complaint,
    within,
)

SMALLEST_UDP_PAYLOAD_BYTES = 40
"""The measuring header: session, flow, sequence number, and when the datagram was due and sent."""
LARGEST_UDP_PAYLOAD_BYTES = 65507
"""65535 less the headers of IPv4 (20) and UDP (8)."""
RESERVED_NAMES = frozenset({"setup", "build", "bring-up", "tear-down"})
"""Phases of a trial; a test of the same name could not be told from one in a journal."""
_UdpPayload = Annotated[
    SizeBytes,
    within(SMALLEST_UDP_PAYLOAD_BYTES, LARGEST_UDP_PAYLOAD_BYTES, " bytes", "by the measuring header and by UDP"),
]
_Message = Annotated[SizeBytes, within(1, 16 * 2**20, " bytes")]


class _Test(PlanModel):
    name: Label
    """Names the test in tables, targets and `--set tests.NAME.key=value`."""
    clients: Clients = None
    """How many clients take part; null or `all` means every one."""
    ip: IpVersion = 4
    """IP version of the load itself, inside the tunnel if there is one."""
    duration_ms: DurationMs = Field(default=10_000, validation_alias="duration")
    """How long, warm-up included."""
    warmup_ms: DurationOrZeroMs = Field(default=0, validation_alias="warmup")
    """Leading time whose figures are kept but flagged."""
    interval_ms: PeriodMs = Field(default=100, validation_alias="interval")
    """Time between progress figures; the plan's where it is not given."""
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    """Generating threads per client."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.name in RESERVED_NAMES:
            raise complaint(f"{self.name!r} is the name of a trial's phase", at=("name",), hint="choose another name")
        if self.warmup_ms >= self.duration_ms:
            raise complaint(
                f"{self.warmup_ms} ms of warm-up leave nothing of {self.duration_ms} ms",
                at=("warmup",),
                hint="the duration includes the warm-up",
            )
        return self


class TcpTest(_Test):
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


class UdpTest(_Test):
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


class RrTest(_Test):
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

    @model_validator(mode="after")
    def _datagrams_carry_it(self) -> Self:
        for key, size in (("request", self.request_bytes), ("response", self.response_bytes)):
            if self.protocol == "udp" and size < SMALLEST_UDP_PAYLOAD_BYTES:
                raise complaint(
                    f"{size} is too small for a measured datagram; at least {SMALLEST_UDP_PAYLOAD_BYTES} bytes",
                    at=(key,),
                )
            if self.protocol == "udp" and size > LARGEST_UDP_PAYLOAD_BYTES:
                raise complaint(
                    f"{size} is too large for a datagram; at most {LARGEST_UDP_PAYLOAD_BYTES} bytes", at=(key,)
                )
        return self


def _request_target(text: str) -> str:
    if not text.startswith("/") or any(not "!" <= character <= "~" for character in text):
        raise ValueError(f"{text!r} is not a path; it starts with '/' and has no spaces (encode them as %20)")
    return text


class HttpHeader(PlanModel):
    """One header field of a request."""

    name: str
    value: str


class HttpTest(_Test):
    """HTTP/1.1 over keep-alive connections: a closed loop, or an open one where `rate` is set."""

    kind: Literal["http"] = "http"
    path: Annotated[str, AfterValidator(_request_target)] = "/"
    """Path and query of each request."""
    size_bytes: Annotated[SizeBytes, within(0, 2**30, " bytes")] | None = Field(default=None, validation_alias="size")
    """Body that each response shall have, asked for as `?size=`; the responder's default where null."""
    connections: Count = 1
    """Connections per client."""
    rate_per_s: PerSecond | None = Field(default=None, validation_alias="rate")
    """Requests per second and client, each timed from when it was due; closed loop where null."""
    number: Total | None = None
    """Requests per client, after which the test ends before its duration does."""
    method: Literal["GET", "HEAD", "POST", "PUT"] = "GET"
    """Request method."""
    headers: Items[HttpHeader] = ()
    """Extra header fields, in order."""
    body: str | None = None
    """Request body."""
    timeout_ms: DurationMs = Field(default=5_000, validation_alias="timeout")
    """After this a request counts as an error."""

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if self.size_bytes is not None and "?" in self.path:
            raise complaint(
                "size is asked for in the query, and path has one", at=("size",), hint="give only one of them"
            )
        return self

    @property
    def request_target(self) -> str:
        """Path and query as sent, the size included."""
        return self.path if self.size_bytes is None else f"{self.path}?size={self.size_bytes}"


Test = Annotated[TcpTest | UdpTest | RrTest | HttpTest, Field(discriminator="kind")]
