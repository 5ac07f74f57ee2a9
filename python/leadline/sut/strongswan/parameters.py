"""The parameters of strongSwan in a plan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from leadline.plan.field_types import Count, DurationMs, IpVersion, rule, validation_error
from leadline.plan.sut import BaseSut

Authentication = Literal["psk", "ecdsa", "rsa", "eap-mschapv2"]
DataPlane = Literal["kernel", "libipsec"]

_PROPOSAL = re.compile(r"[a-z0-9_]+(-[a-z0-9_]+)*")


def _proposals(text: str) -> str:
    """Proposals by strongSwan's keywords. charon decides whether it has the algorithms, since builds differ."""
    for one in text.split(","):
        if not _PROPOSAL.fullmatch(one.strip()):
            hint = "write strongSwan's keywords, such as aes256gcm16-prfsha256-x25519; a comma separates proposals"
            raise validation_error(f"{one.strip()!r} is not a proposal", hint=hint)
    return ", ".join(one.strip() for one in text.split(","))


def _program(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("a program's name or path is empty or has control characters")
    return text


Proposals = Annotated[str, AfterValidator(_proposals)]
Program = Annotated[str, AfterValidator(_program)]


class StrongswanSut(BaseSut):
    """strongSwan's daemon charon at both ends: IKEv2, and ESP in the kernel or in user space."""

    kind: Literal["strongswan"] = "strongswan"
    binary: Program = "charon-systemd"
    """The daemon, by name (looked up in PATH) or by path. Versions can thus be an axis."""
    swanctl: Program = "swanctl"
    """The program that configures the daemon, of the same version."""
    data_plane: Literal["auto", "kernel", "libipsec"] = "auto"
    """What carries the packets: `kernel` (ESP of the kernel), `libipsec` (the plugin kernel-libipsec, in user space),
    or `auto`: the kernel where it has ESP, otherwise libipsec. Results name it."""
    ip: IpVersion = 4
    """IP version of the tunnel's transport."""
    method: Authentication = "psk"
    """How the ends authenticate each other: pre-shared keys, certificates with keys of ECDSA P-256 or RSA 2048, or the
    clients by EAP-MSCHAPv2 and the gateway by an ECDSA certificate."""
    ike: Proposals = "aes256gcm16-prfsha256-x25519"
    """Proposals for IKE, by strongSwan's keywords; `default` leaves them to the daemon."""
    esp: Proposals = "aes256gcm16"
    """Proposals for ESP: aes256gcm16, chacha20poly1305, aes256-sha256, ..."""
    client_ike: Proposals | None = None
    """The clients' proposals for IKE; null: the same as the gateway's."""
    client_esp: Proposals | None = None
    """The clients' proposals for ESP; null: the same as the gateway's."""
    pool_size: Count | None = None
    """Number of addresses in each pool of the gateway; null: enough for all clients. With fewer, some clients stay
    partial. A site-to-site tunnel has no pool."""
    ike_rekey_ms: DurationMs | None = Field(default=None, validation_alias="ike_rekey")
    """Time after which the clients renew the keys of IKE, in whole seconds, less up to a tenth of it at random; null:
    the daemon's default, 4 hours."""
    child_rekey_ms: DurationMs | None = Field(default=None, validation_alias="child_rekey")
    """The same for the keys of ESP; the daemon's default is 1 hour."""
    dos_protection: bool = True
    """Whether the gateway asks for cookies from 10 half-open connections on, and lets 5 of one address in: a fleet's
    clients have one address, unless its test spreads them."""
    ikesa_table_size: Annotated[int, Field(ge=1, le=2**20)] | None = None
    """Places of the gateway's table of IKE SAs, a power of two; null: the daemon's default of 1, in which each search
    takes longer the more SAs there are."""
    compression: bool = False
    """Offer IPComp; kernel-libipsec has none."""

    @property
    def uses_ipv6(self) -> bool:
        """Whether the tunnel's transport uses IPv6."""
        return self.ip == 6

    @rule
    def _lifetimes_are_whole_seconds(self) -> Iterator[PydanticCustomError]:
        for name, value_ms in (("ike_rekey", self.ike_rekey_ms), ("child_rekey", self.child_rekey_ms)):
            if value_ms is not None and value_ms % 1000:
                hint = "write whole seconds, such as 10s"
                yield validation_error(
                    f"{name} is {value_ms / 1000:g} s, and charon knows no parts of seconds", hint=hint
                )

    @rule
    def _libipsec_cannot_compress(self) -> Iterator[PydanticCustomError]:
        if self.compression and self.data_plane == "libipsec":
            yield validation_error("compression: kernel-libipsec has no IPComp", hint="data_plane: kernel")
