"""A plan's test as what an agent runs. Pure; the one place that knows both vocabularies."""

from __future__ import annotations

from base64 import b64encode
from typing import Literal

from leadline.contract.models import (
    Header,
    HttpAnswer,
    HttpRequest,
    HttpRoute,
    HttpTimeouts,
    HttpWorkload,
    RateStage,
    RrWorkload,
    ServeWorkload,
    SocketOptions,
    Target,
    TcpWorkload,
    UdpWorkload,
)
from leadline.plan import HttpTest, RrTest, TcpTest, Test, UdpTest

SESSION_PORT = 5201
HTTP_PORT = 8080

_MOST_FLOWS = 1024
_CONNECT_MS = 5000

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

LoadWorkload = TcpWorkload | UdpWorkload | RrWorkload | HttpWorkload


def serve_everything(bind: list[str], longest_ms: int) -> ServeWorkload:
    """The server of a run: answers every test, for as long as the longest may take."""
    return ServeWorkload(
        bind=bind,
        port=SESSION_PORT,
        http_port=HTTP_PORT,
        answer=PLAIN_ANSWER,
        longest_ms=longest_ms,
        most_flows=_MOST_FLOWS,
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
    rate = test.rate_per_s
    authority = f"[{host}]" if ":" in host else host
    return HttpWorkload(
        requests=[
            HttpRequest(
                url=f"http://{authority}:{http_port}{test.request_target}",
                method=test.method,
                headers=[Header(name=header.name, value=header.value) for header in test.headers],
                body_base64=None if test.body is None else b64encode(test.body.encode()).decode(),
                weight=1,
            )
        ],
        ip_version=version,
        connections=test.connections,
        threads=test.threads,
        duration_ms=test.duration_ms,
        number=test.number,
        warmup_ms=test.warmup_ms,
        cpus=[],
        rate=[RateStage(from_per_s=rate, to_per_s=rate, duration_ms=test.duration_ms)] if rate else [],
        redirects=0,
        timeouts=HttpTimeouts(connect_ms=_CONNECT_MS, response_ms=test.timeout_ms),
        route=HttpRoute(bind=[], resolve=[], dns="run"),
        socket=SocketOptions(delay=False, fast_open=False),
        interval_ms=test.interval_ms,
    )
