"""A system under test in one trial: brought up, watched while it is measured, taken down."""

from __future__ import annotations

from typing import Any, Protocol

from leadline.errors import LeadlineError
from leadline.plan.sut import BaseSut
from leadline.registry import SYSTEMS
from leadline.sut.daemons import Daemons
from leadline.sut.model import BringUp, Site


class BroughtUpSystem(Protocol):
    """A system under test, as a trial sees it. `leadline.sut.system.System` says what each method does."""

    async def bring_up(self, parameters: Any, site: Site, daemons: Daemons) -> BringUp:
        """Start it, connect the clients together, and see traffic through it."""

    async def take_down(self, parameters: Any, site: Site) -> None:
        """Undo what neither ends with the processes nor goes with the trial's hosts."""


class SystemUnderTest:
    """One system in one trial."""

    def __init__(self, parameters: BaseSut, site: Site) -> None:
        self._system: BroughtUpSystem = SYSTEMS.get(parameters.kind)
        self._parameters = parameters
        self._site = site
        self._daemons = Daemons(site)

    async def bring_up(self) -> BringUp:
        """Start it, connect the clients together, and see traffic through it.

        Raises:
            MissingBinary: its program is not here.
            SutFailed: it did not come up, or no client could connect (`NoClientConnected`); with the end of its log.
            AgentLost: an agent went away meanwhile.
        """
        return await self._system.bring_up(self._parameters, self._site, self._daemons)

    async def failure(self) -> LeadlineError:
        """Wait until one of its processes ends unasked, or its host's agent is lost; then say so. May wait for ever."""
        return await self._daemons.failure()

    async def take_down(self) -> None:
        """Stop what runs, also after a bring-up that failed; never raises for what is gone already."""
        await self._daemons.stop_all()
        await self._system.take_down(self._parameters, self._site)
