"""What OpenVPN's log lines mean for a client that is not, or not wholly, connected. Pure text in, one cause out.

Wordings are those of 2.4 to 2.6; a line that is not in the table is still quoted by who asks for the log's end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

READY = "Initialization Sequence Completed"

_CAUSES = (
    ("Options error:", "it refuses its options"),
    ("Cannot open TUN/TAP dev", "it cannot make its tunnel device"),
    ("Cannot ioctl TUNSETIFF", "it cannot make its tunnel device"),
    ("Address already in use", "its port is taken"),
    ("AUTH_FAILED", "the gateway refused it"),
    ("VERIFY ERROR", "a certificate was refused"),
    ("no free --ifconfig-pool addresses", "the gateway's address pool is used up"),
    ("exceed maximum number of clients", "the gateway has its maximum number of clients"),
    ("failed to negotiate cipher", "no cipher in common"),
    ("connection initiation rate limit", "the gateway limits the rate of new connections"),
    ("[ECONNREFUSED]", "no process listens at the gateway"),
    ("Connection refused", "no process listens at the gateway"),
    ("TLS key negotiation failed to occur", "no answer from the gateway"),
    ("TLS handshake failed", "the TLS handshake failed"),
    ("TLS Error:", "TLS error"),
    ("Exiting due to fatal error", "it met a fatal error"),
)
"""From what explains most to what explains least: of several lines, the one highest up is the cause."""

REPORT = (READY, *(marker for marker, _ in _CAUSES))
"""What an agent shall tell of either end's output."""

_UNNAMED_REFUSALS = ("exceed maximum number of clients", "connection initiation rate limit")
_UNANSWERED = "TLS key negotiation failed to occur"

_STAMP = re.compile(r"^(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})(?: us=\d+)? ")


_WHOSE = re.compile(r"^\S+/\S+:\d+ ")
"""The client's name and address before a server's line, left out of a cause: the same cause is one cause."""


def cause(lines: Iterable[str]) -> str | None:
    """Why it went wrong, with the line that says so; None where no line does."""
    known = [line for line in lines if READY not in line]
    for marker, meaning in _CAUSES:
        for line in known:
            if marker in line:
                return f"{meaning}: {_WHOSE.sub('', unstamped(line))}"
    return None


def of_client(lines: Iterable[str], common_name: str) -> list[str]:
    """The server's lines about one client: after its name is known, they begin with it and its address."""
    return [line for line in lines if unstamped(line).startswith(f"{common_name}/")]


def refuses_unnamed(line: str) -> bool:
    """Whether the server refuses a client before it knows the client's name."""
    return any(marker in line for marker in _UNNAMED_REFUSALS)


def unanswered(lines: Iterable[str]) -> bool:
    """Whether a client heard nothing of the gateway, or nothing that it would own to."""
    return all(_UNANSWERED in line or "TLS Error" in line or "TLS handshake failed" in line for line in lines)


def unstamped(line: str) -> str:
    """The line without its time."""
    return _STAMP.sub("", line).strip()
