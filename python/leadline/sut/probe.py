"""One transaction from a client to the server, over every IP version: the only proof that a client is connected."""

from __future__ import annotations

from leadline.contract.models import Prepared, RrWorkload, Target
from leadline.errors import TaskFailed
from leadline.fleet import Agent
from leadline.sut.model import Site

# A SYN that is lost is sent again after 1 and 3 s (RFC 6298): room for two of them.
_ANSWER_WITHIN_MS = 5000
_WITHIN_S = 10.0


async def probe(site: Site, client: str) -> str | None:
    """Why no traffic goes from the client to the server; None where it does.

    Raises:
        AgentLost: the client's agent is gone.
    """
    agent = site.agents[client]
    causes: list[str] = []
    ready: dict[int, Prepared] = {}
    for version, address in site.server_address.items():
        try:
            ready[version] = await agent.prepare(site.setup, _task(version), _one_transaction(site, version), _WITHIN_S)
        except TaskFailed as error:
            causes.append(f"over IPv{version} to {address}: {error.message}")
    if ready:
        # Due now, by the agent's own clock: nothing has to start together here.
        await agent.begin(site.setup, max(prepared.t_ns for prepared in ready.values()))
    for version in ready:
        cause = await _outcome(agent, site, version)
        if cause is not None:
            causes.append(f"over IPv{version} to {site.server_address[version]}: {cause}")
    return "; ".join(causes) or None


async def _outcome(agent: Agent, site: Site, version: int) -> str | None:
    try:
        finished = await agent.finished(site.setup, _task(version), _WITHIN_S)
    except TaskFailed as error:
        return error.message
    if sum(flow.received_units or 0 for flow in finished.outcome.flows) >= 1:
        return None
    return ", ".join(finished.outcome.errors) or "no answer"


def _one_transaction(site: Site, version: int) -> RrWorkload:
    target = Target(host=site.server_address[version], port=site.serve_port, ip_version="v4" if version == 4 else "v6")
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


def _task(version: int) -> str:
    return f"probe-ipv{version}"
