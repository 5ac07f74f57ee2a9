"""The hosts of a plan: created on this machine (`lab`) or given by address (`hosts`).

Parameters only; `lab` has its own layout types, and `trial` converts these to them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from itertools import count
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
from leadline.plan.host_address import HostAddress
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


def _checked(text: str) -> str:
    HostAddress.parse(text)
    return text


def _prefixed(scheme: str) -> BeforeValidator:
    """Adds the scheme, which the value of the key with its name may omit."""

    def add(value: Any) -> Any:
        if not isinstance(value, str) or value == "local" or re.match(r"\w+://|exec:", value):
            return value
        return f"{scheme}{value}"

    return BeforeValidator(add)


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


_ANY_TEXT = WithJsonSchema({"type": "string", "pattern": r"\S"})
_WHERE = ("ssh", "exec", "ray")


class GivenHost(PlanModel):
    """An existing host: how to start an agent there, and its address on the measured network."""

    name: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")] | None = None
    """What messages call it beside its role."""
    ssh_config: str | None = None
    """The file of ssh_config(5) that `ssh` is an alias of; null: the user's own."""
    ssh: Annotated[str, _prefixed("ssh://"), AfterValidator(_checked), _ANY_TEXT] | None = None
    """[user@]host[:port] of its SSH server, with or without `ssh://`; `local` is this machine."""
    exec: Annotated[str, _prefixed("exec:"), AfterValidator(_checked), _ANY_TEXT] | None = None
    """The command that carries the agent's streams, to which its command is appended: `docker exec -i NAME`."""
    ray: Annotated[str, _prefixed("ray://"), AfterValidator(_checked), _ANY_TEXT] | None = None
    """[HEAD:PORT][?hosts=N]: one or N nodes of a Ray cluster."""
    addresses: Annotated[
        tuple[str, ...],
        BeforeValidator(_addresses),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
    ] = Field(default=(), validation_alias="address")
    """Its IP address on the measured network, or a list of an IPv4 and an IPv6 address."""

    @property
    def at(self) -> HostAddress:
        """Where its agent is started, and its addresses."""
        found = HostAddress.parse(self.ssh or self.exec or self.ray or "local")
        return replace(found, addresses=self.addresses, name=self.name, config=self.ssh_config)

    @rule
    def _is_somewhere(self) -> Iterator[PydanticCustomError]:
        given = [key for key in _WHERE if getattr(self, key) is not None]
        if len(given) != 1:
            text = "the host lacks ssh, exec or ray" if not given else f"a host has one of {', '.join(given)}"
            yield validation_error(text, hint="as in {ssh: gw1, address: 10.0.0.2}")
        if self.addresses and self.at.hosts > 1:
            yield validation_error("several nodes have no common address", at=("address",), hint="leave it out")


def _host(value: Any) -> Any:
    """A host that is written as text; its address on the measured network is unknown."""
    if not isinstance(value, str):
        return value
    scheme = HostAddress.parse(value).scheme
    return {scheme if scheme in _WHERE else "ssh": value}


_Host = Annotated[
    GivenHost,
    BeforeValidator(_host),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^(local$|ssh://\S|exec:|ray://)"},
                {
                    "type": "object",
                    "properties": {
                        "ssh": {
                            "type": "string",
                            "pattern": r"^\S+$",
                            "description": "[user@]host[:port] of its SSH server; `local` is this machine.",
                        },
                        "exec": {
                            "type": "string",
                            "description": "The command that carries the agent's streams: `docker exec -i NAME`.",
                        },
                        "name": {"type": "string", "description": "What messages call it beside its role."},
                        "ssh_config": {"type": "string", "description": "The file that `ssh` is an alias of."},
                        "ray": {"type": "string", "description": "[HEAD:PORT][?hosts=N] of a Ray cluster."},
                        "address": {
                            "anyOf": [
                                {"type": "string"},
                                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
                            ],
                            "description": "Its IP address on the measured network, or one address per IP version.",
                        },
                    },
                    "oneOf": [{"required": [key]} for key in _WHERE],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


def _several(value: Any) -> Any:
    """The client hosts; a text stands for a Ray cluster's nodes."""
    return [value] if isinstance(value, str) and value.startswith("ray:") else value


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
    clients: Annotated[SomeItems[_Host], BeforeValidator(_several)]
    """The hosts that generate the load."""
    change_local: bool = False
    """Whether a system under test may change routes and settings of this machine, where it is one of the hosts."""

    @property
    def client_addresses(self) -> tuple[HostAddress, ...]:
        """The client hosts; the nodes of a Ray cluster one by one."""
        return tuple(node for host in self.clients for node in _nodes(host.at))

    def named(self, topology: Topology) -> dict[str, HostAddress]:
        """Every host by its name in a lab of this topology."""
        gateways = {"gateway": self.gateway, "gateway-a": self.gateway_a, "gateway-b": self.gateway_b}
        names = GATEWAYS[topology]
        hosts = {f"client{index}": host for index, host in enumerate(self.client_addresses, 1)}
        hosts |= {name: host.at for name, host in gateways.items() if name in names and host is not None}
        return numbered_nodes(hosts | {"server": self.server.at})

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
        elsewhere = next((host.text for host in self.client_addresses if not host.is_local), None)
        if self.server.at.is_local and not self.server.addresses and elsewhere is not None:
            yield validation_error(
                f"{elsewhere} cannot reach a server that is only called 'local'",
                at=("hosts", "server"),
                hint="write server: {ssh: local, address: ADDRESS}",
            )

    def conflicts_of_bring_up(self, topology: Topology, kind: str) -> Iterator[PydanticCustomError]:
        """The first error where a system of this kind is to be brought up on the hosts."""
        local = next((name for name, host in self.named(topology).items() if host.is_local), None)
        if any(self.validation_errors(topology)):
            return
        if local is not None and not self.change_local:
            yield validation_error(
                f"{local} is this machine, whose routes and settings {kind} would change",
                at=("hosts",),
                hint="write change_local: true in hosts to allow that, or name another host",
            )
        elif not self.server.addresses:
            yield validation_error(
                f"{kind} is brought up between the clients and the server's address, which is missing",
                at=("hosts", "server"),
                hint="add it, as in server: {ssh: srv, address: 10.82.0.2}",
            )


def _nodes(address: HostAddress) -> tuple[HostAddress, ...]:
    return (replace(address, hosts=1),) * address.hosts


def each_node(hosts: dict[str, HostAddress]) -> dict[str, HostAddress]:
    """The hosts, with each node of a Ray cluster by itself: those of `lab` are `lab-1`, `lab-2` and so on."""
    return {
        name if host.hosts == 1 else f"{name.partition('?')[0]}-{number}": node
        for name, host in hosts.items()
        for number, node in enumerate(_nodes(host), 1)
    }


def numbered_nodes(hosts: dict[str, HostAddress]) -> dict[str, HostAddress]:
    """The hosts, with the nodes of each Ray cluster numbered, so that no two are one; each says how many there are."""
    numbers: dict[str, Iterator[int]] = {}
    nodes = Counter(host.text for host in hosts.values() if host.scheme == "ray")
    return {
        name: replace(host, number=next(numbers.setdefault(host.text, count())), hosts=nodes[host.text])
        if host.scheme == "ray"
        else host
        for name, host in hosts.items()
    }


GATEWAYS: dict[Topology, tuple[str, ...]] = {"remote-access": ("gateway",), "site-to-site": ("gateway-a", "gateway-b")}
"""The gateways of each topology, the clients' side first."""


def _has(topology: Topology) -> str:
    return f"it has {', '.join(GATEWAYS[topology])}, server and clients"
