"""Records of how trials ran: when flows were active, what disturbed them when, and what differed between environments.
`model` has the others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class FlowSpan:
    """When a flow ran, or several neighbouring ones: s after the test's first flow began. All of them run from
    `all_from_s` to `all_until_s`."""

    name: str
    flows: int
    due_s: float | None
    start_s: float
    all_from_s: float
    all_until_s: float
    end_s: float


class MarkKind(StrEnum):
    """Why a part of a test is marked."""

    OTHER_WORK = "other work"
    STOLEN = "stolen time"
    STALL = "stall"


@dataclass(frozen=True, slots=True)
class TimeMark:
    """A part of a test in which something was wrong: s after its first flow began."""

    kind: MarkKind
    start_s: float
    end_s: float
    mean: float
    """CPUs that other work used or that a hypervisor took, or the leading rate in a stall, in its own unit."""


@dataclass(frozen=True, slots=True)
class FactDifference:
    """A fact of one host, or of a system under test, that is not the same in all trials."""

    of: str
    fact: str
    values: dict[str, tuple[str, ...]]
    """Each value, and the trials that had it."""
