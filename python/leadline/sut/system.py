"""What a system under test is made of, with what most systems have in common as the default.

A system gives its name, its parameters and how it is brought up, and overrides what is different. It keeps nothing:
what runs in a trial is `leadline.sut.running.SystemUnderTest`. Modules that act on hosts are imported where they are
used: a plan is read without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from leadline.plan.need import Need
from leadline.plan.sut import BaseSut

if TYPE_CHECKING:
    from leadline.plan.sut import PlanSystem
    from leadline.sut.daemons import Daemons
    from leadline.sut.model import BringUp, Site
    from leadline.sut.running import BroughtUpSystem

    def _in_other_modules(system: System[BaseSut]) -> tuple[PlanSystem, BroughtUpSystem]:
        """mypy compares a system with what each module needs of one."""
        return system, system


Parameters = TypeVar("Parameters", bound=BaseSut)


class System(Generic[Parameters]):
    """One system under test."""

    name: str
    """The value of `kind` in a plan."""
    model: type[Parameters]
    """Its parameters."""
    on_given_hosts: bool = False
    """Whether it stands on given hosts already, and is not brought up."""
    carries_fleets: bool = False
    """Whether the VPN clients of a fleet can connect to it."""

    def needs(self, parameters: Parameters, *, fleet: bool) -> list[Need]:
        """What it needs of the machine beside what every trial needs; of a fleet, the clients are the agent's own."""
        return []

    def bring_up_seconds(self, parameters: Parameters) -> tuple[float, float]:
        """Estimate of the time to bring it up: fixed, and for each client."""
        return 0.0, 0.0

    async def bring_up(self, parameters: Parameters, site: Site, daemons: Daemons) -> BringUp:
        """Start it, connect the clients together, and see traffic through it.

        What is started through `daemons` is watched, and stopped at the end.

        Raises:
            MissingBinary: its program is not here.
            SutFailed: it did not come up, or no client could connect (`NoClientConnected`); with the end of its log.
            AgentLost: an agent went away meanwhile.
        """
        raise NotImplementedError

    async def take_down(self, parameters: Parameters, site: Site) -> None:
        """Undo what neither ends with the processes nor goes with the trial's hosts; never raises for what is gone."""


def tun_device(parameters: BaseSut) -> Need:
    """What a tunnel over a TUN device needs."""
    return Need(
        "device", "/dev/net/tun", f"{parameters.kind} carries its tunnel over a TUN device", parameters.optional
    )
