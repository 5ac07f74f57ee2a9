"""What a plan becomes: cases, their trials in order, and the plan itself. Records only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.plan.base_test import BaseTest
from leadline.plan.hosts import Hosts, LinkSpec, Topology
from leadline.plan.limits import Limits
from leadline.plan.sut import BaseSut
from leadline.plan.targets import Target


@dataclass(frozen=True, slots=True)
class Case:
    """One point of the matrix, complete: nothing of the plan is left to look up."""

    id: str
    """c01, c02 ... in the order of the expansion."""
    parameters: dict[str, Any]
    """Axis to value, as the plan writes it (a mapping where an axis is over mappings)."""
    labels: dict[str, str]
    """Axis to a short text for tables and `--only`."""
    topology: Topology
    clients: int
    """Client hosts."""
    fleet: int | None
    """VPN clients that the one client host carries; None where each is a host."""
    link: LinkSpec | None
    """The lab's links; None where `hosts` are given."""
    hosts: Hosts | None
    """Given hosts; None where the lab makes them."""
    sut: BaseSut
    tests: tuple[BaseTest, ...]
    profile: bool = False
    """Whether the system under test's call stacks are sampled."""

    @property
    def title(self) -> str:
        """What sets it apart, in one line; the system's kind where the plan has no axes."""
        return " ".join(f"{axis}={label}" for axis, label in self.labels.items()) or self.sut.kind


@dataclass(frozen=True, slots=True)
class Trial:
    """One case, tried once."""

    case: Case
    repeat: int
    """From 1."""

    @property
    def label(self) -> str:
        """Names it in journals: c02/1."""
        return f"{self.case.id}/{self.repeat}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan, checked whole: every case of it is possible as far as can be said without running it."""

    path: Path
    text: str
    """The file as it was read; `document` is what counts."""
    overrides: tuple[str, ...]
    document: dict[str, Any]
    """The plan after `extends` and `--set`, as plain data."""
    name: str
    description: str
    cases: tuple[Case, ...]
    axes: dict[str, tuple[str, ...]]
    """Axis to the labels of its values."""
    repeat: int
    seed: int
    seed_is_derived: bool
    """True where the plan gives none and it was derived from the content."""
    targets: tuple[Target, ...]
    observe_period_ms: int
    limits: Limits
    notes: tuple[str, ...]
    """Remarks that stop nothing, such as an `exclude` that removes nothing."""
