"""Where a plan's hosts come from: made on this machine (`lab`) or given by address (`hosts`).

Plain parameters; `lab` has its own layout types and `trial` maps these to them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from leadline.plan.fields import DelayUs, PlanModel, RateBps, Share, SomeItems, complaint

Topology = Literal["remote-access", "site-to-site"]
SMALLEST_IPV6_MTU_BYTES = 1280
"""RFC 8200, section 5: "IPv6 requires that every link in the Internet have an MTU of 1280 octets or greater." """


class LinkSpec(PlanModel):
    """What every link of the lab carries, and what it loses."""

    rate_bps: RateBps | None = Field(default=None, validation_alias="rate")
    """Bits per second on the wire, headers included; as fast as the kernel where null."""
    mtu_bytes: Annotated[int, Field(ge=576, le=65535)] = Field(default=1500, validation_alias="mtu")
    """Largest IP packet, bytes."""
    loss: Share | None = None
    """Share of packets dropped at random."""
    drop_every: Annotated[int, Field(ge=2, lt=2**31)] | None = None
    """Drop each Nth packet."""
    drop_udp_every: Annotated[int, Field(ge=2, lt=2**31)] | None = None
    """Drop each Nth UDP packet."""
    delay_us: DelayUs | None = Field(default=None, validation_alias="delay")
    """Added to each packet, one way; needs the kernel's netem."""

    @model_validator(mode="after")
    def _something_arrives(self) -> Self:
        if self.loss is not None and self.loss >= 1:
            raise complaint(
                f"{self.loss:g} is {self.loss:.0%}: nothing would arrive", at=("loss",), hint="one percent is 1%"
            )
        return self


class LabSpec(PlanModel):
    """Hosts made on this machine, as network namespaces."""

    link: LinkSpec = LinkSpec()
    """The links between them."""


@dataclass(frozen=True, slots=True)
class HostAddress:
    """Where an agent is started: on this machine (`local`) or over SSH; user and port are SSH's own where None."""

    local: bool
    host: str = "localhost"
    user: str | None = None
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `local` or `ssh://[user@]host[:port]`, an IPv6 host in brackets. Raises ValueError for people."""
        if text == "local":
            return cls(local=True)
        match = _SSH.fullmatch(text)
        if match is None:
            secret = text.startswith("ssh://") and ":" in text.removeprefix("ssh://").partition("@")[0] and "@" in text
            advice = "a password has no place in a plan; use a key or an SSH agent" if secret else _FORMS
            raise ValueError(f"{'the address' if secret else repr(text)} is not a host; {advice}")
        user, bracketed, name, port = match.groups()
        if port is not None and not 1 <= int(port) <= 65535:
            raise ValueError(f"{text!r} has no possible port; 1 to 65535")
        return cls(local=False, host=bracketed or name, user=user, port=int(port) if port else None)


def _checked(text: str) -> str:
    HostAddress.parse(text)
    return text


_SSH = re.compile(
    r"ssh://(?:([A-Za-z0-9_][\w.-]*)@)?(?:\[([0-9A-Fa-f:.%\w]+)\]|([A-Za-z0-9_][\w.-]*))(?::(\d{1,5}))?/?"
)
_FORMS = "write ssh://[user@]host[:port], or local"
_Address = Annotated[
    str, AfterValidator(_checked), WithJsonSchema({"type": "string", "pattern": r"^(local|ssh://[^\s]+)$"})
]


class Hosts(PlanModel):
    """Hosts that exist: `local` or `ssh://[user@]host[:port]`."""

    gateway: _Address | None = None
    """The system under test of a remote-access plan."""
    gateway_a: _Address | None = Field(default=None, validation_alias="gateway-a")
    """The clients' gateway of a site-to-site plan."""
    gateway_b: _Address | None = Field(default=None, validation_alias="gateway-b")
    """The server's gateway of a site-to-site plan."""
    server: _Address
    """Answers the load."""
    clients: SomeItems[_Address]
    """Generate the load."""

    def named(self, topology: Topology) -> dict[str, HostAddress]:
        """Every host by the name that it has in a lab of this topology."""
        gateways = {"gateway": self.gateway, "gateway-a": self.gateway_a, "gateway-b": self.gateway_b}
        wanted = GATEWAYS[topology]
        texts = {f"client{index}": text for index, text in enumerate(self.clients, 1)}
        texts |= {name: text for name, text in gateways.items() if name in wanted and text is not None}
        return {name: HostAddress.parse(text) for name, text in (texts | {"server": self.server}).items()}

    def check(self, topology: Topology) -> None:
        """Raise a complaint where the gateways are not those of the topology."""
        for key in ("gateway", "gateway-a", "gateway-b"):
            given = getattr(self, key.replace("-", "_")) is not None
            if given and key not in GATEWAYS[topology]:
                raise complaint(f"a {topology} plan has no {key}", at=("hosts", key), hint=_has(topology))
            if not given and key in GATEWAYS[topology]:
                raise complaint(f"{key!r} is missing", at=("hosts",), hint=_has(topology))
        elsewhere = next((text for text in self.clients if text != "local"), None)
        if self.server == "local" and elsewhere is not None:
            raise complaint(
                f"{elsewhere} cannot reach a server that is only called 'local'",
                at=("hosts", "server"),
                hint="give it as ssh://HOST, by the name that clients reach it under",
            )


GATEWAYS: dict[Topology, tuple[str, ...]] = {"remote-access": ("gateway",), "site-to-site": ("gateway-a", "gateway-b")}
"""The gateways of each topology, the clients' side first."""


def _has(topology: Topology) -> str:
    return f"it has {', '.join(GATEWAYS[topology])}, server and clients"
