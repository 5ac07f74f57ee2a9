"""The meaning of OpenVPN's log lines for a client that is not fully connected. Pure: text in, one cause out.

The texts are those of 2.4 to 2.6; a line that is not in the table is still quoted with the end of the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

READY = "Initialization Sequence Completed"

_CAUSES = (
    ("Options error:", "it refuses its options"),
    ("Cannot open TUN/TAP dev", "it cannot create its tunnel device"),
    ("Cannot ioctl TUNSETIFF", "it cannot create its tunnel device"),
    ("Address already in use", "its port is in use"),
    ("AUTH_FAILED", "the gateway refused it"),
    ("VERIFY ERROR", "a certificate was refused"),
    ("no free --ifconfig-pool addresses", "the gateway's address pool is used up"),
    ("exceed maximum number of clients", "the gateway has its maximum number of clients"),
    ("failed to negotiate cipher", "there is no common cipher"),
    ("connection initiation rate limit", "the gateway limits the rate of new connections"),
    ("[ECONNREFUSED]", "no process listens at the gateway"),
    ("Connection refused", "no process listens at the gateway"),
    ("TLS key negotiation failed to occur", "no answer from the gateway"),
    ("TLS handshake failed", "the TLS handshake failed"),
    ("TLS Error:", "TLS error"),
    ("Exiting due to fatal error", "a fatal error occurred"),
)
"""Ordered by how much they explain: of several lines, the one highest in this list is the cause."""

REPORT = (READY, *(marker for marker, _ in _CAUSES))
"""The texts that an agent reports from either end's output."""

_UNNAMED_REFUSALS = ("exceed maximum number of clients", "connection initiation rate limit")
_UNANSWERED = "TLS key negotiation failed to occur"

_STAMP = re.compile(r"^(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})(?: us=\d+)? ")


_WHOSE = re.compile(r"^\S+/\S+:\d+ ")
"""The client's name and address before a server's line. They are removed, so that equal causes have equal texts."""


def cause(lines: Iterable[str]) -> str | None:
    """The cause, with the log line; None if no line explains it."""
    known = [line for line in lines if READY not in line]
    for marker, meaning in _CAUSES:
        for line in known:
            if marker in line:
                return f"{meaning}: {_WHOSE.sub('', unstamped(line))}"
    return None


def of_client(lines: Iterable[str], common_name: str) -> list[str]:
    """The server's lines about one client: once its name is known, they begin with it and its address."""
    return [line for line in lines if unstamped(line).startswith(f"{common_name}/")]


def refuses_unnamed(line: str) -> bool:
    """Whether the server refuses a client before it knows the client's name."""
    return any(marker in line for marker in _UNNAMED_REFUSALS)


def unanswered(lines: Iterable[str]) -> bool:
    """Whether a client received nothing usable from the gateway."""
    return all(_UNANSWERED in line or "TLS Error" in line or "TLS handshake failed" in line for line in lines)


def unstamped(line: str) -> str:
    """The line without its time."""
    return _STAMP.sub("", line).strip()
