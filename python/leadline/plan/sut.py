"""What a plan needs of a system under test: the parameters that all have, what it needs, how long it takes to come up.

The systems are modules of `leadline.sut`; `leadline.registry.SYSTEMS` finds them by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Protocol

from leadline.plan.field_types import PlanModel
from leadline.plan.need import Need
from leadline.plan.open_union import OpenUnion
from leadline.registry import SYSTEMS


class BaseSut(PlanModel):
    """The parameters that every system under test has. A system adds its own, and overrides what is different."""

    if TYPE_CHECKING:
        kind: str  # A field of each system's model, behind those of this one.

    optional: bool = False
    """Skip the trials of this system, with a note, where its program is missing, instead of failing."""

    @property
    def uses_ipv6(self) -> bool:
        """Whether the system itself needs IPv6 between the hosts."""
        return False

    @property
    def given_label(self) -> str | None:
        """What stands on given hosts, in the plan's words; None for a system that is brought up."""
        return None


class PlanSystem(Protocol):
    """A system under test, as plans see it."""

    @property
    def name(self) -> str:
        """The value of `kind` in a plan."""

    @property
    def model(self) -> type[BaseSut]:
        """The system's parameters."""

    @property
    def on_given_hosts(self) -> bool:
        """Whether it stands on given hosts already, and is not brought up."""

    @property
    def carries_fleets(self) -> bool:
        """Whether the VPN clients of a fleet can connect to it."""

    def needs(self, parameters: Any, *, fleet: bool) -> list[Need]:
        """What the system needs of the machine; of a fleet, the clients are the agent's own."""

    def bring_up_seconds(self, parameters: Any) -> tuple[float, float]:
        """Estimate of the time to bring it up: fixed, and for each client."""


def system_of(sut: BaseSut) -> PlanSystem:
    """The system that these are the parameters of."""
    found: PlanSystem = SYSTEMS.get(sut.kind)
    return found


def plan_systems() -> list[PlanSystem]:
    """All systems, in the order in which plans list them."""
    return [SYSTEMS.get(name) for name in SYSTEMS.names]


AnySut = Annotated[BaseSut, OpenUnion(lambda: [system.model for system in plan_systems()])]
"""The parameters of a system of any kind, as a field of a plan."""
