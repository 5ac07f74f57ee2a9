"""A plan's test as what an agent runs, through its kind. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from leadline.contract.models import (
    HttpAnswer,
    HttpWorkload,
    PeerLimits,
    RrWorkload,
    ServeWorkload,
    Target,
    TcpWorkload,
    TunnelWorkload,
    UdpWorkload,
)
from leadline.plan import BaseTest
from leadline.registry import KINDS

if TYPE_CHECKING:
    from leadline.sut.model import FleetAccess

SESSION_PORT = 5201
HTTP_PORT = 8080
HTTPS_PORT = 8443

_MOST_FLOWS = 1024

PLAIN_ANSWER = HttpAnswer(
    status=200,
    body_bytes=12,
    chunked=False,
    delay_us=0,
    delay_shape="constant",
    error_ratio=0.0,
    stall_ms=0,
)
"""What a responder says that nobody told anything else."""

OWN_CLIENTS = PeerLimits(sessions=1024, flows=1_000_000, connections=65_536, idle_ms=30_000)
"""What a server of ours leaves to each of our own clients, who may all come from one address: all that there is."""

FORGOTTEN_S = 6.0
"""Pause between fleets. OpenVPN 2.6 keeps a client that leaves for 5 s: its address of the pool, which no other client
gets meanwhile, its memory, and its source port, from which another client is rejected."""

LoadWorkload = TcpWorkload | UdpWorkload | RrWorkload | HttpWorkload | TunnelWorkload


def serve_everything(bind: list[str], longest_ms: int, *, https: bool = False, key: str | None = None) -> ServeWorkload:
    """The server of a run: answers every test, for as long as the longest may take; over TLS where one asks for it.
    With a key (base64) its sessions are for those who know it.
    """
    return ServeWorkload(
        bind=bind,
        port=SESSION_PORT,
        http_port=HTTP_PORT,
        https_port=HTTPS_PORT if https else None,
        answer=PLAIN_ANSWER,
        longest_ms=longest_ms,
        most_flows=_MOST_FLOWS,
        key=key,
        per_peer=OWN_CLIENTS,
    )


@dataclass(frozen=True, slots=True)
class Server:
    """Where the server of a run or of a command is, as a client reaches it."""

    host: str
    """An address or a name."""
    port: int = SESSION_PORT
    """Of the control session."""
    key: str | None = field(default=None, repr=False)
    """In base64, where the server asks for one."""

    bind: str | None = None
    """The client's own address; the host's choice where None."""
    family: Literal["v4", "v6", "any"] | None = None
    """How the name is resolved: to the first address of whichever version with `any`; as the test says where None."""

    def target(self, ip: int) -> Target:
        """The server for a load over this version of IP."""
        version = ip_version(ip) if self.family is None else None if self.family == "any" else self.family
        return Target(host=self.host, port=self.port, ip_version=version, key=self.key)


def ip_version(ip: int) -> Literal["v4", "v6"]:
    """A plan's version of IP in an agent's words."""
    return "v6" if ip == 6 else "v4"


class LoadKind(Protocol):
    """What this package needs of a kind of test."""

    def workload(self, test: Any, server: Server) -> LoadWorkload:
        """What one client does in a test against a server."""

    def fleet_workload(self, test: Any, access: FleetAccess, clients: int, server: str) -> TunnelWorkload:
        """What a fleet of this many clients does in a test; its load goes to the run's server."""

    def preparation_s(self, workload: Any) -> float:
        """How long an agent may take beyond the usual time until it is ready."""

    def longest_ms(self, workload: Any) -> int:
        """How long a load may take in all."""


def kind_of(test: BaseTest | LoadWorkload) -> LoadKind:
    """The kind of a plan's test, or of an agent's workload."""
    found: LoadKind = KINDS.get(test.kind)
    return found


def workload(test: BaseTest, server: Server) -> LoadWorkload:
    """What one client does in a test against a server.

    Raises:
        LeadlineError: a client by itself cannot do it.
    """
    return kind_of(test).workload(test, server)


def fleet_workload(test: BaseTest, access: FleetAccess, clients: int, server: str) -> TunnelWorkload:
    """What a fleet does in a test; its load goes to the run's server.

    Raises:
        LeadlineError: a kind of test that a fleet cannot do, which no plan holds.
    """
    return kind_of(test).fleet_workload(test, access, clients, server)
