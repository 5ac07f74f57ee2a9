"""Converts an http test to an agent's workload. Pure; the only module that knows the terms of both."""

from __future__ import annotations

from base64 import b64encode
from typing import Literal

from leadline.contract.models import (
    Cpu,
    Header,
    HttpRequest,
    HttpRoute,
    HttpScript,
    HttpTimeouts,
    HttpWorkload,
    RateStage,
    Resolution,
    SocketOptions,
    TlsIdentity,
    TlsSpec,
)
from leadline.kinds.http.model import HttpTest
from leadline.kinds.http.parts import HttpEntry, HttpTcp, HttpTls, TlsTrust


def http_workload(test: HttpTest, host: str, port: int | None, ip_version: Literal["v4", "v6"] | None) -> HttpWorkload:
    """HTTP load on a server: a name or address, and a port (None: the scheme's default)."""
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
        # RFC 7617, 2.1: UTF-8 is the only charset that can be named.
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
    return TlsSpec(
        verify=tls.verify,
        ca_pem=None if tls.ca is None else tls.ca.text(),
        identity=identity_of(tls),
        oldest=_VERSIONS[oldest],
        newest=_VERSIONS[newest or oldest],
        cipher_suites=list(tls.ciphers),
        alpn=list(tls.alpn),
        server_name=tls.server_name,
        resumption=tls.resume,
        early_data=tls.early_data,
    )


def identity_of(tls: TlsTrust) -> TlsIdentity | None:
    """The client's own certificate, if it has one."""
    if tls.cert is None or tls.key is None:
        return None
    return TlsIdentity(certificate_pem=tls.cert.text(), key_pem=tls.key.text())


_VERSIONS: dict[str, Literal["1.2", "1.3"]] = {"1.2": "1.2", "1.3": "1.3"}
