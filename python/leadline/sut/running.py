"""A system under test in one trial: brought up, watched during the tests, taken down."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from leadline.errors import LeadlineError
from leadline.plan.gateway_metrics import GATEWAYS
from leadline.plan.sut import BaseSut
from leadline.registry import SYSTEMS
from leadline.sut.daemons import Daemons
from leadline.sut.model import BringUp, Site


class BroughtUpSystem(Protocol):
    """A system under test, as a trial uses it. `leadline.sut.system.System` documents the methods."""

    async def bring_up(self, parameters: Any, site: Site, daemons: Daemons) -> BringUp:
        """Start it, connect all clients, and verify by traffic."""

    async def read_counters(
        self, parameters: Any, site: Site, daemons: Daemons, before: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """What only its daemons count, by tier."""

    async def take_down(self, parameters: Any, site: Site) -> None:
        """Undo what neither ends with the processes nor disappears with the trial's hosts."""


class SystemUnderTest:
    """One system in one trial."""

    def __init__(self, parameters: BaseSut, site: Site) -> None:
        self._system: BroughtUpSystem = SYSTEMS.get(parameters.kind)
        self._parameters = parameters
        self._site = site
        self._daemons = Daemons(site)

    async def bring_up(self) -> BringUp:
        """Start it, connect all clients, and verify by traffic.

        Raises:
            MissingBinary: its program is missing here.
            SutFailed: it did not start, or no client could connect (`NoClientConnected`); with the end of its log.
            AgentLost: an agent is gone.
        """
        from leadline.sut.cpu_quotas import cpu_quotas

        up = await self._system.bring_up(self._parameters, self._site, self._daemons)
        on_gateways = {key: pid for key, pid in self._daemons.pids.items() if key[0] in GATEWAYS}
        return replace(up, cpu_quotas=await cpu_quotas(self._site.hosts, on_gateways))

    async def read_counters(self, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What only its daemons count, by tier, before a load or after it; empty if it has no such counters."""
        return await self._system.read_counters(self._parameters, self._site, self._daemons, before)

    async def failure(self) -> LeadlineError:
        """Wait until one of its processes ends unexpectedly or its host's agent is lost, and return the error. May
        wait forever."""
        return await self._daemons.failure()

    async def take_down(self) -> None:
        """Stop everything that runs, also after a failed bring-up, and leave each host as it was; ignores what is
        already gone.

        Raises:
            LabError: a given host could not be put back as it was.
        """
        try:
            await self._daemons.stop_all()
            await self._system.take_down(self._parameters, self._site)
        finally:
            # Every host is put back, also after the failure of another one.
            closed = await asyncio.gather(*(host.close() for host in self._site.hosts.values()), return_exceptions=True)
            failures = [failure for failure in closed if isinstance(failure, BaseException)]
            if failures:
                raise failures[0]
