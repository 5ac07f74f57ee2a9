"""The hosts of a plan: created on this machine (`lab`) or given by address (`hosts`).

Parameters only; `lab` has its own layout types, and `trial` converts these to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from leadline.plan.field_types import (
    DelayUs,
    PlanModel,
    RateBps,
    Share,
    SizeBytes,
    SomeItems,
    rule,
    validation_error,
    within,
)
from leadline.quantities import rounded_share

Topology = Literal["remote-access", "site-to-site"]
SMALLEST_IPV6_MTU_BYTES = 1280
"""RFC 8200, section 5: "IPv6 requires that every link in the Internet have an MTU of 1280 octets or greater." """


_UpToAll = Annotated[Share, within(0, 1, "", "a share")]
EmulatorName = Literal["own", "netem"]


class LinkSpec(PlanModel):
    """The properties of the lab's links: rate and MTU of each one, and what the WAN does to packets."""

    rate_bps: RateBps | None = Field(default=None, validation_alias="rate")
    """Bits per second on the wire, headers included. Null: as fast as the kernel."""
    mtu_bytes: Annotated[int, Field(ge=576, le=65535)] = Field(default=1500, validation_alias="mtu")
    """Largest IP packet, bytes."""
    loss: Share | None = None
    """Share of packets that are dropped at random."""
    loss_burst: Annotated[float, Field(ge=1, le=10_000)] | None = None
    """Mean number of packets that are lost in a row (Gilbert's model). Null: each is lost independently."""
    drop_every: Annotated[int, Field(ge=2, lt=2**31)] | None = None
    """Drop every Nth packet."""
    drop_udp_every: Annotated[int, Field(ge=2, lt=2**31)] | None = None
    """Drop every Nth UDP packet."""
    delay_us: DelayUs | None = Field(default=None, validation_alias="delay")
    """Delay added to each packet, one way."""
    jitter_us: DelayUs | None = Field(default=None, validation_alias="jitter")
    """The delay varies by up to this much in either direction."""
    reorder: _UpToAll | None = None
    """Share of packets that arrive after a later one of their flow."""
    duplicate: _UpToAll | None = None
    """Share of packets that arrive twice."""
    corrupt: _UpToAll | None = None
    """Share of packets in which one bit is inverted."""
    queue_bytes: Annotated[SizeBytes, within(1, 2**30, " bytes")] | None = Field(default=None, validation_alias="queue")
    """Longest queue in front of the rate. Null: 50 ms of the rate."""

    @property
    def is_impaired(self) -> bool:
        """Whether it needs an emulator: more than a rate and packets that are dropped independently."""
        burst = self.loss_burst is not None and self.loss_burst > 1
        return bool(self.delay_us or self.reorder or self.duplicate or self.corrupt or burst)

    @property
    def beyond_netem(self) -> str | None:
        """What it asks for that netem cannot do here; None for nothing."""
        if self.loss_burst is not None and self.loss_burst > 1:
            return "lose packets in bursts"
        if self.reorder and not self.delay_us:
            return "reorder packets without a delay"
        return None

    @rule
    def _effects_have_their_base(self) -> Iterator[PydanticCustomError]:
        if self.jitter_us and self.jitter_us > (self.delay_us or 0):
            yield validation_error(
                f"the jitter ({self.jitter_us / 1000:g} ms) is longer than the delay "
                f"({(self.delay_us or 0) / 1000:g} ms)",
                at=("jitter",),
                hint="packets cannot arrive before they were sent; give lab.link.delay",
            )
        if self.loss_burst is not None and not self.loss:
            yield validation_error("bursts of a loss that is not given", at=("loss_burst",), hint="give lab.link.loss")
        if self.queue_bytes is not None and self.rate_bps is None:
            yield validation_error("a queue without a rate is always empty", at=("queue",), hint="give lab.link.rate")

    @model_validator(mode="after")
    def _something_arrives(self) -> Self:
        if self.loss is not None and self.loss >= 1:
            text = f"{self.loss:g} is {rounded_share(self.loss)}: nothing would arrive"
            raise validation_error(text, at=("loss",), hint="one percent is 1%")
        return self


