"""A host as a plan names it, turned into the command that starts its agent.

`local` is this machine; `ssh://user@host:port` goes through the system's `ssh`, which brings the user's own
configuration, keys and known hosts, and carries the agent's stdin and stdout. The agent must be installed there.
"""

from __future__ import annotations

import re
import shutil
from urllib.parse import urlsplit

from leadline.errors import InputError, MissingBinary
from leadline.fleet.launch import AGENT_NAME, Launch, agent_binary

SSH_HELLO_WITHIN_S = 20.0
_SHAPE = "a host is `local` or `ssh://[user@]host[:port]`"
# OpenSSH hands the destination to no shell of ours, but a leading dash would be read as an option.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_ADDRESS = re.compile(r"[0-9A-Za-z:.%]+")


def parse_host(text: str) -> Launch:
    """The command that starts an agent on the host that a plan calls `text`.

    Raises:
        InputError: the text is neither `local` nor an ssh address.
        MissingBinary: the agent (`local`) or `ssh` is not installed here.
    """
    if text == "local":
        return Launch((str(agent_binary()),))
    destination, port = _ssh_address(text)
    if shutil.which("ssh") is None:
        raise MissingBinary("ssh", hint=f"install an SSH client, or use a host that is local instead of {text}")
    # BatchMode: a question for a password would wait for ever behind the progress display.
    port_option = () if port is None else ("-p", str(port))
    return Launch(
        ("ssh", "-o", "BatchMode=yes", *port_option, destination, AGENT_NAME), hello_within_s=SSH_HELLO_WITHIN_S
    )


def _ssh_address(text: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InputError(f"host {text!r}: {error}", hint=_SHAPE) from error
    if parts.scheme != "ssh" or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InputError(f"host {text!r} cannot be read", hint=_SHAPE)
    if parts.password is not None:
        raise InputError(f"host {text.partition(':')[0]}://…: a password has no place in a plan", hint="use a key")
    host, user = parts.hostname or "", parts.username
    if not (_NAME.fullmatch(host) or (":" in host and _ADDRESS.fullmatch(host))):
        raise InputError(f"host {text!r} has no usable host name", hint=_SHAPE)
    if user is not None and not _NAME.fullmatch(user):
        raise InputError(f"host {text!r} has no usable user name", hint=_SHAPE)
    return (f"{user}@{host}" if user else host), port
