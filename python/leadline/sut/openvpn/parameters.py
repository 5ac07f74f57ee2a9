"""OpenVPN's parameters in a plan."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from leadline.plan.field_types import Count, IpVersion, Items, PlanModel, SomeItems, validation_error
from leadline.plan.sut import BaseSut
from leadline.sut.openvpn.ciphers import misspelt

DEFAULT_INITIAL_RATE = "default"
"""The daemon's own `connect-freq-initial`."""


def _network(text: str) -> str:
    """A CIDR, refused where host bits are set, as OpenVPN itself would warn and mask them."""
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
        raise validation_error(f"{name!r} is no cipher of OpenVPN", hint=f"did you mean '{meant}'?")
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
    """An OpenVPN-compatible client by its command line, instead of the server's own program."""

    command: Annotated[SomeItems[str], AfterValidator(_with_config)]
    """Program and arguments; `{config}`, which a plan writes as "{{config}}", is the path of a configuration in one
    file."""
    ready: Annotated[str, AfterValidator(_path)] = "Initialization Sequence Completed"
    """What it prints once its tunnel is up."""
    without: Items[Annotated[str, AfterValidator(_word)]] = ()
    """Options of OpenVPN's that it does not know: they are left out of its configuration."""


InitialRate = Annotated[
    int | str,
    BeforeValidator(_initial_rate),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": DEFAULT_INITIAL_RATE}]}),
]


class OpenvpnSut(BaseSut):
    """The real OpenVPN daemon."""

    kind: Literal["openvpn"] = "openvpn"
    binary: Annotated[str, AfterValidator(_path)] = "openvpn"
    """Program, by name (looked up in PATH) or by path, so that versions and TLS libraries can be an axis."""
    client: OpenvpnClient | None = None
    """What the clients run; the same program as the server where null."""
    transport: Literal["udp", "tcp"] = "udp"
    """Protocol that carries the tunnel."""
    ip: IpVersion = 4
    """IP version that carries the tunnel."""
    cipher: Annotated[str, AfterValidator(_word), AfterValidator(_cipher)] = "AES-256-GCM"
    """Data cipher by OpenVPN's name; the daemon judges it, since every build knows other ones. Misspelt names of the
    usual ones are refused."""
    compression: Literal["stub", "stub-v2", "lzo", "lz4", "lz4-v2"] | None = None
    """Compression framing; none where null."""
    control: Literal["none", "tls-auth", "tls-crypt", "tls-crypt-v2"] = "tls-crypt"
    """How the control channel is protected besides TLS."""
    topology: Literal["subnet", "net30", "p2p"] = "subnet"
    """How addresses are given to clients."""
    push_routes: Items[Annotated[str, AfterValidator(_network)]] = ()
    """Networks pushed to the clients besides the server's, which always is."""
    pool_size: Count | None = None
    """Addresses in the pool; enough for all clients where null. Fewer make partly configured clients."""
    max_clients: Count | None = None
    """The daemon's own limit of clients; its default where null."""
    connect_freq_initial: InitialRate | None = None
    """First packets that it answers in 10 s (over UDP, OpenVPN 2.6 on), or `default` for its own limit of 100; four
    times the clients where null, so that who comes at once is not turned away."""
    tun_mtu: Annotated[int, Field(ge=576, le=65535)] | None = None
    """MTU of the tunnel device; the daemon's default where null."""

    @property
    def uses_ipv6(self) -> bool:
        """Where the tunnel is carried over it."""
        return self.ip == 6
