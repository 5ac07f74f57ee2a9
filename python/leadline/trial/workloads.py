"""A plan's test as what an agent runs. Pure; the one place that knows both vocabularies."""

from __future__ import annotations

from base64 import b64encode
from typing import Literal

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
from leadline.plan import HttpTest, RrTest, TcpTest, UdpTest
from leadline.plan.http_parts import HttpEntry, HttpTcp, HttpTls

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


ServedTest = TcpTest | UdpTest | RrTest | HttpTest
"""Tests between a client and a server; a fleet's clients have a gateway, and `tunnel_workload` makes theirs."""


def workload(
    test: ServedTest, host: str, *, port: int = SESSION_PORT, key: str | None = None
) -> TcpWorkload | UdpWorkload | RrWorkload | HttpWorkload:
    """What one client does in a test against the server at `host` (an address or a name), which may ask for a key."""
    version: Literal["v4", "v6"] = "v6" if test.ip == 6 else "v4"
    target = Target(host=host, port=port, ip_version=version, key=key)
    match test:
        case TcpTest():
            return TcpWorkload(
                target=target,
                flows=test.flows,
                threads=test.threads,
                direction=test.direction,
                duration_ms=test.duration_ms,
                warmup_ms=test.warmup_ms,
                block_bytes=test.block_bytes,
                rate_bps=None if test.rate_bps is None else round(test.rate_bps / test.flows),
                congestion=test.congestion,
                interval_ms=test.interval_ms,
            )
        case UdpTest():
            return UdpWorkload(
                target=target,
                flows=test.flows,
                threads=test.threads,
                direction=test.direction,
                duration_ms=test.duration_ms,
                number=test.number,
                warmup_ms=test.warmup_ms,
                datagram_bytes=test.packet_bytes,
                rate_pps=None if test.rate_bps is None else test.rate_bps / test.flows / 8 / test.packet_bytes,
                interval_ms=test.interval_ms,
            )
        case RrTest():
            return RrWorkload(
                target=target,
                protocol=test.protocol,
                flows=test.flows,
                threads=test.threads,
                duration_ms=test.duration_ms,
                number=test.number,
                warmup_ms=test.warmup_ms,
                request_bytes=test.request_bytes,
                response_bytes=test.response_bytes,
                timeout_ms=test.timeout_ms,
                interval_ms=test.interval_ms,
            )
        case HttpTest():
            return http_workload(test, host, HTTPS_PORT if test.scheme == "https" else HTTP_PORT, version)


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
