"""`--username`: the login at an iperf3 server that asks for one. No message of this module shows the password."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leadline.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from leadline.contract.models import Iperf3Login

PASSWORD_VARIABLE = "IPERF3_PASSWORD"  # the variable's name
_MOST_KEY_BYTES = 64 * 1024


def login_of(values: Mapping[str, Any]) -> Iperf3Login | None:
    """The login that a command's options describe; None without one.

    Raises:
        InputError: an option is missing or has no meaning here, the key cannot be read, or there is no password.
    """
    user, key, pkcs1 = (values.get(name) for name in ("username", "rsa_public_key_path", "use_pkcs1_padding"))
    if user is None and key is None and not pkcs1:
        return None
    if values.get("peer") != "iperf3":
        raise InputError("--username is for iperf3's servers", hint="give --peer iperf3, or --key-file")
    if user is None or key is None:
        raise InputError("--username and --rsa-public-key-path require each other", hint="give both, or neither")
    from leadline.contract.models import Iperf3Login

    return Iperf3Login(user=user, password=_password(), key_pem=_key(key), padding="pkcs1" if pkcs1 else "oaep")


def _key(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_KEY_BYTES).decode("ascii")
    except OSError as error:
        raise InputError(f"--rsa-public-key-path {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"--rsa-public-key-path {path}: not a PEM file") from None


def _password() -> str:
    if (found := os.environ.get(PASSWORD_VARIABLE)) is not None:
        return found
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("Password: ")
    raise InputError(f"--username without a password: {PASSWORD_VARIABLE} is not set", hint="export it")
