"""Reads and makes a client's WireGuard file, as `wg-quick` reads it: recognises one, makes more clients of one, and
lists their `[Peer]` sections for the gateway.

The keys of the clients that are made follow from the file's private key and their number, so that each run has the same
keys and the gateway's list is made once. The agent interprets the files. Pure: the caller reads and writes them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv6Interface, ip_interface

Interface = IPv4Interface | IPv6Interface

_SECTION = re.compile(r"^\s*\[\s*(\w+)\s*\]\s*(?:#.*)?$")
_VALUE = re.compile(r"^\s*(\w+)\s*=\s*([^#]*?)\s*(?:#.*)?$")
_KEY_BYTES = 32
_KEY_PURPOSE = b"leadline client"


class WireguardFileProblem(ValueError):
    """A mistake in a file; the message is for the user and repeats no key."""

    def __init__(self, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class WireguardClient:
    """What makes a client: its key and addresses, which its gateway has to know."""

    private_key: bytes = field(repr=False)
    addresses: tuple[Interface, ...]
    preshared_key: str | None = field(default=None, repr=False)

    @property
    def public_key(self) -> str:
        """Its public key, in base64."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        public = X25519PrivateKey.from_private_bytes(self.private_key).public_key()
        return base64.b64encode(public.public_bytes_raw()).decode()


def is_wireguard(text: str) -> bool:
    """Whether a client's file is WireGuard's: it has an [Interface] section."""
    return any(name == "interface" for name in map(_section, text.splitlines()))


def read_client(text: str) -> WireguardClient:
    """The client of a file.

    Raises:
        WireguardFileProblem: it has no private key or no address, or one that cannot be read.
    """
    private_key: bytes | None = None
    preshared_key: str | None = None
    addresses: list[Interface] = []
    for number, section, name, value in _values(text):
        if (section, name) == ("interface", "privatekey"):
            private_key = _key(value, f"line {number}: PrivateKey")
        elif (section, name) == ("peer", "presharedkey"):
            _key(value, f"line {number}: PresharedKey")
            preshared_key = value
        elif (section, name) == ("interface", "address"):
            addresses += [_address(one, number) for one in value.split(",") if one.strip()]
    if private_key is None or not addresses:
        missing = "PrivateKey" if private_key is None else "Address"
        raise WireguardFileProblem(f"{missing} of [Interface] is missing")
    return WireguardClient(private_key, tuple(addresses), preshared_key)


def make_clients(text: str, count: int) -> Iterator[tuple[WireguardClient, str]]:
    """This number of clients with their files. The first is the file's own; each further one has a key and addresses of
    its own, the next ones in the file's networks.

    Raises:
        WireguardFileProblem: as `read_client`, or a network without room.
    """
    first = read_client(text)
    for interface in first.addresses:
        _check_room(interface, count)
    yield first, text
    for number in range(1, count):
        key = hashlib.blake2s(_KEY_PURPOSE + number.to_bytes(4, "big"), key=first.private_key).digest()
        addresses = tuple(_next(interface, number) for interface in first.addresses)
        made = WireguardClient(key, addresses, first.preshared_key)
        yield made, _with_client(text, made)


def peer_sections(clients: Iterable[WireguardClient]) -> Iterator[str]:
    """A [Peer] section for each client, as `wg addconf` reads them."""
    for client in clients:
        lines = ["[Peer]", f"PublicKey = {client.public_key}"]
        if client.preshared_key is not None:
            lines.append(f"PresharedKey = {client.preshared_key}")
        allowed = ", ".join(f"{interface.ip}/{interface.max_prefixlen}" for interface in client.addresses)
        yield "\n".join([*lines, f"AllowedIPs = {allowed}", "", ""])


def _section(line: str) -> str | None:
    found = _SECTION.match(line)
    return found[1].lower() if found else None


def _values(text: str) -> Iterator[tuple[int, str | None, str, str]]:
    """Each `Key = value` with its line and section, names in lower case."""
    section: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        section = _section(line) or section
        if found := _VALUE.match(line):
            yield number, section, found[1].lower(), found[2]


def _key(value: str, what: str) -> bytes:
    try:
        key = base64.b64decode(value, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != _KEY_BYTES:
        raise WireguardFileProblem(f"{what}: a key is 44 characters of base64, 32 bytes", "wg genkey makes one")
    return key


def _address(text: str, line: int) -> Interface:
    try:
        return ip_interface(text.strip())
    except ValueError:
        raise WireguardFileProblem(
            f"line {line}: Address = {text.strip()}: not an address", "write 10.83.0.2/16"
        ) from None


def _check_room(interface: Interface, count: int) -> None:
    network = interface.network
    last = int(interface.ip) + count - 1
    # The last address of an IPv4 network is its broadcast address.
    usable = int(network.broadcast_address) - (1 if network.version == 4 and network.prefixlen < 31 else 0)
    if last > usable:
        raise WireguardFileProblem(
            f"Address = {interface} has no room for {count} clients: {max(usable - int(interface.ip) + 1, 0)} fit",
            "write an Address in a larger network, as 10.83.0.2/16; the clients take the next addresses",
        )


def _next(interface: Interface, number: int) -> Interface:
    return ip_interface(f"{interface.ip + number}/{interface.network.prefixlen}")


def _with_client(text: str, client: WireguardClient) -> str:
    """The file with another client's key and addresses. All lines keep their numbers."""
    key = base64.b64encode(client.private_key).decode()
    addresses: str | None = ", ".join(map(str, client.addresses))
    lines = text.splitlines()
    for number, section, name, _ in _values(text):
        if (section, name) == ("interface", "privatekey"):
            lines[number - 1] = f"PrivateKey = {key}"
        elif (section, name) == ("interface", "address"):
            lines[number - 1], addresses = f"Address = {addresses}" if addresses is not None else "", None
    return "\n".join(lines) + "\n"
