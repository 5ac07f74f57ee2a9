"""What every system under test is given, and what it says when it is up. Brings nothing up itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from leadline.agents import Agent
from leadline.agents.host_ops import HostOps
from leadline.dataset.private_files import private_folder
from leadline.sut.addressing import Addressing

Connection = Literal["connected", "partial", "failed"]


@dataclass(frozen=True, slots=True)
class Site:
    """The hosts of one trial and where its files go."""

    hosts: Mapping[str, HostOps]
    """Each host by name: what can be done on it."""
    agents: Mapping[str, Agent]
    """Each host's agent, which sends the traffic that proves a client connected."""
    addressing: Addressing
    """Where a tunnel lies between the hosts."""
    folder: Path
    """For keys and configurations, mode 700."""
    label: str
    """The trial, as in "c01/1"."""
    clients: tuple[str, ...]
    """The hosts that will send the load."""
    serve_port: int
    """Session port of the `serve` task on the server host."""
    server_address: Mapping[int, str]
    """The server's address by IP version (4, 6): where the load goes, and the probe before it."""
    logs: Path | None = None
    """Folder for the daemons' logs; `folder` where None."""
    fleet: int | None = None
    """VPN clients that the one client host is to carry as machines; None where each client host is one."""

    @property
    def setup(self) -> str:
        """The label of the processes' own trial."""
        return setup_label(self.label)

    def files(self, kind: str) -> Path:
        """This trial's folder for the keys and configurations of a system, made with mode 700."""
        return private_folder(self.folder / self._file_label / kind)

    def log_file(self, name: str, host: str) -> Path:
        """Where a process's output goes: one file for each trial, process and host."""
        folder = self.logs or self.folder
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self._file_label}-{name}-{host}.log"

    @property
    def _file_label(self) -> str:
        return self.label.replace("/", "-")


def setup_label(trial: str) -> str:
    """The label of what a trial has running besides its tests."""
    return f"{trial}/setup"


@dataclass(frozen=True, slots=True)
class ClientState:
    """How far one client came."""

    host: str
    """The host that sends the load; behind a site-to-site tunnel it is not the one that holds the tunnel."""
    state: Connection
    time_s: float | None
    """From its process's start until the process called itself connected, by the host's clock."""
    missing: tuple[str, ...] = ()
    """`ipv4 address`, `ipv6 address`, `unique address`, `route 10.82.0.0/24` ..., `traffic`."""
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class FleetAccess:
    """What a fleet needs to connect; none of it is written anywhere but into the agent that runs it."""

    profile: str = field(repr=False)
    """An `.ovpn` file's text, whole."""
    authority_pem: str = field(repr=False)
    authority_key_pem: str = field(repr=False)
    pools: tuple[str, ...] = ()
    """Networks that its addresses come from."""
    routes: tuple[str, ...] = ()
    """Networks that are pushed to it."""


@dataclass(frozen=True, slots=True)
class BringUp:
    """A system that is up: traffic has gone through it from every client that is `connected`."""

    version: str
    clients: list[ClientState]
    target: dict[int, str]
    """The server's address by IP version, as the clients reach it."""
    processes: tuple[str, ...]
    """The names under which observations show the system's processes."""
    fleet: FleetAccess | None = None
    """How a fleet connects, where the site has one."""
