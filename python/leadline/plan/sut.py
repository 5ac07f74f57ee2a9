"""The attributes of a system under test that plans use: parameters, needs, bring-up time.

The systems are modules of `leadline.sut`; `leadline.registry.SYSTEMS` finds them by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from leadline.plan.base_test import BaseTest, Conflict
from leadline.plan.field_types import PlanModel
from leadline.plan.need import Need
from leadline.plan.open_union import OpenUnion
from leadline.plan.source import Node
from leadline.registry import SYSTEMS

USER_SPACE = "(user space)"
"""Ends the title of a system whose packets pass through user space where its usual data plane is the kernel."""


class CpuAttribution(StrEnum):
    """Which CPU time on a gateway is the system's."""

    PROCESS = "process"
    """That of its processes, by the names that it gives them."""
    CGROUP = "cgroup"
    """That of everything in the host's control group, except the agent."""
    KERNEL = "kernel"
    """That of the kernel, which has no process: it forwards, or encrypts by itself."""
    MACHINE = "machine"
    """All of the machine's, except the agent's: nothing else runs there."""


class BaseSut(PlanModel):
    """The parameters that every system under test has. A system adds its own, and overrides what differs."""

    if TYPE_CHECKING:
        kind: str  # Declared by each system's model, after the fields of this one.

    optional: bool = False
    """Skip the trials of this system, with a note, instead of failing, if its program is missing, its device may not be
    opened or the kernel lacks what it needs."""

    @property
    def uses_ipv6(self) -> bool:
        """Whether the system itself needs IPv6 between the hosts."""
        return False

    @property
    def given_label(self) -> str | None:
        """The plan's label for the system on given hosts; None for a system that is brought up."""
        return None


class PlanSystem(Protocol):
    """A system under test, as plans use it."""

    @property
    def name(self) -> str:
        """The value of `kind` in a plan."""

    @property
    def title(self) -> str:
        """What sentences call the system; empty if that is its name."""

    @property
    def model(self) -> type[BaseSut]:
        """The system's parameters."""

    @property
    def on_given_hosts(self) -> bool:
        """Whether it already runs on given hosts, so that Leadline does not start it."""

    @property
    def comes_up_on_given_hosts(self) -> bool:
        """Whether Leadline can bring it up on given hosts as it does in a lab."""

    @property
    def carries_fleets(self) -> bool:
        """Whether the VPN clients of a fleet can connect to it."""

    @property
    def connects_hosts(self) -> bool:
        """Whether each client host has one VPN client of it."""

    def cpu_attribution(self, parameters: Any) -> CpuAttribution:
        """Which CPU time on a gateway is the system's."""

    @property
    def compared_with_route(self) -> bool:
        """Whether a ladder is measured through a plain route too, to show what the system costs."""

    @property
    def answers_itself(self) -> bool:
        """Whether it answers tests itself, instead of carrying them to the run's server."""

    def test_conflicts(self, parameters: Any, test: BaseTest) -> Iterator[Conflict]:
        """Keys of a test that cannot be measured with it: the key, the mistake, and the advice."""

    def axis_paths(self, written: Node) -> list[str]:
        """Paths below `sut` that an axis may name beside the keys of the model."""

    def packets(self, parameters: Any, link_mtu_bytes: int) -> tuple[int, int] | None:
        """The largest IP packet that fits through it, and the bytes that it adds to each; None if unknown."""

    def fleet_conflicts(self, parameters: Any) -> Iterator[tuple[str, str, str | None]]:
        """Parameters with which no fleet can connect: the key, the mistake, and the advice."""

    def needs(self, parameters: Any, *, fleet: bool) -> list[Need]:
        """The system's needs on the machine; with a fleet, the agent runs the clients."""

    def bring_up_seconds(self, parameters: Any) -> tuple[float, float]:
        """Estimated bring-up time: a fixed part, and a part per client."""


def system_of(sut: BaseSut) -> PlanSystem:
    """The system with these parameters."""
    found: PlanSystem = SYSTEMS.get(sut.kind)
    return found


def plan_systems() -> list[PlanSystem]:
    """All systems, in the order in which plans list them."""
    return [SYSTEMS.get(name) for name in SYSTEMS.names]


AnySut = Annotated[BaseSut, OpenUnion(lambda: [system.model for system in plan_systems()])]
"""The parameters of a system of any kind, as the type of a field."""
