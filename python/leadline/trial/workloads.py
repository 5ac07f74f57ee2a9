"""A plan's test as what an agent runs. Pure; the one place that knows both vocabularies."""

from __future__ import annotations

from typing import Literal

from leadline.contract.models import (
    Header,
    HttpWorkload,
    RrWorkload,
    ServeWorkload,
    Target,
    TcpWorkload,
    UdpWorkload,
)
from leadline.plan import HttpTest, RrTest, TcpTest, Test, UdpTest

SESSION_PORT = 5201
HTTP_PORT = 8080

_MOST_FLOWS = 1024

LoadWorkload = TcpWorkload | UdpWorkload | RrWorkload | HttpWorkload


def serve_everything(bind: list[str], longest_ms: int) -> ServeWorkload:
    """The server of a run: answers every test, for as long as the longest may take."""
    return ServeWorkload(
        bind=bind, port=SESSION_PORT, http_port=HTTP_PORT, longest_ms=longest_ms, most_flows=_MOST_FLOWS
    )


def workload(test: Test, host: str, *, port: int = SESSION_PORT, http_port: int = HTTP_PORT) -> LoadWorkload:
    """What one client does in a test against the server at `host` (an address or a name)."""
    version: Literal["v4", "v6"] = "v6" if test.ip == 6 else "v4"
    target = Target(host=host, port=port, ip_version=version)
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
            return _http(test, host, http_port, version)


def _http(test: HttpTest, host: str, http_port: int, version: Literal["v4", "v6"]) -> HttpWorkload:
    authority = f"[{host}]" if ":" in host else host
    return HttpWorkload(
        url=f"http://{authority}:{http_port}{test.request_target}",
        ip_version=version,
        connections=test.connections,
        threads=test.threads,
        duration_ms=test.duration_ms,
        number=test.number,
        warmup_ms=test.warmup_ms,
        rate_per_s=test.rate_per_s,
        method=test.method,
        headers=[Header(name=header.name, value=header.value) for header in test.headers],
        body=test.body,
        timeout_ms=test.timeout_ms,
        interval_ms=test.interval_ms,
    )
