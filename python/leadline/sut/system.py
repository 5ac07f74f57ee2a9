"""The base class of a system under test, with the defaults that most systems share.

A system gives its name, its parameters and its bring-up, and overrides what differs. It is stateless:
`leadline.sut.running.SystemUnderTest` has the state of a trial. Modules that act on hosts are imported where they are
used: reading a plan does not need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from leadline.plan.need import TUN, Need
from leadline.plan.sut import BaseSut, CpuAttribution

if TYPE_CHECKING:
    from leadline.plan.base_test import BaseTest, Conflict
    from leadline.plan.source import Node
    from leadline.plan.sut import PlanSystem
    from leadline.sut.daemons import Daemons
    from leadline.sut.model import BringUp, Site
    from leadline.sut.running import BroughtUpSystem

    def _in_other_modules(system: System[BaseSut]) -> tuple[PlanSystem, BroughtUpSystem]:
        """Checks, by mypy, a system against the protocol of each module that uses one."""
        return system, system


Parameters = TypeVar("Parameters", bound=BaseSut)


class System(Generic[Parameters]):
    """One system under test."""

    name: str
    """The value of `kind` in a plan."""
    title: str = ""
    """What sentences call it, "the plain route"; empty if that is its name."""
    model: type[Parameters]
    """Its parameters."""
    on_given_hosts: bool = False
    """Whether it already runs on given hosts, so that Leadline does not start it."""
    comes_up_on_given_hosts: bool = False
    """Whether Leadline can bring it up on given hosts as it does in a lab."""
    carries_fleets: bool = False
    """Whether the VPN clients of a fleet can connect to it."""
    connects_hosts: bool = False
    """Whether each client host has one VPN client of it."""

    answers_itself: bool = False
    """Whether it answers tests itself, on the hosts of remote-access, instead of carrying them to the run's server."""

    compared_with_route: bool = True
    """Whether a ladder is measured through a plain route too, to show what the system costs."""

    def cpu_attribution(self, parameters: Parameters) -> CpuAttribution:
        """Which CPU time on a gateway is the system's: that of the processes that it names when it is up."""
        return CpuAttribution.PROCESS

    def packets(self, parameters: Parameters, link_mtu_bytes: int) -> tuple[int, int] | None:
        """The largest IP packet that fits through it, and the bytes that it adds to each; None if unknown."""
        return None

    def fleet_conflicts(self, parameters: Parameters) -> Iterator[tuple[str, str, str | None]]:
        """Parameters with which no fleet can connect: the key, the mistake, and the advice."""
        yield from ()

    def test_conflicts(self, parameters: Parameters, test: BaseTest) -> Iterator[Conflict]:
        """Keys of a test that cannot be measured with it: the key, the mistake, and the advice."""
        yield from ()

    def axis_paths(self, written: Node) -> list[str]:
        """Paths below `sut` that an axis may name beside the keys of the model; `written` is `sut` in the plan."""
        return []

    def needs(self, parameters: Parameters, *, fleet: bool) -> list[Need]:
        """What it needs on the machine, in addition to the needs of every trial. With a fleet, the agent runs the
        clients."""
        return []

    def bring_up_seconds(self, parameters: Parameters) -> tuple[float, float]:
        """Estimated bring-up time: a fixed part, and a part per client."""
        return 0.0, 0.0

    async def bring_up(self, parameters: Parameters, site: Site, daemons: Daemons) -> BringUp:
        """Start it, connect all clients, and verify by traffic.

        Processes that are started through `daemons` are watched, and stopped at the end.

        Raises:
            MissingBinary: its program is missing here.
            SutFailed: it did not start, or no client could connect (`NoClientConnected`); with the end of its log.
            AgentLost: an agent is gone.
        """
        raise NotImplementedError

    async def read_counters(
        self, parameters: Parameters, site: Site, daemons: Daemons, before: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """What only its daemons count, by tier, before a load (`before` is None) and after it; empty if it has no such
        counters."""
        return {}

    async def take_down(self, parameters: Parameters, site: Site) -> None:
        """Undo what neither ends with the processes nor disappears with the trial's hosts; ignores what is already
        gone."""


def tun_device(parameters: BaseSut) -> Need:
    """The need of a tunnel over a TUN device."""
    return Need("device", TUN, f"{parameters.kind} uses a TUN device for its tunnel", parameters.optional)
