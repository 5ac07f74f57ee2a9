"""Parses the options of `leadline tunnel` into a test, and reads the files of the clients' identities: profile, keys,
users. No message repeats the content of these files.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from leadline.errors import InputError
from leadline.kinds.tunnel import ikev2_access, wireguard_access
from leadline.kinds.tunnel.client_texts import read_named_text, read_text
from leadline.plan import ovpn
from leadline.plan.clients import MOST_CLIENTS

if TYPE_CHECKING:
    from leadline.contract.models import TunnelUser
    from leadline.kinds.tunnel.workload import Access, Identities

OptionValues = Mapping[str, Any]
"""The options by their names in `leadline.kinds.tunnel.options`."""

# A workload goes to the agent in one line of at most 16 MiB. The rest of the line needs the other 4 MiB.
_MOST_SECRETS_BYTES = 12 << 20
_MOST_FILE_BYTES = 4 << 20
_MOST_DIGITS = 20
_HTTP_PORT, _TRAFFIC_DURATION, _NAME_PREFIX = 80, "10s", "client-"


def client_counts(text: str) -> list[int]:
    """The sizes of the fleets, in order. Raises InputError."""
    hint = "write 1000, or 50,100,200,400"
    found = []
    for part in text.split(","):
        shown = part.strip() if len(part.strip()) <= _MOST_DIGITS else f"{part.strip()[:_MOST_DIGITS]}..."
        if not part.strip().isascii() or not part.strip().isdecimal():
            raise InputError(f"--number: {shown!r} is not a number of clients", hint=hint)
        if len(part.strip()) > _MOST_DIGITS:
            raise InputError(f"--number: {shown} clients; from 1 to {MOST_CLIENTS}", hint=hint)
        number = int(part)
        if not 1 <= number <= MOST_CLIENTS:
            raise InputError(f"--number: {number} clients; from 1 to {MOST_CLIENTS}", hint=hint)
        found.append(number)
    if len(set(found)) < len(found):
        raise InputError("--number: a number is repeated", hint=hint)
    return found


def check_addresses(addresses: Iterable[str]) -> None:
    """Check that this host has these local addresses. Raises InputError for the first that it does not have."""
    for address in dict.fromkeys(addresses):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            try:
                one.bind((address, 0))
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    text = f"--source: {address} is not an address of this host"
                    hint = "add it: ip address add ADDRESS dev DEV; a whole network: ip route add local NETWORK dev lo"
                    raise InputError(text, hint=hint) from None
                raise InputError(f"--source: {address}: {error.strerror or error}") from None


def read_access(options: OptionValues) -> Access:
    """The clients' identities. Raises InputError for a file that cannot be read or is invalid."""
    from leadline.kinds.tunnel.workload import Access

    file: Path = options["file"]
    if wireguard_access.has_wireguard(file):
        ikev2_access.check_other(options)
        return wireguard_access.read_wireguard_access(options)
    wireguard_access.check_other(options)
    if ikev2_access.has_ikev2(file):
        return ikev2_access.read_ikev2_access(options)
    ikev2_access.check_other(options)
    folder = file.parent
    try:
        profile = ovpn.whole(_option_text(file, "the profile"), lambda name: read_text(folder / name, _MOST_FILE_BYTES))
    except ovpn.ProfileProblem as problem:
        raise InputError(f"{file}: {problem}", hint=problem.hint) from None
    users = _users(options["users"]) if options["users"] is not None else []
    if users and "auth-user-pass" not in profile.has:
        raise InputError(f"{file} has no auth-user-pass, but --users is given", hint="add it to the profile")
    return Access(profile.text, _identities(options, profile), users)


def _identities(options: OptionValues, profile: ovpn.Profile) -> Identities:
    from leadline.contract.models import GivenIdentities, IssuedIdentities, ProfileIdentity

    if options["name_prefix"] is not None and options["ca_key"] is None:
        raise InputError("--name-prefix without --ca-key", hint="it names the certificates that --ca-key signs")
    if options["identities"] is not None:
        if options["ca_key"] is not None or options["ca"] is not None:
            raise InputError("--identities and --ca-key exclude each other", hint="give one of them")
        return GivenIdentities(identities=_pairs(options["identities"]))
    if options["ca_key"] is None:
        if options["ca"] is not None:
            raise InputError("--ca without --ca-key", hint="servers are verified with the profile's ca")
        return ProfileIdentity()
    authority = _option_text(options["ca"], "--ca") if options["ca"] is not None else profile.blocks.get("ca")
    if authority is None:
        raise InputError(
            f"--ca-key needs a CA certificate, and {options['file']} has no ca",
            hint="give the authority's certificate with --ca",
        )
    key = _option_text(options["ca_key"], "--ca-key")
    if "PRIVATE KEY-----" not in key or "ENCRYPTED" in key:
        raise InputError(
            f"--ca-key {options['ca_key']} is not an unencrypted private key in PEM", hint="openssl pkey decrypts one"
        )
    return IssuedIdentities(
        authority_pem=authority, authority_key_pem=key, name_prefix=options["name_prefix"] or _NAME_PREFIX
    )


