"""Records of how trials ran: when flows were active, what disturbed them when, and what differed between environments.
`model` has the others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class FlowSpan:
    """When a flow ran, or several neighbouring ones: s after the test's first flow began. All of them run from
    `all_from_s` to `all_until_s`."""

    name: str  # The flow, or the first and the last of several.
    flows: int  # How many flows it stands for.
    due_s: float | None  # When the first was to begin; null if that is not known.
    start_s: float  # When the first began.
    all_from_s: float  # From when on all of them ran.
    all_until_s: float  # Until when all of them ran.
    end_s: float  # When the last ended.


class MarkKind(StrEnum):
    """Why a part of a test is marked."""

    OTHER_WORK = "other work"
    STOLEN = "stolen time"
    STALL = "stall"


@dataclass(frozen=True, slots=True)
class TimeMark:
    """A part of a test in which something was wrong: s after its first flow began."""

    kind: MarkKind  # Why the part is marked.
    start_s: float  # When it begins, s.
    end_s: float  # When it ends, s.
    mean: float
    """CPUs that other work used or that a hypervisor took, or the leading rate in a stall, in its own unit."""


@dataclass(frozen=True, slots=True)
class FactDifference:
    """A fact of one host, or of a system under test, that is not the same in all trials."""

    of: str  # The host or the system.
    fact: str  # The name of the fact.
    values: dict[str, tuple[str, ...]]
    """Each value, and the trials that had it."""
