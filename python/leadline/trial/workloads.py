"""A plan's test as what an agent runs, through its kind. Pure."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from leadline.contract.models import (
    Cpu,
    Header,
    HttpAnswer,
    HttpRequest,
    HttpRoute,
    HttpScript,
    HttpTimeouts,
    HttpWorkload,
    PeerLimits,
    RateStage,
    Resolution,
    RrWorkload,
    ServeWorkload,
    SocketOptions,
    Target,
    TcpWorkload,
    TlsIdentity,
    TlsSpec,
    TunnelWorkload,
    UdpWorkload,
)
from leadline.plan import BaseTest, HttpTest
from leadline.plan.http_parts import HttpEntry, HttpTcp, HttpTls
from leadline.registry import KINDS

if TYPE_CHECKING:
    from leadline.sut import FleetAccess

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


def http_workload(test: HttpTest, host: str, port: int | None, ip_version: Literal["v4", "v6"] | None) -> HttpWorkload:
    """HTTP load on a server: a name or an address, and a port, the scheme's own where None."""
    authority = f"[{host}]" if ":" in host else host
    origin = f"{test.scheme}://{authority}" + ("" if port is None else f":{port}")
    headers = [*_authorization(test), *(Header(name=header.name, value=header.text) for header in test.headers)]
    return HttpWorkload(
        requests=[_request(entry, test.method, origin, headers) for entry in test.entries],
        script=_script(test),
        ip_version=ip_version,
        connections=test.connections,
        threads=test.threads,
        cpus=[Cpu(cpu) for cpu in test.cpus],
        duration_ms=test.duration_ms,
        number=test.number,
        warmup_ms=test.warmup_ms,
        rate=[RateStage(**stage.model_dump()) for stage in test.stages],
        requests_per_connection=test.requests_per_connection if test.keep_alive else 1,
        redirects=test.redirects,
        timeouts=HttpTimeouts(connect_ms=test.connect_timeout_ms, response_ms=test.timeout_ms),
        route=HttpRoute(
            bind=list(test.bind),
            resolve=[Resolution(**name.model_dump()) for name in test.resolve],
            dns=test.dns,
            unix_socket=test.unix_socket,
            proxy=None if test.proxy is None else test.proxy.value,
        ),
        socket=SocketOptions(**(test.tcp or HttpTcp()).model_dump()),
        tls=_tls(test.tls or HttpTls()) if test.scheme == "https" else None,
        interval_ms=test.interval_ms,
    )


def _request(entry: HttpEntry, method: str, origin: str, headers: list[Header]) -> HttpRequest:
    return HttpRequest(
        url=origin + entry.path,
        method=entry.method or method,
        headers=headers,
        body_base64=None if entry.body is None else b64encode(entry.body.content).decode(),
        weight=entry.weight,
    )


def _authorization(test: HttpTest) -> list[Header]:
    if test.basic is not None:
        # RFC 7617, 2.1: UTF-8 is the one charset that can be named.
        return [Header(name="Authorization", value=f"Basic {b64encode(test.basic.value.encode()).decode()}")]
    if test.bearer is not None:
        return [Header(name="Authorization", value=f"Bearer {test.bearer.value}")]
    return []


def _script(test: HttpTest) -> HttpScript | None:
    if test.script is None:
        return None
    return HttpScript(name=test.script.name, source=test.script.text(), args=list(test.script_args))


def _tls(tls: HttpTls) -> TlsSpec:
    oldest, _, newest = tls.versions.partition("-")
    identity = None
    if tls.cert is not None and tls.key is not None:
        identity = TlsIdentity(certificate_pem=tls.cert.text(), key_pem=tls.key.text())
    return TlsSpec(
        verify=tls.verify,
        ca_pem=None if tls.ca is None else tls.ca.text(),
        identity=identity,
        oldest=_VERSIONS[oldest],
        newest=_VERSIONS[newest or oldest],
        cipher_suites=list(tls.ciphers),
        alpn=list(tls.alpn),
        server_name=tls.server_name,
        resumption=tls.resume,
        early_data=tls.early_data,
    )


_VERSIONS: dict[str, Literal["1.2", "1.3"]] = {"1.2": "1.2", "1.3": "1.3"}
