"""The parameters of the `tunnel` test: a fleet of VPN clients, their arrivals, their expected configuration, their
traffic.

`leadline tunnel` has the same parameters as options. The clients' identities (profile, keys, passwords) are not part
of a test, so that nothing that is stored of a test contains them: see `leadline.kinds.tunnel.workload`.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address, ip_network, summarize_address_range
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from leadline.plan import rate, units
from leadline.plan.base_test import BaseTest, Conflict
from leadline.plan.clients import MOST_CLIENTS
from leadline.plan.field_types import (
    DURATION_PATTERN,
    DurationMs,
    Items,
    PlanModel,
    SizeBytes,
    rule,
    validation_error,
    within,
)
from leadline.plan.rate import PerSecondOrStages, Stages

MOST_ADDRESSES = 65_536
_BACKOFF_S = (1, 300)
"""First and longest pause of a failed client before it retries; each pause is twice the previous one."""
_SMALLEST_ECHO_BYTES, _SMALLEST_UDP_BYTES = 64, 40
_LARGEST_PACKET_BYTES = 65507
_DAY_MS = 86_400_000


def _addresses(text: str) -> str:
    """Check that the text is an address, a network (its hosts) or FIRST-LAST; raises ValueError with advice."""
    count = sum(1 for _ in zip(range(MOST_ADDRESSES + 1), addresses_of(text), strict=False))
    if count > MOST_ADDRESSES:
        raise ValueError(f"{text!r} has more than {MOST_ADDRESSES} addresses")
    return text


def addresses_of(text: str) -> Iterator[str]:
    """The addresses of `192.0.2.7`, `192.0.2.0/28` (without its network and broadcast addresses) or
    `192.0.2.10-192.0.2.20`.

    Raises:

        ValueError: it is none of these.
    """
    try:
        if "/" in text:
            yield from (str(address) for address in ip_network(text).hosts())
        elif "-" in text:
            first, _, last = text.partition("-")
            for network in summarize_address_range(ip_address(first.strip()), ip_address(last.strip())):
                yield from (str(address) for address in network)
        else:
            yield str(ip_address(text))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{text!r} is not an address, a network such as 192.0.2.0/28 or a range FIRST-LAST ({error})"
        ) from None


def _network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a network such as 10.8.0.0/24 ({error})") from None


def _address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address") from None


Network = Annotated[str, AfterValidator(_network)]
Address = Annotated[str, AfterValidator(_address)]


class TunnelExpected(PlanModel):
    """The configuration that a client must receive to count as configured."""

    pools: Items[Network] = ()
    """Networks; one of them must contain the client's address. Empty: any address."""
    routes: Items[Network] = ()
    """Networks that must be pushed as routes."""
    dns: Items[Address] = ()
    """DNS servers that must be pushed."""
    options: Items[str] = ()
    """Options that must be pushed, each as exactly this text."""
    echo: Address | None = None
    """Destination of the ICMP echo request that verifies a tunnel; null: the server's end of the tunnel."""


class Moment(PlanModel):
    """When connected clients perform an action: time after the first arrival, and the period to spread it over (0:
    all at once)."""

    at_ms: Annotated[int, Field(ge=0, le=_DAY_MS)]
    over_ms: Annotated[int, Field(ge=0, le=_DAY_MS)]