class LabSpec(PlanModel):
    """Hosts created on this machine, as network namespaces."""

    link: LinkSpec = LinkSpec()
    """The links between them."""
    cpus: Literal["split"] | None = None
    """`split`: clients, gateways and server run on different CPUs; of two CPUs, one is the gateways'. Null: the kernel
    chooses, again and again."""
    gateway_cpus: Annotated[int, Field(ge=1)] | None = None
    """Number of CPUs that the programs of the gateways may use. The other hosts share the rest, or all CPUs where none
    is left. Null: as `cpus` says."""
    idle: Literal["poll"] | None = None
    """`poll`: while a trial runs, CPUs of this machine that have no work poll for some, and do not sleep. Null: they
    sleep."""
    emulator: EmulatorName | None = None
    """What delays, reorders, duplicates and corrupts packets: an agent (`own`) or the kernel's `netem`. Null: netem if
    the kernel has it, else own."""

    @rule
    def _emulator_can_do_it(self) -> Iterator[PydanticCustomError]:
        if self.emulator == "netem" and self.link.beyond_netem is not None:
            yield validation_error(
                f"netem cannot {self.link.beyond_netem}", at=("emulator",), hint="write emulator: own"
            )


@dataclass(frozen=True, slots=True)
class HostAddress:
    """Where an agent is started: on this machine (`local`) or over SSH. None as user or port means SSH's own
    default."""

    local: bool
    host: str = "localhost"
    user: str | None = None
    port: int | None = None
    addresses: tuple[str, ...] = ()
    """Its IP addresses on the measured network, at most one per version; empty if unknown."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `local` or `ssh://[user@]host[:port]`, with an IPv6 host in brackets. Raises ValueError with a
        message for the user."""
        if text == "local":
            return cls(local=True)
        match = _SSH.fullmatch(text)
        if match is None:
            secret = text.startswith("ssh://") and ":" in text.removeprefix("ssh://").partition("@")[0] and "@" in text
            advice = "a password must not be in a plan; use a key or an SSH agent" if secret else _FORMS
            raise ValueError(f"{'the address' if secret else repr(text)} is not a host; {advice}")
        user, bracketed, name, port = match.groups()
        if port is not None and not 1 <= int(port) <= 65535:
            raise ValueError(f"{text!r} has an invalid port; write 1 to 65535")
        return cls(local=False, host=bracketed or name, user=user, port=int(port) if port else None)


def _checked(text: str) -> str:
    HostAddress.parse(text)
    return text


def _with_scheme(value: Any) -> Any:
    """Add the scheme, which the value of the key `ssh` may omit."""
    plain = isinstance(value, str) and value != "local" and "://" not in value
    return f"ssh://{value}" if plain else value


def _addresses(value: Any) -> Any:
    texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value
    if not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError("this is neither an IP address nor a list of IP addresses")
    versions = [_version(text) for text in texts]
    if len(set(versions)) < len(versions):
        raise ValueError(f"{', '.join(texts)}: give only one address per IP version, the one that receives the load")
    return texts