def _pairs(folder: Path) -> list[Any]:
    """Pairs of NAME.crt and NAME.key, sorted by name."""
    from leadline.contract.models import TunnelIdentity

    try:
        certificates = sorted(path for path in folder.iterdir() if path.suffix == ".crt")
    except OSError as error:
        raise InputError(f"--identities {folder}: {error.strerror or error}", hint="name a folder") from None
    found = []
    taken = 0
    for certificate in certificates:
        key = certificate.with_suffix(".key")
        if not key.exists():
            raise InputError(
                f"--identities {folder}: {certificate.name} has no {key.name}", hint="each certificate needs its key"
            )
        texts = (_option_text(certificate, "--identities"), _option_text(key, "--identities"))
        taken += sum(map(len, texts))
        if taken > _MOST_SECRETS_BYTES:
            mebi = _MOST_SECRETS_BYTES >> 20
            raise InputError(f"--identities {folder}: over {mebi} MiB", hint="use fewer, they are taken in turn")
        found.append(TunnelIdentity(certificate_pem=texts[0], key_pem=texts[1]))
    if not found:
        raise InputError(f"--identities {folder} has no .crt file", hint="it must contain pairs NAME.crt and NAME.key")
    return found


def _users(file: Path) -> list[TunnelUser]:
    """One user:password per line; # does not start a comment, since a password may begin with it."""
    from leadline.contract.models import TunnelUser

    found = []
    for number, line in enumerate(_option_text(file, "--users").splitlines(), 1):
        if not line.strip():
            continue
        user, colon, password = line.partition(":")
        if not colon or not user:
            raise InputError(f"--users {file}: line {number} is not user:password", hint="write user:password")
        found.append(TunnelUser(user=user, password=password))
    if not found:
        raise InputError(f"--users {file} has no users", hint="write user:password, one per line")
    return found


def traffic(options: OptionValues) -> dict[str, Any] | None:
    """The parameters of the traffic; None without traffic. Raises InputError for options that exclude each other."""
    kind = options["traffic"]
    if kind is None:
        for name in ("to", "traffic_rate", "size", "traffic_duration"):
            option = f"--{name.replace('_', '-')}"
            if options[name] is not None:
                raise InputError(f"{option} without --traffic", hint="as in --traffic echo --traffic-rate 10/s")
        if options["reverse"] or options["bidir"]:
            raise InputError("--reverse and --bidir need --traffic", hint="give --traffic udp or tcp too")
        return None
    if kind != "echo" and options["to"] is None:
        raise InputError(f"--traffic {kind} needs --to", hint="give the address in the tunnels that answers")
    values = {
        "kind": kind,
        "rate": options["traffic_rate"],
        "packet": options["size"],
        "direction": _direction(options["reverse"], options["bidir"]),
        "duration": options["traffic_duration"] or _TRAFFIC_DURATION,
        **(_destination(options["to"], kind) if options["to"] is not None else {}),
    }
    return {key: value for key, value in values.items() if value is not None}


def _destination(text: str, kind: str) -> dict[str, Any]:
    """Parse ADDRESS, ADDRESS:PORT or, for http, a URL."""
    hint = "write 10.8.0.1, 10.8.0.1:5201 or [fd00::1]:5201"
    if "://" in text and kind != "http":
        raise InputError(f"--to {text}: a URL is for --traffic http", hint=hint)
    try:
        bare = "://" not in text and text.count(":") > 1 and not text.startswith("[")
        parts = urlsplit(text if "://" in text else f"//[{text}]" if bare else f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"--to {text}: {error}", hint=hint) from None
    if not host or parts.scheme not in ("", "http"):
        raise InputError(f"--to {text}: not an address in the tunnels", hint=hint)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    if path and kind != "http":
        raise InputError(f"--to {text}: a path is for --traffic http", hint=hint)
    if port is not None and kind == "echo":
        raise InputError(f"--to {text}: echo requests have no port", hint="write the address alone")
    if port is None and parts.scheme:
        port = _HTTP_PORT
    return {"to": host, "port": port, "path": path or ("/" if kind == "http" else None)}


def _option_text(file: Path, what: str) -> str:
    return read_named_text(file, _MOST_FILE_BYTES, hint="name a file that can be read", what=what)


def _direction(reverse: bool, bidirectional: bool) -> str:
    """The plan's direction for `-R` and `--bidir`."""
    if reverse and bidirectional:
        raise InputError("--reverse and --bidir exclude each other", hint="--bidir measures both directions")
    return "both" if bidirectional else "down" if reverse else "up"
