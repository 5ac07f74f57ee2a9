"""Reads a connection of swanctl.conf for a fleet of IKEv2 clients, with the certificates and keys beside it, where
swanctl has them. The agent reads the settings; no message repeats a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.errors import InputError
from leadline.kinds.tunnel.client_texts import read_named_text
from leadline.plan.regular_files import NotRegular, read_bounded

if TYPE_CHECKING:
    from leadline.kinds.tunnel.workload import Access

_MAX_FILE_BYTES = 1 << 20
_MAX_BYTES = 12 << 20
"""A workload goes to the agent in one line of at most 16 MiB."""
_FOLDERS = ("x509", "x509ca", "private")
_CONNECTIONS = re.compile(r"^\s*connections\s*\{", re.MULTILINE)
_NOT_FOR_IKEV2 = ("ca_key", "ca", "name_prefix", "identities", "users", "expect_option")


def has_ikev2(path: Path) -> bool:
    """Whether the clients' file is a swanctl.conf. A file that cannot be read is another reader's concern."""
    try:
        return _CONNECTIONS.search(read_bounded(path, _MAX_FILE_BYTES).decode("utf-8", errors="replace")) is not None
    except (NotRegular, OSError):
        return False


def read_ikev2_access(options: Mapping[str, Any]) -> Access:
    """The connection, and the files beside it. Raises InputError for one that cannot be read, or options that do not go
    with it."""
    from leadline.contract.models import Ikev2Connections, TunnelFile
    from leadline.kinds.tunnel.workload import Access

    file: Path = options["file"]
    for name in _NOT_FOR_IKEV2:
        if options[name]:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} is for OpenVPN, and {file} is strongSwan's", hint="leave it out")
    files = [TunnelFile(name=name, text=text) for name, text in _files(file.parent)]
    if sum(len(one.text) for one in files) > _MAX_BYTES:
        raise InputError(f"{file}: over {_MAX_BYTES >> 20} MiB of certificates and keys", hint="use fewer clients")
    return Access(_text(file), Ikev2Connections(connection=options["connection"], files=files))


def check_other(options: Mapping[str, Any]) -> None:
    """Check that no option of IKEv2 is given with another file. Raises InputError."""
    if options["connection"] is not None:
        raise InputError(
            f"--connection is for IKEv2, and {options['file']} has no connections", hint="give a swanctl.conf"
        )


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    """The files of swanctl's folders, by their paths."""
    for name in _FOLDERS:
        inside = folder / name
        if inside.is_dir():
            yield from ((f"{name}/{file.name}", _text(file)) for file in sorted(inside.iterdir()) if file.is_file())


def _text(file: Path) -> str:
    return read_named_text(file, _MAX_FILE_BYTES, hint="name a swanctl.conf, with its certificates and keys as PEM")
