"""The result of reading a plan: cases, their trials in order, and the plan itself. Records only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.plan.base_test import BaseTest
from leadline.plan.hosts import EmulatorName, Hosts, LinkSpec, Topology
from leadline.plan.ladder import CaseLadder
from leadline.plan.limits import Limits
from leadline.plan.repeats import RepeatUntil
from leadline.plan.sut import BaseSut
from leadline.plan.targets import Target


@dataclass(frozen=True, slots=True)
class Case:
    """One point of the matrix, complete: it needs no further lookup in the plan."""

    id: str
    """c01, c02 ... in the order of expansion."""
    parameters: dict[str, Any]
    """Axis to value, as written in the plan (a mapping if the axis has mappings)."""
    labels: dict[str, str]
    """Axis to a short text for tables and `--only`."""
    topology: Topology
    clients: int
    """Number of clients, each on a host of its own if there are enough; a fleet is on one."""
    fleet: int | None
    """Number of VPN clients on the single client host; None if each client is a host."""
    link: LinkSpec | None
    """The lab's links; None if `hosts` are given."""
    hosts: Hosts | None
    """Given hosts; None for hosts of the lab."""
    sut: BaseSut
    tests: tuple[BaseTest, ...]
    ladder: CaseLadder | None = None
    """Its ladder; None if the plan has none."""
    profile: bool = False
    """Whether call stacks of the system under test are sampled."""
    baseline: str | None = None
    """The id of the case that it is compared with; None for a baseline, and without one."""
    split_cpus: bool = False
    """Whether clients, gateways and server of the lab run on different CPUs."""
    gateway_cpus: int | None = None
    """Number of CPUs that gateways of the lab may use; None where the plan gives none."""
    idle_poll: bool = False
    """Whether CPUs without work poll instead of sleeping."""
    emulator: EmulatorName | None = None
    """The plan's choice of what impairs the lab's links; None: what the kernel has."""

    @property
    def client_hosts(self) -> int:
        """The number of hosts that have clients; given hosts may have several each."""
        return self.clients if self.hosts is None else min(self.clients, len(self.hosts.client_addresses))

    @property
    def title(self) -> str:
        """The parameters that identify it, in one line; the system's kind if the plan has no axes."""
        return " ".join(f"{axis}={label}" for axis, label in self.labels.items()) or self.sut.kind


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial of a case."""

    case: Case
    repeat: int
    """From 1."""

    @property
    def label(self) -> str:
        """Its label in journals: c02/1."""
        return f"{self.case.id}/{self.repeat}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A validated plan: every case is possible as far as can be checked without running it."""

    path: Path
    text: str
    """The text of the file; only `document` counts."""
    overrides: tuple[str, ...]
    document: dict[str, Any]
    """The plan after `extends` and `--set`, as plain data."""
    name: str
    description: str
    cases: tuple[Case, ...]
    axes: dict[str, tuple[str, ...]]
    """Axis to the labels of its values."""
    repeat: int
    """Trials of each case, at least."""
    until: RepeatUntil | None
    """What ends further rounds; None where there are none."""
    seed: int
    seed_is_derived: bool
    """True where the plan gives none and it was derived from the content."""
    targets: tuple[Target, ...]
    observe_period_ms: int
    limits: Limits
    tolerate: float
    notes: tuple[str, ...]
    """Notes, such as on an `exclude` that removes nothing."""
