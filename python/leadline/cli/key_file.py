"""`--key-file`: reads the key that a responder shares with its clients. No message of this module shows the key."""

from __future__ import annotations

import stat
from base64 import b64encode
from pathlib import Path

from leadline.errors import InputError

LONGEST_KEY_BYTES = 4096
_HINT = "make one: openssl rand -base64 32"
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
