"""The records of a scenario's outcome: its groups of users, and the requests and transactions of each name. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GroupFindings:
    """The iterations of one group of users, by what became of them; each that was due is in exactly one count."""

    name: str
    due: int
    begun: int
    late: int
    """Of those that began, more than 1 ms after they were due."""
    dropped: int
    """Without a free user."""
    not_begun: int
    completed: int
    failed: int
    interrupted: int
    users_most: int
    """The largest number of users at once."""
    iteration_p50_us: float | None
    iteration_p95_us: float | None
    start_late_p99_us: float | None
    """From due to begun; null in closed models."""


@dataclass(frozen=True, slots=True)
class CheckFindings:
    """One check of a request."""

    name: str
    passed: int
    failed: int


@dataclass(frozen=True, slots=True)
class LabelFindings:
    """The requests, or the transactions, of one name."""

    name: str
    is_transaction: bool
    group: str
    ended: int
    failed: int
    interrupted: int
    per_s: float | None
    """Ended per second of its group's time."""
    latency_mean_us: float | None
    """From when it was wanted."""
    latency_p50_us: float | None
    latency_p90_us: float | None
    latency_p95_us: float | None
    latency_p99_us: float | None
    latency_max_us: float | None
    service_p95_us: float | None
    """From sent; null for transactions."""
    sent_bytes: int
    received_bytes: int
    errors: dict[str, int] = field(default_factory=dict)
    error_examples: dict[str, str] = field(default_factory=dict)
    checks: tuple[CheckFindings, ...] = ()
    misses: dict[str, int] = field(default_factory=dict)
    """Extractions that found nothing, by variable."""
    tags: dict[str, str] = field(default_factory=dict)
    """Requests of one name with different tags have a row each."""
    cached: int = 0
    """Served from users' caches, without a request; they are not in `ended`."""
    resources: int = 0
    """Resources of pages that were fetched with them; they are not in `ended`."""
    redirects: int = 0
    """Redirects that were followed."""
    latency_censored: int = 0
    """Those that timed out or were interrupted: their latency is at least their age then."""
    censored: tuple[str, ...] = ()
    """Names of the values that are lower bounds."""
    service_p50_us: float | None = None
    """From sent, as `service_p95_us`."""
    service_p99_us: float | None = None


def shown_names(labels: Sequence[LabelFindings]) -> list[str]:
    """Their names; with the tags, where several in a group have the same name."""
    names = Counter((label.name, label.is_transaction, label.group) for label in labels)
    return [
        f"{label.name} {{{','.join(f'{key}:{value}' for key, value in label.tags.items())}}}"
        if names[label.name, label.is_transaction, label.group] > 1 and label.tags
        else label.name
        for label in labels
    ]


@dataclass(frozen=True, slots=True)
class SlowRequestFindings:
    """One of the slowest requests."""

    name: str
    latency_us: float
    before_sent_us: float
    first_byte_us: float | None
    status: int | None
    error: str | None
    dns_us: float | None = None
    """Of the time before it was sent: resolving the name; null if the address was known."""
    connect_us: float | None = None
    """Of the same time: the TCP handshake; null on a connection that was open."""
    tls_us: float | None = None
    """Of the same time: the TLS handshake; null without one."""


@dataclass(frozen=True, slots=True)
class ScenarioFindings:
    """What a scenario did."""

    groups: tuple[GroupFindings, ...]
    labels: tuple[LabelFindings, ...]
    """In the flow's order, transactions before the requests in them."""
    slowest: tuple[SlowRequestFindings, ...]
    users_memory_bytes: int | None
    left_out: int = 0
    """Requests and transactions that are missing among the single ones that were asked for, because they ended faster
    than they were written; every other figure counts them."""
