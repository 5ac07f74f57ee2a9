"""Reads the WireGuard files of a fleet's clients: one file, a folder of them, or one from which more clients are made.
Writes the `[Peer]` sections that the gateway needs. No message repeats a key.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.errors import InputError
from leadline.kinds.tunnel import wg_quick
from leadline.kinds.tunnel.client_texts import read_named_text
from leadline.plan.clients import MOST_CLIENTS
from leadline.plan.regular_files import NotRegular, read_bounded

if TYPE_CHECKING:
    from leadline.kinds.tunnel.workload import Access

_MOST_FILE_BYTES = 1 << 16
_MOST_BYTES = 12 << 20
"""A workload goes to the agent in one line of at most 16 MiB."""
_NOT_FOR_WIREGUARD = ("ca_key", "ca", "name_prefix", "identities", "users", "expect_option")
_ONLY_FOR_WIREGUARD = ("peers", "write_peers")


def has_wireguard(path: Path) -> bool:
    """Whether the clients' file, or folder, is WireGuard's. A file that cannot be read is another reader's concern."""
    if path.is_dir():
        return True
    try:
        return wg_quick.is_wireguard(read_bounded(path, _MOST_FILE_BYTES).decode("utf-8", errors="replace"))
    except (NotRegular, OSError):
        return False


def check_other(options: Mapping[str, Any]) -> None:
    """Check that no option of WireGuard is given with another file. Raises InputError."""
    for name in _ONLY_FOR_WIREGUARD:
        if options[name] is not None:
            option = f"--{name.replace('_', '-')}"
            raise InputError(
                f"{option} is for WireGuard, and {options['file']} has no [Interface]", hint="give a wg-quick file"
            )


def read_wireguard_access(options: Mapping[str, Any]) -> Access:
    """The clients' files. Raises InputError for a file that cannot be read, or options that do not go with it."""
    from leadline.contract.models import TunnelFile, WireguardFiles
    from leadline.kinds.tunnel.workload import Access

    for name in _NOT_FOR_WIREGUARD:
        if options[name]:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} is for OpenVPN, and {options['file']} is WireGuard's", hint="leave it out")
    named = _made(options) if options["peers"] is not None else _files(options["file"])
    files = [TunnelFile(name=name, text=text) for name, text in named]
    if sum(len(file.text) for file in files) > _MOST_BYTES:
        raise InputError(f"{options['file']}: over {_MOST_BYTES >> 20} MiB of files", hint="use fewer clients")
    return Access("", WireguardFiles(files=files))


def check_count(access: Access, clients: int, path: Path) -> None:
    """Check that each client has a key of its own. Raises InputError."""
    from leadline.contract.models import WireguardFiles

    if isinstance(access.identities, WireguardFiles) and clients > access.clients:
        have = "1 client" if access.clients == 1 else f"{access.clients} clients"
        raise InputError(
            f"--number: {clients} clients, and {path} makes {have}: a gateway knows a client by its key",
            hint=f"make them from one file: --peers {clients}",
        )


def write_peers(options: Mapping[str, Any]) -> int:
    """Write the gateway's list of the clients, readable by its owner alone; returns their number. Raises InputError."""
    target: Path = options["write_peers"]
    named = _made(options) if options["peers"] is not None else _files(options["file"])
    clients = [wg_quick.read_client(text) for _, text in named]
    text = "".join(wg_quick.peer_sections(clients))
    try:
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"--write-peers {target}: {error.strerror or error}", hint="name a file") from None
    return len(clients)


def _made(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    file: Path = options["file"]
    if file.is_dir():
        raise InputError(f"--peers makes clients from one file, and {file} is a folder", hint="name a file")
    count = options["peers"]
    if not 1 <= count <= MOST_CLIENTS:
        raise InputError(f"--peers: {count} clients; from 1 to {MOST_CLIENTS}", hint="write --peers 1000")
    try:
        made = wg_quick.make_clients(_text(file), count)
        return [(f"{file} (client {number})", text) for number, (_, text) in enumerate(made)]
    except wg_quick.WireguardFileProblem as problem:
        raise InputError(f"{file}: {problem}", hint=problem.hint) from None


def _files(path: Path) -> list[tuple[str, str]]:
    """The file, or the folder's files NAME.conf, sorted by name."""
    if not path.is_dir():
        return [(str(path), _checked(path))]
    files = sorted(file for file in path.iterdir() if file.suffix == ".conf")
    if not files:
        raise InputError(f"{path} has no .conf file", hint="it must hold a wg-quick file for each client")
    if len(files) > MOST_CLIENTS:
        raise InputError(f"{path} has {len(files)} files; at most {MOST_CLIENTS}", hint="use fewer")
    return [(str(file), _checked(file)) for file in files]


def _checked(file: Path) -> str:
    text = _text(file)
    try:
        wg_quick.read_client(text)
    except wg_quick.WireguardFileProblem as problem:
        raise InputError(f"{file}: {problem}", hint=problem.hint) from None
    return text


def _text(file: Path) -> str:
    return read_named_text(file, _MOST_FILE_BYTES, hint="name a wg-quick file")
