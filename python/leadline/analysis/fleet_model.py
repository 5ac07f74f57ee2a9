"""The records of a fleet's outcome: causes for which clients are not configured, and limits of the server. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Misfortune:
    """One cause for which clients of a fleet are not configured, and its first clients."""

    cause: str  # The cause, a stable name.
    clients: int  # Clients that it concerns.
    examples: tuple[int, ...]  # Numbers of its first clients.


@dataclass(frozen=True, slots=True)
class Overload:
    """A limit of the server that explains the clients' failures: `pool_exhausted`, `max_clients`,
    `connect_freq_initial`."""

    name: str  # The limit, a stable name.
    clients: int  # Clients that it concerns.
    seen: str
    """The observation that suggests the limit."""


@dataclass(frozen=True, slots=True)
class FleetFindings:
    """The outcome of a fleet's clients, in addition to their counts. The most frequent causes come first."""

    failed: tuple[Misfortune, ...]  # Causes for which clients have no tunnel.
    partial: tuple[Misfortune, ...]  # Causes for which clients are connected, but not configured in full.
    waiting: int
    """Clients that never tried to connect."""
    recovered: int
    """Clients that are configured after a failed attempt."""
    ciphers: dict[str, int]
    """Number of clients per negotiated data cipher."""
    ignored_options: tuple[str, ...]
    """Lines of the profile that a fleet ignores."""
    overload: tuple[Overload, ...] = ()  # Limits of the server that explain failures.
