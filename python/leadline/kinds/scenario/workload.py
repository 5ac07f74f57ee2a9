"""Converts a scenario test to an agent's workload. Pure; the only module that knows the terms of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from leadline.agents.messages import LINE_LIMIT_BYTES
from leadline.contract.models import (
    HttpRoute,
    HttpTimeouts,
    Resolution,
    SamplesAll,
    ScenarioPlan,
    ScenarioWorkload,
    SocketOptions,
    TlsSpec,
)
from leadline.errors import InputError
from leadline.kinds.http.parts import HttpTcp, TlsTrust
from leadline.kinds.http.workload import identity_of
from leadline.kinds.scenario.model import ScenarioTest
from leadline.kinds.scenario.users_test import UsersTest

LONGEST_PLAN_BYTES = LINE_LIMIT_BYTES - 2**20
"""Length of a scenario's plan; the rest of the message has the other options and certificates."""


def scenario_workload(
    test: ScenarioTest,
    known: Mapping[str, str],
    ip_version: Literal["v4", "v6"] | None,
    bind: Sequence[str] = (),
    *,
    reports_so_far: bool = False,
) -> ScenarioWorkload:
    """The scenario as load; `known` are values of parameters that the test does not give. With `reports_so_far` its
    figures are known each second, by which a threshold may end it.

    Raises:
        InputError: the scenario with its data and files is too long for a message to an agent.
    """
    lowered = test.file.lowered({**known, **test.params}, is_traced=test.trace)
    plan = ScenarioPlan.model_validate(lowered.plan)
    _check_length(plan)
    addresses = {(one.host.lower(), one.port): one.address for one in lowered.hosts}
    workload = users_workload(test, plan, ip_version, bind, addresses=addresses, verifies_tls=lowered.verifies_tls)
    return workload.model_copy(update={"reports_so_far": reports_so_far})


def users_workload(
    test: UsersTest,
    plan: ScenarioPlan,
    ip_version: Literal["v4", "v6"] | None,
    bind: Sequence[str] = (),
    *,
    addresses: Mapping[tuple[str, int], str] | None = None,
    verifies_tls: bool = True,
) -> ScenarioWorkload:
    """Users that carry out a plan; `addresses` are those to use instead of DNS, by host and port, unless the test has
    another."""
    tls = test.tls or TlsTrust()
    given = {**(addresses or {}), **{(one.host.lower(), one.port): one.address for one in test.resolve}}
    resolved = [Resolution(host=host, port=port, address=address) for (host, port), address in given.items()]
    return ScenarioWorkload(
        plan=plan,
        seed=test.seed,
        threads=test.threads,
        cpus=[],
        duration_ms=test.duration_ms,
        warmup_ms=test.warmup_ms,
        connections_per_user=test.connections_per_user,
        connections=None,
        ip_version=ip_version,
        timeouts=HttpTimeouts(connect_ms=test.connect_timeout_ms, response_ms=test.timeout_ms),
        route=HttpRoute(bind=list(bind), resolve=resolved, dns="run", unix_socket=None, proxy=None),
        socket=SocketOptions(**HttpTcp().model_dump()),
        tls=TlsSpec(
            # A CA is given to be checked against, also where the scenario checks nothing, as JMeter's plans.
            verify=tls.ca is not None or (tls.verify and verifies_tls),
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
        reports_so_far=False,
    )


def has_waits(workload: ScenarioWorkload) -> bool:
    """Whether a step of the flow waits: for a time, for a pace or for other users."""
    pending: list[Any] = [workload.plan.model_dump(mode="json")]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if part.get("kind") == "wait":
                return True
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return False


def _check_length(plan: ScenarioPlan) -> None:
    length = len(plan.model_dump_json().encode())
    if length > LONGEST_PLAN_BYTES:
        raise InputError(
            f"the scenario has {length / 2**20:.1f} MiB with its data and files, and goes to an agent in one message; "
            f"at most {LONGEST_PLAN_BYTES // 2**20} MiB",
            hint="give fewer rows or smaller files",
        )
