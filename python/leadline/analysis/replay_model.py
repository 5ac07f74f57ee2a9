"""The records of what became of a replay: its source, its times, and how the answers differ. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """A part of the answers to requests of one name that differed."""

    label: str  # The requests' name.
    part: str
    """`status`, `length`, `body`, or a field of JSON as `items[].price`."""
    count: int  # In how many answers.
    is_noise: bool
    """It also differed between two answers of one target."""
    before: str | None
    """In the source or from the first target, the first time; null where it may be a secret."""
    after: str | None  # The same now, or from the second target.


@dataclass(frozen=True, slots=True)
class ReplayFindings:
    """What became of a replay."""

    format: str  # The format of the source, as recognised or as given.
    sessions_by: str  # What distinguished sessions.
    read: int  # Requests of the source.
    passed_on: int
    """Those that were to be sent, copies and second targets included."""
    left_out: dict[str, int]  # What was not replayed, by cause.
    reordered: int
    """Requests that lay further back than the source is put in order; they were sent at once."""
    sessions: int  # Sessions, copies included.
    first_epoch_ms: int | None  # The first request's time by the source's clock.
    length_ms: float | None  # From the first request to the last one, in the source.
    precision_ms: float
    """How exact the source's times are: whole seconds are spread within their second."""
    waited: int
    """Requests that were due before the answer that they may depend on."""
    read_late: int | None
    """Requests that had not been read when they were due; null where they are sent as they come."""
    compared: int  # Answers that were compared.
    differing: int  # Those with a difference that is no noise.
    not_compared: int
    """Answers whose bodies could not be compared: in a coding that is not read, too large, or too many at once."""
    replaced: int  # Values in requests that new answers gave otherwise.
    differences: tuple[ReplayDifference, ...]  # The most frequent first.
    more_differences: int  # Differences that have no row.
    broken_off: str | None  # Why reading ended early; null if it did not.
