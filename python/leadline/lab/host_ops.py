"""The operations on a host of a lab: files and commands as on this machine, the network through the lab."""

from __future__ import annotations

from leadline.agents.agent import Agent
from leadline.agents.local_ops import LocalOps
from leadline.lab.hosts import Lab


class LabHostOps(LocalOps):
    """A lab's host as `leadline.agents.host_ops.HostOps`. A change to its network takes the kernel well under 1
    ms."""

    def __init__(self, lab: Lab, host: str, agent: Agent, trial: str) -> None:
        """`trial` is the label of the started processes."""
        super().__init__(agent, trial, lab.launch_prefix(host))
        self._lab = lab
        self._host = host

    async def add_route(self, destination: str, *, via: str | None = None, dev: str | None = None) -> None:
        """See `HostOps`."""
        self._lab.add_route(self._host, destination, via=via, dev=dev)

    async def remove_route(self, destination: str) -> None:
        """See `HostOps`."""
        self._lab.remove_route(self._host, destination)

    async def set_sysctl(self, name: str, value: int | str) -> None:
        """See `HostOps`."""
        self._lab.set_sysctl(self._host, name, value)