def _version(text: str) -> int:
    try:
        address = ip_address(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address, such as 10.0.0.2 or fd00::2") from None
    if address.is_unspecified or address.is_multicast or "%" in text:
        raise ValueError(f"{text} is not a unicast address without a zone")
    return address.version


_SSH = re.compile(
    r"ssh://(?:([A-Za-z0-9_][\w.-]*)@)?(?:\[([0-9A-Fa-f:.%\w]+)\]|([A-Za-z0-9_][\w.-]*))(?::(\d{1,5}))?/?"
)
_FORMS = "write ssh://[user@]host[:port], or local"


class GivenHost(PlanModel):
    """An existing host: how to start an agent there, and its address on the measured network."""

    ssh: Annotated[
        str,
        BeforeValidator(_with_scheme),
        AfterValidator(_checked),
        WithJsonSchema({"type": "string", "pattern": r"^\S+$"}),
    ]
    """[user@]host[:port] of its SSH server, with or without `ssh://`; `local` is this machine."""
    addresses: Annotated[
        tuple[str, ...],
        BeforeValidator(_addresses),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
    ] = Field(default=(), validation_alias="address")
    """Its IP address on the measured network, or a list of an IPv4 and an IPv6 address."""

    @property
    def at(self) -> HostAddress:
        """Where its agent is started, and its addresses."""
        return replace(HostAddress.parse(self.ssh), addresses=self.addresses)


def _host(value: Any) -> Any:
    """A host that is written as text; its address on the measured network is unknown."""
    return GivenHost(ssh=_checked(value)) if isinstance(value, str) else value


_Host = Annotated[
    GivenHost,
    BeforeValidator(_host),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^(local|ssh://[^\s]+)$"},
                {
                    "type": "object",
                    "properties": {
                        "ssh": {
                            "type": "string",
                            "pattern": r"^\S+$",
                            "description": "[user@]host[:port] of its SSH server; `local` is this machine.",
                        },
                        "address": {
                            "anyOf": [
                                {"type": "string"},
                                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
                            ],
                            "description": "Its IP address on the measured network, or one address per IP version.",
                        },
                    },
                    "required": ["ssh"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


class Hosts(PlanModel):
    """Existing hosts: `local`, `ssh://[user@]host[:port]`, or {ssh: ..., address: ...} if the address on the measured
    network differs from SSH's."""

    gateway: _Host | None = None
    """The host of the system under test in a remote-access plan."""
    gateway_a: _Host | None = Field(default=None, validation_alias="gateway-a")
    """The clients' gateway in a site-to-site plan."""
    gateway_b: _Host | None = Field(default=None, validation_alias="gateway-b")
    """The server's gateway in a site-to-site plan."""
    server: _Host
    """The host that answers the load, at its `address`."""
    clients: SomeItems[_Host]
    """The hosts that generate the load."""

    def named(self, topology: Topology) -> dict[str, HostAddress]:
        """Every host by its name in a lab of this topology."""
        gateways = {"gateway": self.gateway, "gateway-a": self.gateway_a, "gateway-b": self.gateway_b}
        names = GATEWAYS[topology]
        hosts = {f"client{index}": host for index, host in enumerate(self.clients, 1)}
        hosts |= {name: host for name, host in gateways.items() if name in names and host is not None}
        return {name: host.at for name, host in (hosts | {"server": self.server}).items()}

    def validation_errors(self, topology: Topology) -> Iterator[PydanticCustomError]:
        """Errors if the gateways are not those of the topology, or if clients cannot reach the server."""
        every = ("gateway", "gateway-a", "gateway-b")
        given = [key for key in every if getattr(self, key.replace("-", "_")) is not None]
        foreign = [key for key in given if key not in GATEWAYS[topology]]
        for key in foreign:
            yield validation_error(f"a {topology} plan has no {key}", at=("hosts", key), hint=_has(topology))
        for key in GATEWAYS[topology]:
            if key not in given and not foreign:  # a gateway of the other topology explains the missing one
                yield validation_error(f"{key!r} is missing", at=("hosts",), hint=_has(topology))
        elsewhere = next((host.ssh for host in self.clients if not host.at.local), None)
        if self.server.at.local and not self.server.addresses and elsewhere is not None:
            yield validation_error(
                f"{elsewhere} cannot reach a server that is only called 'local'",
                at=("hosts", "server"),
                hint="write server: {ssh: local, address: ADDRESS}",
            )


GATEWAYS: dict[Topology, tuple[str, ...]] = {"remote-access": ("gateway",), "site-to-site": ("gateway-a", "gateway-b")}
"""The gateways of each topology, the clients' side first."""


def _has(topology: Topology) -> str:
    return f"it has {', '.join(GATEWAYS[topology])}, server and clients"
