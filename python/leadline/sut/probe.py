"""Verifies a client's connection by one transaction with the server over every IP version."""

from __future__ import annotations

import contextlib

from leadline.agents import Agent
from leadline.contract.models import RrWorkload, Target
from leadline.errors import AgentLost, TaskFailed
from leadline.sut.model import Site

# A new IPv6 address is "tentative" for a moment (RFC 4862, 2) and cannot be a source address. A connection that is
# opened in that moment uses another source address and never succeeds. Hence several attempts.
_ATTEMPTS_S = (1.0, 3.0, 6.0)
_ANSWER_WITHIN_MS = 5000


async def probe(site: Site, client: str) -> str | None:
    """Why no traffic passes from the client to the server; None if it does.

    Raises:
        AgentLost: the client's agent is gone.
    """
    causes = []
    for version, address in site.server_address.items():
        cause = await _reach(site, client, version)
        if cause is not None:
            causes.append(f"over IPv{version} to {address}: {cause}")
    return "; ".join(causes) or None


async def _reach(site: Site, client: str, version: int) -> str | None:
    agent, cause = site.agents[client], None
    for number, within_s in enumerate(_ATTEMPTS_S, 1):
        task = f"probe-ipv{version}-{number}"
        try:
            return await _exchange(agent, site, task, version, within_s=within_s)
        except TaskFailed as error:
            cause = "no answer" if error.code == "timeout" else error.message
            with contextlib.suppress(AgentLost):
                await agent.stop(site.setup, task)
    return cause


async def _exchange(agent: Agent, site: Site, task: str, version: int, *, within_s: float) -> str | None:
    prepared = await agent.prepare(site.setup, task, _one_transaction(site, version), within_s)
    # Due now, by the agent's own clock: only one host starts here.
    await agent.begin(site.setup, prepared.t_ns)
    finished = await agent.finished(site.setup, task, 2 * _ANSWER_WITHIN_MS / 1000)
    if any(flow.received_units for flow in finished.outcome.flows):
        return None
    return ", ".join(finished.outcome.errors) or "no answer"


def _one_transaction(site: Site, version: int) -> RrWorkload:
    target = Target(
        host=site.server_address[version],
        port=site.serve_port,
        ip_version="v4" if version == 4 else "v6",
        key=site.key,
    )
    return RrWorkload(
        target=target,
        protocol="tcp",
        flows=1,
        threads=1,
        duration_ms=_ANSWER_WITHIN_MS,
        number=1,
        warmup_ms=0,
        request_bytes=1,
        response_bytes=1,
        timeout_ms=_ANSWER_WITHIN_MS,
        interval_ms=1000,
    )
