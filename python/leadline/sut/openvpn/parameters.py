"""The parameters of OpenVPN in a plan."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from leadline.plan.field_types import Count, IpVersion, Items, PlanModel, SomeItems, validation_error
from leadline.plan.sut import BaseSut
from leadline.sut.openvpn.ciphers import misspelt

DEFAULT_INITIAL_RATE = "default"
"""The daemon's own default of `connect-freq-initial`."""


def _network(text: str) -> str:
    """A CIDR; refused if host bits are set, since OpenVPN would only warn and mask them."""
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a network such as 10.90.0.0/24 ({error})") from None


def _word(text: str) -> str:
    if not text or any(character.isspace() or not character.isprintable() for character in text):
        raise ValueError(f"{text!r} is not one word")
    return text


def _cipher(name: str) -> str:
    meant = misspelt(name)
    if meant is not None:
        raise validation_error(f"{name!r} is not a cipher of OpenVPN", hint=f"did you mean '{meant}'?")
    return name


def _with_config(command: tuple[str, ...]) -> tuple[str, ...]:
    if not any("{config}" in word for word in command):
        raise ValueError('no word of it has "{{config}}", where the path of the configuration goes')
    return command


def _path(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("a program's name or path is empty or has control characters")
    return text


def _initial_rate(value: Any) -> Any:
    if value == DEFAULT_INITIAL_RATE or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ValueError(f"{value!r} is neither a number of first packets in 10 s nor {DEFAULT_INITIAL_RATE!r}")


class OpenvpnClient(PlanModel):
    """An OpenVPN-compatible client, by its command line, instead of the server's own program."""

    command: Annotated[SomeItems[str], AfterValidator(_with_config)]
    """Program and arguments. `{config}` (in a plan: "{{config}}") is the path of a configuration in one file."""
    ready: Annotated[str, AfterValidator(_path)] = "Initialization Sequence Completed"
    """Text that the client prints once its tunnel is up."""
    without: Items[Annotated[str, AfterValidator(_word)]] = ()
    """OpenVPN options that the client does not know: they are omitted from its configuration."""


InitialRate = Annotated[
    int | str,
    BeforeValidator(_initial_rate),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": DEFAULT_INITIAL_RATE}]}),
]


class OpenvpnSut(BaseSut):
    """The real OpenVPN daemon."""

    kind: Literal["openvpn"] = "openvpn"
    binary: Annotated[str, AfterValidator(_path)] = "openvpn"
    """Program, by name (looked up in PATH) or by path. Versions and TLS libraries can thus be an axis."""
    client: OpenvpnClient | None = None
    """Program of the clients; null: the same as the server's."""
    transport: Literal["udp", "tcp"] = "udp"
    """Transport protocol of the tunnel."""
    ip: IpVersion = 4
    """IP version of the tunnel's transport."""
    cipher: Annotated[str, AfterValidator(_word), AfterValidator(_cipher)] = "AES-256-GCM"
    """Data cipher, by OpenVPN's name. The daemon decides whether it has the cipher, since builds differ. Misspelt
    names of usual ciphers are refused."""
    compression: Literal["stub", "stub-v2", "lzo", "lz4", "lz4-v2"] | None = None
    """Compression framing; null: none."""
    control: Literal["none", "tls-auth", "tls-crypt", "tls-crypt-v2"] = "tls-crypt"
    """Protection of the control channel, in addition to TLS."""
    topology: Literal["subnet", "net30", "p2p"] = "subnet"
    """How clients get addresses."""
    push_routes: Items[Annotated[str, AfterValidator(_network)]] = ()
    """Networks to push to the clients, in addition to the server's network, which is always pushed."""
    pool_size: Count | None = None
    """Number of addresses in the pool; null: enough for all clients. With fewer, some clients stay partial."""
    max_clients: Count | None = None
    """Limit of clients in the daemon (max-clients); null: its default."""
    connect_freq_initial: InitialRate | None = None
    """Number of first packets that the daemon answers in 10 s (UDP, OpenVPN 2.6 or newer), or `default` for its own
    limit of 100. Null: four times the clients, so that clients that connect at the same time are not rejected."""
    tun_mtu: Annotated[int, Field(ge=576, le=65535)] | None = None
    """MTU of the tunnel device; null: the daemon's default."""

    @property
    def uses_ipv6(self) -> bool:
        """Whether the tunnel's transport uses IPv6."""
        return self.ip == 6
