"""`--key-file`: the key that a responder shares with its clients, read once. No message of here shows the key."""

from __future__ import annotations

import stat
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.errors import InputError

if TYPE_CHECKING:
    from leadline.trial.workloads import LoadWorkload

LONGEST_KEY_BYTES = 4096
_HINT = "openssl rand -base64 32 makes one"
_OTHERS = stat.S_IROTH | stat.S_IWOTH
_WHITE_SPACE = b" \t\n\r\f"


def read_key(path: Path) -> str:
    """The file's bytes without white space at the end, in base64. Warns on stderr where every user can read the file.

    Raises:
        InputError: the file cannot be read, is empty, or is longer than a key.
    """
    from leadline.cli.output import print_note

    try:
        with path.open("rb") as file:
            mode = path.stat().st_mode
            secret = file.read(LONGEST_KEY_BYTES + 3).rstrip(_WHITE_SPACE)
    except OSError as error:
        raise InputError(f"--key-file {path}: {error.strerror}", hint=_HINT) from None
    if not secret:
        raise InputError(f"--key-file {path}: the key is empty", hint=_HINT)
    if len(secret) > LONGEST_KEY_BYTES:
        raise InputError(f"--key-file {path}: the key is longer than {LONGEST_KEY_BYTES} bytes", hint=_HINT)
    if mode & _OTHERS:
        print_note(f"--key-file {path}: every user of this host can read or change it; chmod 600 {path}")
    return b64encode(secret).decode()


def give_key(load: LoadWorkload, path: Path | None) -> None:
    """Have the load show the key of this file to its responder.

    Raises:
        InputError: as `read_key`; or the load has no session that asks for one.
    """
    if path is None:
        return
    from leadline.contract.models import HttpWorkload, TunnelTcp, TunnelUdp, TunnelWorkload

    if isinstance(load, TunnelWorkload):
        if not isinstance(load.traffic, TunnelUdp | TunnelTcp):
            raise InputError(
                "--key-file is for --traffic udp and tcp", hint="a responder asks for its key in sessions alone"
            )
        load.traffic.key = read_key(path)
    elif not isinstance(load, HttpWorkload):
        load.target.key = read_key(path)
