"""The records of a scenario's outcome: its groups of users, and the requests and transactions of each name. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from leadline.analysis.replay_model import ReplayFindings


@dataclass(frozen=True, slots=True)
class GroupFindings:
    """The iterations of one group of users, by what became of them; each that was due is in exactly one count."""

    name: str  # The group, as the scenario names it.
    due: int  # Iterations that were due.
    begun: int  # Those that began.
    late: int
    """Of those that began, more than 1 ms after they were due."""
    dropped: int
    """Without a free user."""
    not_begun: int  # Those that had not begun when the load ended.
    completed: int  # Those that ended without a failure.
    failed: int  # Those that ended with a failure.
    interrupted: int  # Those that the load's end cut off.
    users_most: int
    """The largest number of users at once."""
    iteration_p50_us: float | None  # Length of an iteration, µs: the median.
    iteration_p95_us: float | None  # The same at the 95th percentile.
    start_late_p99_us: float | None
    """From due to begun; null in closed models."""


@dataclass(frozen=True, slots=True)
class CheckFindings:
    """One check of a request."""

    name: str  # What is checked, as the scenario names it.
    passed: int  # Answers that passed.
    failed: int  # Answers that failed.


@dataclass(frozen=True, slots=True)
class LabelFindings:
    """The requests, or the transactions, of one name."""

    name: str  # The name of the requests, or of the transaction.
    is_transaction: bool  # Whether it is a transaction, not a request.
    group: str  # The group of users.
    ended: int  # How many ended, with or without a failure.
    failed: int  # How many of them failed.
    interrupted: int  # How many the load's end cut off.
    per_s: float | None
    """Ended per second of its group's time."""
    latency_mean_us: float | None
    """From when it was wanted."""
    latency_p50_us: float | None  # The same latency, µs: the median.
    latency_p90_us: float | None  # The same at the 90th percentile.
    latency_p95_us: float | None  # The same at the 95th percentile.
    latency_p99_us: float | None  # The same at the 99th percentile.
    latency_max_us: float | None  # The longest, µs.
    service_p95_us: float | None
    """From sent; null for transactions."""
    sent_bytes: int  # Bytes that were sent.
    received_bytes: int  # Bytes that were received.
    errors: dict[str, int] = field(default_factory=dict)  # Failures by name.
    error_examples: dict[str, str] = field(default_factory=dict)  # The message of the first failure of a name.
    checks: tuple[CheckFindings, ...] = ()  # What its answers were checked for.
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
    service_p99_us: float | None = None  # From sent, at the 99th percentile.


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

    name: str  # The name of the request.
    latency_us: float  # From when it was wanted until its answer was complete, µs.
    before_sent_us: float  # The part of it before the request was sent, µs.
    first_byte_us: float | None  # From sent until the first byte of the answer, µs; null without an answer.
    status: int | None  # The HTTP status; null without an answer.
    error: str | None  # The name of its failure; null if it did not fail.
    dns_us: float | None = None
    """Of the time before it was sent: resolving the name; null if the address was known."""
    connect_us: float | None = None
    """Of the same time: the TCP handshake; null on a connection that was open."""
    tls_us: float | None = None
    """Of the same time: the TLS handshake; null without one."""


@dataclass(frozen=True, slots=True)
class ScenarioFindings:
    """What a scenario did."""

    groups: tuple[GroupFindings, ...]  # Its groups of users.
    labels: tuple[LabelFindings, ...]
    """In the flow's order, transactions before the requests in them."""
    slowest: tuple[SlowRequestFindings, ...]  # The slowest requests, the slowest first.
    users_memory_bytes: int | None  # Memory that all users of the load took, bytes; null if unknown.
    left_out: int = 0
    """Requests and transactions that are missing among the single ones that were asked for, because they ended faster
    than they were written; every other figure counts them."""
    replay: ReplayFindings | None = None  # Of a replay: what became of its source.
