"""The system `given`, on given hosts: measured as it is; Leadline neither starts nor configures it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator

from leadline.plan.sut import BaseSut, CpuAttribution
from leadline.sut.system import System

if TYPE_CHECKING:
    from leadline.sut.daemons import Daemons
    from leadline.sut.model import BringUp, Site

_LONGEST_LABEL = 100


def _one_line(text: str) -> str:
    if not text.strip() or not text.isprintable() or len(text) > _LONGEST_LABEL:
        raise ValueError(f"a label must be one line of at most {_LONGEST_LABEL} characters")
    return text.strip()


class GivenSut(BaseSut):
    """The system on given hosts: measured as it is; Leadline neither starts nor configures it."""

    kind: Literal["given"] = "given"
    label: Annotated[str, AfterValidator(_one_line)]
    """Name of the system, in your words: product, version, configuration. Every result contains it."""

    @property
    def given_label(self) -> str:
        """The label."""
        return self.label


class Given(System[GivenSut]):
    """A system that Leadline does not start, on hosts that it does not change."""

    name = "given"
    title = "the system on given hosts"
    model = GivenSut
    compared_with_route = False
    on_given_hosts = True

    def cpu_attribution(self, parameters: GivenSut) -> CpuAttribution:
        """Everything on the gateway's machine: the system's processes are unknown."""
        return CpuAttribution.MACHINE

    async def bring_up(self, parameters: GivenSut, site: Site, daemons: Daemons) -> BringUp:
        """Nothing to start; the label takes the place of the version."""
        from leadline.sut.model import BringUp

        return BringUp(parameters.label, [], dict(site.server_address), ())


SYSTEM = Given()
