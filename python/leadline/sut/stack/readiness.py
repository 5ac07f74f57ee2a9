"""Whether a stack answers: its ports are open, and a request from a client passes all tiers.

Acts only through `HostOps` and agents.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from leadline.agents.host_ops import HostOps
from leadline.contract.models import (
    HttpRequest,
    HttpRoute,
    HttpTimeouts,
    HttpWorkload,
    SocketOptions,
    TlsSpec,
)
from leadline.errors import SutFailed, TaskFailed
from leadline.sut.model import Site

_LISTENS_WITHIN_S = 20.0
_LOOK_AGAIN_S = 0.05
_ANSWERS_WITHIN_MS = 5000
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTEN = "0A"
"""The state of a listening socket in these tables (include/net/tcp_states.h)."""
_TASK = "check-stack"


async def wait_for_ports(host: HostOps, ports: Sequence[int], name: str) -> None:
    """Wait until something listens on all of these TCP ports of the host.

    Raises:
        SutFailed: nothing does in time.
    """
    deadline = time.monotonic() + _LISTENS_WITHIN_S
    while missing := sorted(set(ports) - await _listening(host)):
        if time.monotonic() > deadline:
            raise SutFailed(f"{name} on {host.name} did not listen on port {missing[0]} within {_LISTENS_WITHIN_S:g} s")
        await asyncio.sleep(_LOOK_AGAIN_S)


async def _listening(host: HostOps) -> set[int]:
    shown = await host.run("cat", *_TABLES)
    return listening_ports(shown.output)


def listening_ports(table: str) -> set[int]:
    """The ports of listening sockets in the text of /proc/net/tcp."""
    rows = (line.split() for line in table.splitlines())
    return {int(row[1].rpartition(":")[2], 16) for row in rows if len(row) > 3 and row[3] == _LISTEN}


async def check_answer(site: Site, client: str, url: str) -> str | None:
    """Why a request from the client has no answer with a status below 400; None if it has one.

    Raises:
        AgentLost: the client's agent is gone.
    """
    agent = site.agents[client]
    try:
        prepared = await agent.prepare(site.setup, _TASK, _one_request(url))
        # Due now, by the agent's own clock: only one host starts here.
        await agent.begin(site.setup, prepared.t_ns)
        finished = await agent.finished(site.setup, _TASK, 2 * _ANSWERS_WITHIN_MS / 1000)
    except TaskFailed as error:
        return "no answer" if error.code == "timeout" else error.message
    outcome = finished.outcome
    if outcome.errors:
        name = next(iter(outcome.errors))
        return outcome.error_examples.get(name, name)
    counts = outcome.counts.model_dump()
    bad = next((digit for digit in "45" if counts.get(f"status_{digit}xx")), None)
    if bad is not None:
        return f"the answer has a status of {bad}xx"
    return None if counts.get("status_2xx") or counts.get("status_3xx") else "no answer"


def _one_request(url: str) -> HttpWorkload:
    tls = TlsSpec(
        alpn=["http/1.1"],
        ca_pem=None,
        cipher_suites=[],
        early_data=False,
        identity=None,
        newest="1.3",
        oldest="1.2",
        resumption=False,
        server_name=None,
        verify=False,
    )
    return HttpWorkload(
        requests=[HttpRequest(url=url, method="GET", headers=[], body_base64=None, weight=1)],
        script=None,
        ip_version=None,
        connections=1,
        threads=1,
        cpus=[],
        duration_ms=_ANSWERS_WITHIN_MS,
        number=1,
        warmup_ms=0,
        rate=[],
        requests_per_connection=None,
        redirects=0,
        timeouts=HttpTimeouts(connect_ms=_ANSWERS_WITHIN_MS, response_ms=_ANSWERS_WITHIN_MS),
        route=HttpRoute(bind=[], resolve=[], dns="run", unix_socket=None, proxy=None),
        socket=SocketOptions(delay=False, fast_open=False),
        tls=tls if url.startswith("https:") else None,
        interval_ms=1000,
    )
