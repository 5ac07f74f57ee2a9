"""Reaches the hosts that a plan gives by address: what starts an agent on each of them.

Owns what the hosts of a run share: connections, a bound on handshakes at once, the agent's copies.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

from leadline.agents.binary import AGENT_NAME, LOG_VARIABLE, agent_binary
from leadline.agents.deployment import Deployment, agents_by_architecture
from leadline.agents.launch import Launch, named
from leadline.agents.launchers.model import Launcher
from leadline.agents.launchers.processes import Exec
from leadline.agents.launchers.ray import RayCluster
from leadline.agents.launchers.ssh import SshConnections
from leadline.errors import AgentLost, LeadlineError, each_failure
from leadline.plan.host_address import HostAddress

MAX_HANDSHAKES = 8
"""Connections that are opened at once: sshd refuses some of more than ten that are not authenticated (sshd_config(5),
MaxStartups), of one jump host for instance."""


class ReachedHosts:
    """The hosts of a run. Always close it with `aclose`."""

    def __init__(self) -> None:
        self._ssh = SshConnections()
        self._deployment = Deployment()
        self._handshakes = asyncio.Semaphore(MAX_HANDSHAKES)
        self._launchers: dict[HostAddress, Launcher] = {}
        self._clusters: dict[str, RayCluster] = {}
        self._opening = asyncio.Lock()

    async def launches(
        self,
        hosts: Mapping[str, HostAddress],
        goes_on_without: Callable[[str, LeadlineError], bool] = lambda *_: False,
    ) -> dict[str, Launch]:
        """The launch of each host's agent, by the host's name; copies the agent to those that lack it. A host that
        cannot be reached is left out if `goes_on_without` says so of its error.

        Raises:
            MissingBinary: the agent (on this machine) or `ssh` (for another host) is not installed here.
            AgentLost: a host is out of reach, or takes no agent; the first one of several.
            InputError,
            AgentError: a Ray cluster does not exist, or gives too few nodes.
        """
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    name: group.create_task(self._launch_unless(name, address, goes_on_without))
                    for name, address in hosts.items()
                }
        except BaseExceptionGroup as failures:
            raise next(each_failure(failures)) from failures
        return {name: launch for name, task in tasks.items() if (launch := task.result()) is not None}

    async def aclose(self) -> None:
        """End the connections. May be called again."""
        await asyncio.gather(self._ssh.aclose(), *(cluster.close() for cluster in self._clusters.values()))
        self._launchers, self._clusters = {}, {}

    async def _launch_unless(
        self, name: str, address: HostAddress, goes_on_without: Callable[[str, LeadlineError], bool]
    ) -> Launch | None:
        try:
            return await self._launch(name, address)
        except AgentLost as error:
            if goes_on_without(name, error):
                return None
            raise

    async def _launch(self, name: str, address: HostAddress) -> Launch:
        if address.is_local:
            return Launch((str(agent_binary()),))
        if address.scheme == "ray":
            return await self._launch_on_node(name, address)
        async with self._handshakes:
            place = address.name or address.text
            return await self._deployment.launch(name, self._launcher(address), place)

    def _launcher(self, address: HostAddress) -> Launcher:
        known = self._launchers.get(address)
        if known is None:
            if address.scheme == "exec":
                known = Exec(address.command)
            else:
                known = self._ssh.reach(address.host, address.user, address.port, address.config)
            self._launchers[address] = known
        return known

    async def _launch_on_node(self, name: str, address: HostAddress) -> Launch:
        """A node of a Ray cluster, which has its agent by way of Ray."""
        cluster = await self._cluster(address)
        host = cluster.hosts[address.number]
        place = f"Ray node {host.address}"
        if (trouble := host.lost or host.refusals.get(AGENT_NAME)) is not None:
            raise AgentLost(named(name, place), trouble)
        filter_ = os.environ.get(LOG_VARIABLE)
        argv = (AGENT_NAME, *(("--log", filter_) if filter_ else ()))
        return Launch(argv, launcher=host, place=place, address=host.address)

    async def _cluster(self, address: HostAddress) -> RayCluster:
        """The cluster with as many nodes as the plan has, or more; opened once for a run, again if Ray has ended."""
        async with self._opening:
            cluster = self._clusters.get(address.text)
            if cluster is None or cluster.is_over or len(cluster.hosts) < address.hosts:
                if cluster is not None:
                    await cluster.close()
                head = address.text.removeprefix("ray://") or None
                self._clusters[address.text] = cluster = await RayCluster(head, address.hosts).__aenter__()
                await cluster.install(AGENT_NAME, agents_by_architecture())
            return cluster
