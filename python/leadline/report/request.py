"""What was asked for in an http test, as far as the layouts of other programs print it; and errors by their kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit


@dataclass(frozen=True, slots=True)
class HttpRequested:
    """One http load as the command line gave it."""

    url: str
    connections: int
    threads: int
    duration_s: float
    keep_alive: bool
    has_body: bool
    paced: bool = False
    """Whether requests have a rate of their own, instead of following the answers."""

    @property
    def parts(self) -> SplitResult:
        """The URL, split."""
        return urlsplit(self.url)


@dataclass(frozen=True, slots=True)
class ErrorKinds:
    """Failures as wrk and ab tell them apart."""

    connect: int
    read: int
    write: int
    timeout: int


def error_kinds(errors: Mapping[str, int]) -> ErrorKinds:
    """Each failure in one kind, by its name: what can only fail before a request is out, sends, waits, and the rest."""
    found = dict.fromkeys(("connect", "read", "write", "timeout"), 0)
    for name, count in errors.items():
        if name.startswith("status_"):
            continue
        found[_kind(name)] += count
    return ErrorKinds(**found)


def _kind(name: str) -> str:
    if "timeout" in name:
        return "timeout"
    if name.startswith(_CONNECTING) or name.endswith("_unreachable"):
        return "connect"
    return "write" if name in _SENDING else "read"


_CONNECTING = (
    "connect_",
    "connection_refused",
    "dns",
    "tls",
    "proxy",
    "address_",
    "network_",
    "refused",
    "too_many_open",
)
_SENDING = frozenset({"broken_pipe", "no_buffer_space", "message_too_long", "write"})
