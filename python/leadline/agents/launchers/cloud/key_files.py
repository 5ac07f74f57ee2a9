"""The files of a fleet on this computer: the generated private key, the known hosts and a configuration for ssh(1), in
a folder that its user alone may enter.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from leadline.agents.launchers.cloud.model import Provider
from leadline.errors import InputError

KEY = "key"
SSH_CONFIG = "ssh_config"


def fleet_folder(provider: Provider, fleet: str) -> Path:
    """The folder of a fleet's files, `$XDG_DATA_HOME/leadline/fleets/...`. It may not be there."""
    named = os.environ.get("XDG_DATA_HOME", "")
    base = Path(named) if named.startswith("/") else Path.home() / ".local" / "share"
    region = "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in provider.region)
    return base / "leadline" / "fleets" / "-".join(word for word in (provider.name, region, fleet) if word)


def make_folder(folder: Path) -> None:
    """Make the folder of a new fleet, empty.

    Raises:
        InputError: it cannot be made, or is another user's.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        status = folder.stat()
    except OSError as error:
        hint = "set XDG_DATA_HOME to a folder of your own"
        raise InputError(f"the folder of the fleet's key, {folder}: {error.strerror or error}", hint=hint) from None
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise InputError(f"the folder of the fleet's key, {folder}: others may enter it", hint=f"chmod 700 {folder}")


def remove_folder(folder: Path) -> None:
    """Remove a fleet's files. None of them is no error."""
    shutil.rmtree(folder, ignore_errors=True)


def make_key(folder: Path, comment: str) -> str:
    """Generate a key pair for SSH (Ed25519), and write its private half for its user alone. Returns the public half, as
    a line of authorized_keys."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    fd = os.open(folder / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(private)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return f"{public} {comment}"


def write_ssh_config(folder: Path, user: str, addresses: Sequence[tuple[str, str]]) -> Path:
    """Write a configuration for ssh(1) with which it knows the fleet's machines by name and by address. Returns its
    path.

    No client knows the host keys of new machines: ssh records those that it meets first, in a file of the fleet alone.

    Args:
        folder: Of the fleet.
        user: To log in as.
        addresses: Each machine's name and address.
    """
    identity = [f'  IdentityFile "{folder / KEY}"', "  IdentitiesOnly yes"] if (folder / KEY).exists() else []
    lines = ["# Made by `leadline fleet up`."]
    for name, address in addresses:
        lines += [f"Host {name} {address}", f"  HostName {address}", f"  User {user}", *identity]
        lines += [f'  UserKnownHostsFile "{folder / "known_hosts"}"', "  StrictHostKeyChecking accept-new"]
    path = folder / SSH_CONFIG
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
