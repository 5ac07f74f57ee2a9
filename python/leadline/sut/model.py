"""The input of a system under test, and its description when it is up. Starts nothing itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from leadline.agents import Agent
from leadline.agents.host_ops import HostOps
from leadline.dataset.private_files import private_folder
from leadline.plan.sut import CpuAttribution
from leadline.sut.addressing import Addressing

Connection = Literal["connected", "partial", "failed"]


@dataclass(frozen=True, slots=True)
class Site:
    """The hosts of one trial, and the folders for its files."""

    hosts: Mapping[str, HostOps]
    """The operations on each host, by name."""
    agents: Mapping[str, Agent]
    """Each host's agent, which sends the traffic that verifies a client's connection."""
    addressing: Addressing
    """The addresses of the tunnel between the hosts."""
    folder: Path
    """Folder for keys and configurations, mode 700; it exists only while the trial does."""
    label: str
    """The trial, as in "c01/1"."""
    clients: tuple[str, ...]
    """The hosts that generate load."""
    serve_port: int
    """Session port of the `serve` task on the server host."""
    server_address: Mapping[int, str]
    """The server's address by IP version (4, 6), for the load and for the probe before it."""
    key: str | None = field(default=None, repr=False)
    """The key of the server's sessions (base64); None without one."""
    logs: Path | None = None
    """Folder for the daemons' logs; `folder` where None."""
    fleet: int | None = None
    """Number of VPN clients that the single client host runs as a fleet; None if each client host is one client."""
    shared_files: bool = True
    """Whether the hosts see the controller's files, as a lab's hosts do; otherwise `folder` is one on each host."""

    @property
    def setup(self) -> str:
        """The label of the processes in observations."""
        return setup_label(self.label)

    def files(self, kind: str) -> Path:
        """The folder of this trial for the keys and configurations of a system, with mode 700. Hosts that do not share
        the controller's files create it themselves."""
        folder = self.folder / self._file_label / kind
        return private_folder(folder) if self.shared_files else folder

    @contextmanager
    def own_files(self, kind: str) -> Iterator[Path]:
        """A folder of the controller, with mode 700, for keys that it makes: that of `files` where the hosts see it,
        otherwise one that is removed at the end of the block, by when the hosts must have got them."""
        if self.shared_files:
            yield self.files(kind)
            return
        with TemporaryDirectory(prefix="leadline-keys-") as folder:
            yield Path(folder)

    def log_file(self, name: str, host: str) -> Path:
        """The path of a process's output: one file for each trial, process and host."""
        folder = self.logs or self.folder
        if self.shared_files:
            folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self._file_label}-{name}-{host}.log"

    @property
    def _file_label(self) -> str:
        return self.label.replace("/", "-")


def setup_label(trial: str) -> str:
    """The label of a trial's processes other than its tests."""
    return f"{trial}/setup"


@dataclass(frozen=True, slots=True)
class ClientState:
    """The state of one client."""

    host: str
    """The host that generates load; with a site-to-site tunnel, it is not the host at the tunnel's end."""
    state: Connection
    time_s: float | None
    """Time from the start of its process until it reported itself connected, by the host's clock."""
    missing: tuple[str, ...] = ()
    """`ipv4 address`, `ipv6 address`, `unique address`, `route 10.82.0.0/24` ..., `traffic`."""
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class FleetAccess:
    """What a fleet needs to connect. It is passed only to the agent that runs the fleet."""

    profile: str = field(default="", repr=False)
    """Text of an `.ovpn` file, with all files inline; empty for another protocol."""
    authority_pem: str = field(default="", repr=False)
    authority_key_pem: str = field(default="", repr=False)
    client_files: tuple[str, ...] = field(default=(), repr=False)
    """Text of each client's WireGuard file."""
    connection: str = field(default="", repr=False)
    """Text of a swanctl.conf in which `{n}` is each client's number; empty for another protocol."""
    connection_files: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The certificates beside it, by their paths."""
    echo: str | None = None
    """The address in the tunnel that answers, where clients do not learn it."""
    pools: tuple[str, ...] = ()
    """Networks of its addresses."""
    routes: tuple[str, ...] = ()
    """Networks that are pushed to it."""


@dataclass(frozen=True, slots=True)
class ServedTier:
    """One tier of a stack that is up."""

    name: str
    kind: str
    host: str
    processes: tuple[str, ...]
    """The names under which observations show its processes."""
    cpus: tuple[int, ...]
    """The CPUs that these may use; empty: all of the host."""
    threads: int | None
    """Threads that do its work, at most; None: as many as its processes have."""


@dataclass(frozen=True, slots=True)
class BringUp:
    """A system that is up: every client that is `connected` has sent traffic through it."""

    version: str
    clients: list[ClientState]
    target: dict[int, str]
    """The server's address by IP version, as the clients reach it."""
    processes: tuple[str, ...]
    """The names under which observations show the system's processes."""
    fleet: FleetAccess | None = None
    """How a fleet connects; None without a fleet."""
    name: str | None = None
    """What results call it where its kind alone would mislead: with the data plane that carries its packets."""
    title: str | None = None
    """The same in sentences."""
    cpu_attribution: CpuAttribution | None = None
    """Which CPU time on a gateway is the system's, where only the bring-up tells; None: what the system says."""
    cpu_quotas: dict[str, dict[str, float]] = field(default_factory=dict)
    """CPUs that processes on gateways may use by their control groups, by host and name, where they have a quota."""
    port: int | None = None
    """The port at which it answers HTTP itself; None: requests go to the run's own server."""
    scheme: str = "http"
    """How clients speak to that port: http or https."""
    tiers: tuple[ServedTier, ...] = ()
    """The tiers of a stack."""
