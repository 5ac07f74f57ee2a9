"""Where the agent of a given host is started, as one text: its scheme says what carries the agent's streams."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Literal, Self

Scheme = Literal["local", "ssh", "exec", "ray"]
MAX_RAY_HOSTS = 10_000


@dataclass(frozen=True, slots=True)
class HostAddress:
    """Where an agent is started: on this machine (`local`), over SSH, through a command, or on nodes of a Ray cluster.
    None as user or port means SSH's own default."""

    scheme: Scheme
    host: str = "localhost"
    """Of `ssh` and `ray`: the name or address; empty for the Ray cluster that this machine belongs to. Of `exec`: the
    command, for people."""
    user: str | None = None
    port: int | None = None
    command: tuple[str, ...] = ()
    """Of `exec`: what the agent's command is appended to."""
    hosts: int = 1
    """Of `ray`: the number of nodes."""
    number: int = 0
    """Of `ray`: which of a plan's nodes, from 0."""
    config: str | None = None
    """Of `ssh`: the file of ssh_config(5); None for the user's own."""
    name: str | None = None
    """What people call it; None for its address."""
    addresses: tuple[str, ...] = ()
    """Its IP addresses on the measured network, at most one per version; empty if unknown."""

    @property
    def is_local(self) -> bool:
        """Whether its agent runs on this machine as it is."""
        return self.scheme == "local"

    @property
    def text(self) -> str:
        """The address as one writes it, without what is particular to one of several nodes."""
        if self.scheme == "local":
            return "local"
        if self.scheme == "exec":
            return f"exec:{self.host}"
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{f'{self.user}@' if self.user else ''}{name}{f':{self.port}' if self.port else ''}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `local`, `ssh://[user@]host[:port]` (an IPv6 host in brackets), `exec:COMMAND` or
        `ray://[HEAD:PORT][?hosts=N]`.

        Raises:
            ValueError: with a message for the user.
        """
        if text == "local":
            return cls("local")
        if text.startswith("exec:"):
            return cls._exec(text.removeprefix("exec:"))
        if text.startswith("ray:"):
            return cls._ray(text)
        match = _SSH.fullmatch(text)
        if match is None:
            secret = text.startswith("ssh://") and ":" in text.removeprefix("ssh://").partition("@")[0] and "@" in text
            advice = "a password must not be in a plan; use a key or an SSH agent" if secret else _FORMS
            raise ValueError(f"{'the address' if secret else repr(text)} is not a host; {advice}")
        user, bracketed, name, port = match.groups()
        return cls("ssh", bracketed or name, user=user, port=_checked_port(text, port))

    @classmethod
    def _exec(cls, command: str) -> Self:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise ValueError(f"exec:{command} is not a command: {str(error).lower()}") from None
        if not words:
            raise ValueError("exec: lacks its command; write exec:COMMAND, as in exec:docker exec -i NAME")
        return cls("exec", shlex.join(words), command=tuple(words))

    @classmethod
    def _ray(cls, text: str) -> Self:
        match = _RAY.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a Ray cluster; write ray://[HEAD:PORT][?hosts=N]")
        bracketed, name, port, hosts = match.groups()
        number = 1 if hosts is None else int(hosts)
        if not 1 <= number <= MAX_RAY_HOSTS:
            raise ValueError(f"{text!r}: hosts must be 1 to {MAX_RAY_HOSTS}")
        return cls("ray", bracketed or name or "", port=_checked_port(text, port), hosts=number)


def _checked_port(text: str, port: str | None) -> int | None:
    if port is not None and not 1 <= int(port) <= 65535:
        raise ValueError(f"{text!r} has an invalid port; write 1 to 65535")
    return int(port) if port else None


_SSH = re.compile(
    r"ssh://(?:([A-Za-z0-9_][\w.-]*)@)?(?:\[([0-9A-Fa-f:.%\w]+)\]|([A-Za-z0-9_][\w.-]*))(?::(\d{1,5}))?/?"
)
_RAY = re.compile(r"ray://(?:(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_][\w.-]*)):(\d{1,5}))?/?(?:\?hosts=(\d{1,6}))?")
_FORMS = "write ssh://[user@]host[:port], exec:COMMAND, ray://[HEAD:PORT]?hosts=N, or local"
