"""Converts a plan's test to an agent's workload, through its kind. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from leadline.contract.models import (
    HttpAnswer,
    HttpWorkload,
    Iperf3Login,
    Iperf3Options,
    PacketGeneratorWorkload,
    PacketReceiverWorkload,
    PeerLimits,
    RrWorkload,
    ScenarioWorkload,
    ServeWorkload,
    Target,
    TcpWorkload,
    TunnelWorkload,
    UdpWorkload,
)
from leadline.plan import BaseTest
from leadline.registry import KINDS
from leadline.trial.live_metrics import LiveKind

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
"""The responder's default response."""

OWN_CLIENTS = PeerLimits(sessions=1024, flows=1_000_000, connections=65_536, idle_ms=30_000)
"""The limits of a run's own server per client: the maximum, since all clients may have one address."""

FORGOTTEN_S = 6.0
"""Pause between fleets. OpenVPN 2.6 keeps a client that leaves for 5 s: its address in the pool, its memory, and its
source port, from which it rejects another client (docs/decisions/0015)."""

TaskWorkload = (
    TcpWorkload
    | UdpWorkload
    | RrWorkload
    | HttpWorkload
    | TunnelWorkload
    | ScenarioWorkload
    | PacketGeneratorWorkload
    | PacketReceiverWorkload
)


@dataclass(frozen=True, slots=True)
class PhasedWorkload:
    """Tasks of one agent in phases: those of a phase begin at one instant, when the phase before has ended."""

    kind: str
    phases: tuple[dict[str, TaskWorkload], ...]
    """The tasks of each phase by their names."""
    duration_ms: int


LoadWorkload = TaskWorkload | PhasedWorkload


def serve_everything(bind: list[str], longest_ms: int, *, https: bool = False, key: str | None = None) -> ServeWorkload:
    """The server of a run: answers every test, for the longest possible duration; with TLS if a test needs it. With a
    key (base64) its sessions require that key.
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
    """The address of a run's or a command's server, as a client reaches it."""

    host: str
    """Address or name."""
    port: int = SESSION_PORT
    """Port of the control session."""
    key: str | None = field(default=None, repr=False)
    """Key in base64; None if the server requires none."""

    bind: str | None = None
    """The client's local address; None for the host's choice."""
    family: Literal["v4", "v6", "any"] | None = None
    """Address family for resolving the name: `any` takes the first address; None takes that of the test."""
    http_port: int = HTTP_PORT
    https_port: int = HTTPS_PORT
    scheme: Literal["http", "https"] | None = None
    """How it speaks at its only port of HTTP; None: it has one of each."""
    login: Iperf3Login | None = field(default=None, repr=False)
    """Login at an iperf3 server; None without one."""
    iperf3: Iperf3Options | None = None
    """What an iperf3 server is asked for beyond the test; None for nothing."""

    def http_port_of(self, *, tls: bool) -> int:
        """The port of HTTP, with or without TLS."""
        if self.scheme is not None:
            return self.http_port
        return self.https_port if tls else self.http_port

    def target(self, ip: int) -> Target:
        """The server as the target of a load over this IP version."""
        version = ip_version(ip) if self.family is None else None if self.family == "any" else self.family
        return Target(
            host=self.host,
            port=self.port,
            ip_version=version,
            key=self.key,
            iperf3_login=self.login,
            iperf3_options=self.iperf3,
        )


def ip_version(ip: int) -> Literal["v4", "v6"]:
    """A plan's IP version in an agent's terms."""
    return "v6" if ip == 6 else "v4"


@dataclass(frozen=True, slots=True)
class Receiver:
    """What receives a load where it arrives, or sends it back."""

    work: LoadWorkload
    drain_ms: int
    """How long it stays after the last generator has ended."""
    is_at_client: bool = False
    """Whether it is on the generator's host: what it receives has been sent back."""
    sends_back: bool = False


class LoadKind(LiveKind, Protocol):
    """The attributes of a kind of test that this package uses."""

    @property
    def sends_frames(self) -> bool:
        """Whether its clients send raw frames, which a lab's links have to take."""

    def workload(self, test: Any, server: Server) -> LoadWorkload:
        """The workload of one client in a test against a server."""

    def receivers(self, test: Any, server: Server) -> Sequence[Receiver]:
        """What receives the load or sends it back; empty if the run's own server does."""

    def fleet_workload(self, test: Any, access: FleetAccess, clients: int, server: str) -> TunnelWorkload:
        """The workload of a fleet of this number of clients; its traffic goes to the run's server."""

    def marked(self, workload: Any, number: int) -> Any:
        """The workload with this number of its load, by which its packets differ from those of others."""

    def aligned(self, workload: Any, ahead_ns: int) -> Any:
        """A receiver's workload, given by how much the generator's clock is ahead of its host's, ns."""

    def preparation_s(self, workload: Any) -> float:
        """The time beyond the usual one that an agent may take until it is ready."""

    def describe_load(self, workload: Any) -> dict[str, Any]:
        """What the journal keeps of a load beside its test."""

    def longest_ms(self, workload: Any) -> int:
        """The maximum length of a load."""

    def advice(self, code: str) -> str | None:
        """What a user can do about a failure of this name; None if the message says it all."""


def kind_of(test: BaseTest | LoadWorkload) -> LoadKind:
    """The kind of a plan's test, or of an agent's workload."""
    found: LoadKind = KINDS.get(test.kind)
    return found


def workload(test: BaseTest, server: Server) -> LoadWorkload:
    """The workload of one client in a test against a server.

    Raises:
        LeadlineError: a single client cannot run it.
    """
    return kind_of(test).workload(test, server)


def fleet_workload(test: BaseTest, access: FleetAccess, clients: int, server: str) -> TunnelWorkload:
    """The workload of a fleet in a test; its traffic goes to the run's server.

    Raises:
        LeadlineError: a fleet cannot run this kind of test; no plan contains one.
    """
    return kind_of(test).fleet_workload(test, access, clients, server)
