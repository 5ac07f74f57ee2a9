"""Converts a scenario test to an agent's workload. Pure; the only module that knows the terms of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from leadline.contract.models import (
    HttpRoute,
    HttpTimeouts,
    SamplesAll,
    ScenarioPlan,
    ScenarioWorkload,
    SocketOptions,
    TlsSpec,
)
from leadline.kinds.http.parts import HttpTcp, TlsTrust
from leadline.kinds.http.workload import identity_of
from leadline.kinds.scenario.model import ScenarioTest


def scenario_workload(
    test: ScenarioTest,
    known: Mapping[str, str],
    ip_version: Literal["v4", "v6"] | None,
    bind: Sequence[str] = (),
    *,
    reports_so_far: bool = False,
) -> ScenarioWorkload:
    """The scenario as load; `known` are values of parameters that the test does not give. With `reports_so_far` its
    figures are known each second, by which a threshold may end it."""
    lowered = test.file.lowered({**known, **test.params})
    tls = test.tls or TlsTrust()
    return ScenarioWorkload(
        plan=ScenarioPlan.model_validate(lowered.plan),
        seed=test.seed,
        threads=test.threads,
        cpus=[],
        duration_ms=test.duration_ms,
        warmup_ms=test.warmup_ms,
        connections_per_user=test.connections_per_user,
        connections=None,
        ip_version=ip_version,
        timeouts=HttpTimeouts(connect_ms=test.connect_timeout_ms, response_ms=test.timeout_ms),
        route=HttpRoute(bind=list(bind), resolve=[], dns="run", unix_socket=None, proxy=None),
        socket=SocketOptions(**HttpTcp().model_dump()),
        tls=TlsSpec(
            # A CA is given to be checked against, also where the scenario checks nothing, as JMeter's plans.
            verify=tls.ca is not None or (tls.verify and lowered.verifies_tls),
            ca_pem=None if tls.ca is None else tls.ca.text(),
            identity=identity_of(tls),
            oldest="1.2",
            newest="1.3",
            cipher_suites=[],
            alpn=["http/1.1"],
            server_name=None,
            resumption=True,
            early_data=False,
        ),
        interval_ms=test.interval_ms,
        samples=None if test.single_requests == "none" else SamplesAll(with_urls=test.single_requests == "urls"),
        reports_so_far=reports_so_far,
    )