def _moment(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return value
    at, _, over = str(value).partition("/")
    found = [units.duration_ms(at.strip()), units.duration_ms(over.strip()) if over else 0]
    return Moment(at_ms=_at_most_a_day(found[0]), over_ms=_at_most_a_day(found[1]))


def _at_most_a_day(ms: int) -> int:
    if ms > _DAY_MS:
        raise ValueError(f"{ms} ms is too large; at most {_DAY_MS} ms (one day)")
    return ms


Moments = Items[
    Annotated[
        Moment,
        BeforeValidator(_moment),
        WithJsonSchema(
            {"type": ["number", "string"], "minimum": 0, "pattern": DURATION_PATTERN.replace("$", r"(/.+)?$")}
        ),
    ]
]


class TunnelLoad(PlanModel):
    """Load in the tunnels of all configured clients. It begins when every client is configured or has failed."""

    kind: Literal["echo", "udp", "tcp", "http"]
    """echo: ICMP echo requests; udp, tcp: numbered datagrams or a TCP stream with a `leadline serve`; http: HTTP
    requests."""
    to: str | None = None
    """Destination address in the tunnels; null: the run's server, for echo the server's end of the tunnel."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Destination port; null: 5201, for http 8080."""
    path: str = "/"
    """Path and query of each HTTP request."""
    rate_per_s: float | None = Field(default=None, validation_alias="rate")
    """Packets or requests per second and client, or bits of payload per second with a unit (20mbit). Null: as fast as
    possible."""
    packet_bytes: Annotated[SizeBytes, within(_SMALLEST_UDP_BYTES, _LARGEST_PACKET_BYTES, " bytes")] | None = Field(
        default=None, validation_alias="packet"
    )
    """Bytes of each packet: the UDP payload (null: 1200), for echo the whole IP packet (null: 100)."""
    direction: Literal["up", "down", "both"] = "up"
    """Client to server, server to client, or both at the same time."""
    duration_ms: DurationMs = Field(default=10_000, validation_alias="duration")
    """Length of the load."""

    @model_validator(mode="before")
    @classmethod
    def _rate_in_packets(cls, given: Any) -> Any:
        """Convert a bit rate to packets: it is the rate of the packets' payload."""
        key = "rate" if isinstance(given, dict) and "rate" in given else "rate_per_s"
        value = given.get(key) if isinstance(given, dict) else None
        if value is None or not isinstance(given, dict):
            return given
        at = "rate"
        try:
            if isinstance(value, str) and "bit" in value.lower():
                size = given.get("packet", given.get("packet_bytes"))
                if given.get("kind") == "http":
                    raise ValueError("requests have no fixed size for a bit rate; write requests per second, 50/s")
                default = _DEFAULT_BYTES.get(str(given.get("kind")), 1)
                size_bytes = default if size is None else units.size_bytes(size)
                if size_bytes:
                    return {**given, key: units.rate_bps(value) / 8 / size_bytes}
                at = "packet"
                raise ValueError(f"0 bytes is too small; at least {_SMALLEST_UDP_BYTES} bytes")
            found = float(units.per_second(value))
        except ValueError as error:
            raise validation_error(str(error), at=(at,)) from None
        if found <= 0:
            raise validation_error("a rate must be above 0", at=("rate",))
        return {**given, key: found}

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.kind == "echo":
            if self.packet_bytes is not None and self.packet_bytes < _SMALLEST_ECHO_BYTES:
                raise validation_error(
                    f"{self.packet_bytes} is too small for an echo request; at least {_SMALLEST_ECHO_BYTES} bytes",
                    at=("packet",),
                )
            if self.rate_per_s is None:
                raise validation_error("echo requests need a rate", at=("rate",), hint="write 50/s, per client")
        if self.kind in ("echo", "http") and self.direction != "up":
            raise validation_error(
                f"{self.kind} has no direction", at=("direction",), hint="leave it out: answers always return"
            )
        if self.kind == "tcp" and (self.rate_per_s is not None or self.packet_bytes is not None):
            key = "rate" if self.rate_per_s is not None else "packet"
            raise validation_error("TCP chooses its own rate and segments", at=(key,), hint="leave it out")
        if self.kind == "http" and self.packet_bytes is not None:
            raise validation_error("HTTP requests have no packet size", at=("packet",), hint="leave it out")
        return self

    @property
    def size_bytes(self) -> int:
        """The size of the packets; if none is set, the kind's default."""
        return self.packet_bytes or _DEFAULT_BYTES.get(self.kind, 1)


class TunnelTest(BaseTest):
    """A fleet of VPN clients that connects, and may stay and carry load. It ends when everything is done, or when its
    duration is over."""

    kind: Literal["tunnel"] = "tunnel"
    number: Annotated[int, within(1, MOST_CLIENTS, " clients")] | None = None
    """Number of VPN clients; null: all of the plan's fleet."""
    rate_per_s: PerSecondOrStages | None = Field(default=None, validation_alias="rate")
    """Arrivals per second, or stages (0:200/10s,200/60s). Null: all at once."""
    settled: Annotated[int, Field(ge=0)] = 0
    """Clients that connect before the others. Their pings show the effect of the arrivals."""
    attempt_timeout_ms: Annotated[DurationMs, within(100, 3_600_000, " ms")] = Field(
        default=60_000, validation_alias="attempt_timeout"
    )
    """Time limit of one attempt to connect, from its first packet until it has its options."""
    first_data_ms: DurationMs = Field(default=5_000, validation_alias="first_data")
    """Time that a client waits for the answer to its first data packet. Without an answer it counts as partial."""
    retries: Annotated[int, Field(ge=0, le=1000)] = 0
    """Number of retries of a failed client: after 1 s, then twice as long each time, up to 300 s."""
    ping_ms: DurationMs | None = Field(default=None, validation_alias="ping")
    """Time between two pings of each configured client through its tunnel. Null: no pings, or 100ms with settled
    clients."""
    reconnect_at: Moments = ()
    """When all connected clients drop their connection silently and reconnect: TIME, or TIME/OVER to spread it over a
    period."""
    renegotiate_at: Moments = ()
    """When all connected clients negotiate new keys: TIME, or TIME/OVER."""
    expect: TunnelExpected = TunnelExpected()
    """What a client must receive to count as configured."""
    traffic: TunnelLoad | None = None
    """Load in the tunnels."""
    bind: Items[Annotated[str, AfterValidator(_addresses)]] = ()
    """Local addresses that the clients use in turn; networks and ranges (FIRST-LAST) are possible."""

    @rule
    def _the_fleet_fits(self) -> Iterator[PydanticCustomError]:
        for at, text, hint in conflicts(self):
            yield validation_error(text, at=(at,), hint=hint)

    @property
    def needs_fleet(self) -> bool:
        """True: the clients of a fleet are what this test measures."""
        return True

    def with_fleet(self, clients: int) -> TunnelTest:
        """The test with all of the fleet's clients if it does not set a number."""
        return self if self.number is not None else self.counted(clients)

    def fleet_conflicts(self, clients: int) -> Iterator[Conflict]:
        """Too many clients for the fleet, and keys that exclude each other with that number."""
        if self.number is not None and self.number > clients:
            yield "number", f"{self.number} is more than the fleet's {clients} clients", None
        yield from conflicts(self.with_fleet(clients))

    def counted(self, clients: int) -> TunnelTest:
        """Return the test with this number of clients."""
        return self.model_copy(update={"number": clients})

    @property
    def stages(self) -> Stages:
        """The arrivals' rate as stages; empty if all arrive at once. A single rate lasts until all clients have
        arrived."""
        if self.rate_per_s is None or isinstance(self.rate_per_s, tuple):
            return self.rate_per_s or ()
        lasting_ms = round(1000 * (self.number or 1) / self.rate_per_s) + 1000
        return (rate.RateStage(from_per_s=self.rate_per_s, to_per_s=self.rate_per_s, duration_ms=lasting_ms),)

    @property
    def expected_ms(self) -> int:
        """The time that arrivals, actions and traffic are planned to take. The connect times are unknown before the
        test."""
        if "duration_ms" in self.model_fields_set:
            return self.duration_ms
        moments = [moment.at_ms + moment.over_ms for moment in (*self.reconnect_at, *self.renegotiate_at)]
        arriving_ms = rate.total_ms(self.rate_per_s) if isinstance(self.rate_per_s, tuple) else 0
        if isinstance(self.rate_per_s, float):
            arriving_ms = round(1000 * (self.number or 1) / self.rate_per_s)
        stay_ms = max([arriving_ms, *moments]) + (_AFTERWARDS_MS if self.ping_every_ms is None else _PINGED_MS)
        return stay_ms + (self.traffic.duration_ms if self.traffic else 0)

    @property
    def longest_ms(self) -> int:
        """The maximum length of the test, including the settled clients."""
        return self.stay_ms + self.settling_ms

    @property
    def settling_ms(self) -> int:
        """The maximum time for the settled clients, which connect one after another, and the quiet time after
        them."""
        if not self.settled:
            return 0
        quiet_ms = max(_QUIET_MS, _QUIET_PINGS * (self.ping_every_ms or 0))
        return self.way_up_ms + _SETTLING_GAP_MS * self.settled + quiet_ms

    @property
    def stay_ms(self) -> int:
        """The maximum stay of the fleet from the first arrival on: the test's duration, else the time that everything
        can take."""
        if "duration_ms" in self.model_fields_set:
            return self.duration_ms
        done_ms = rate.total_ms(self.stages) + self.way_up_ms + (self.pinged_ms or 0)
        for moment in (*self.reconnect_at, *self.renegotiate_at):
            done_ms = max(done_ms, moment.at_ms + moment.over_ms + self.attempt_timeout_ms + self.first_data_ms)
        return done_ms + (self.traffic.duration_ms if self.traffic else 0) + _AFTERWARDS_MS

    @property
    def pinged_ms(self) -> int | None:
        """How long pings continue after the last client is configured or has failed; None for the whole stay of the
        fleet."""
        return None if self.ping_every_ms is None or "duration_ms" in self.model_fields_set else _PINGED_MS

    @property
    def ping_every_ms(self) -> int | None:
        """Time between a client's pings; None without pings."""
        return self.ping_ms or (_SETTLED_PING_MS if self.settled else None)

    @property
    def way_up_ms(self) -> int:
        """The maximum time until a client is configured or has given up, including its retries."""
        first_s, most_s = _BACKOFF_S
        waits_s = sum(min(first_s << min(attempt, 30), most_s) for attempt in range(self.retries))
        return (self.retries + 1) * (self.attempt_timeout_ms + self.first_data_ms) + 1000 * waits_s

    @property
    def addresses(self) -> tuple[str, ...]:
        """The local addresses, as a flat list."""
        return tuple(address for text in self.bind for address in addresses_of(text))


def conflicts(test: TunnelTest) -> Iterator[Conflict]:
    """Conflicts between keys: the key, the mistake, and the advice."""
    if test.number is not None and test.settled >= test.number:
        yield "settled", f"{test.settled} settled clients of {test.number} leave no client to arrive", "settle fewer"
    if test.number is not None and test.threads > test.number:
        yield "threads", f"{test.threads} threads for {test.number} clients", "use at least one client per thread"
    if "duration_ms" in test.model_fields_set:
        late = next((one for one in (*test.reconnect_at, *test.renegotiate_at) if one.at_ms >= test.duration_ms), None)
        if late is not None:
            key = "reconnect_at" if late in test.reconnect_at else "renegotiate_at"
            yield key, f"{late.at_ms} ms is after the end of the test ({test.duration_ms} ms)", "give a longer duration"
    if test.warmup_ms:
        yield "warmup", "a fleet has no warm-up: every connect is measured", "leave it out"
    stages = test.rate_per_s if isinstance(test.rate_per_s, tuple) else ()
    if stages and test.number is not None:
        coming = sum((stage.from_per_s + stage.to_per_s) / 2 * stage.duration_ms / 1000 for stage in stages)
        if coming < test.number - test.settled - 1:
            text = f"the stages last for {coming:.0f} arrivals, but {test.number - test.settled} clients have to arrive"
            yield "rate", text, "make the stages longer"


_DEFAULT_BYTES = {"echo": 100, "udp": 1200}
_SETTLED_PING_MS = 100
_PINGED_MS = 10_000
"""How long pings continue after the last client is configured or has failed, if no duration is given."""
_SETTLING_GAP_MS = 10
"""Time between two settled clients."""
_QUIET_MS, _QUIET_PINGS = 1_000, 10
"""Pings of settled clients before the arrivals begin: minimum time, and minimum number."""
_AFTERWARDS_MS = 2_000
"""Time reserved for the last answers and for disconnecting."""
