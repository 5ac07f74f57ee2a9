"""A server on this host's loopback for a command that names no host: an agent that answers while a block runs.

Its conversation has a thread with an event loop of its own, because a command reads its options, and needs the ports in
them, before it has a loop. Like every agent, it ends when its stdin closes: with this process, whatever ends that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any, TypeVar

from leadline.agents import Agent, Launch, agent_binary
from leadline.trial.workloads import Server, serve_everything

NAME = "loopback server"
_LONGEST_MS = 366 * 86_400_000
"""No test is longer: the server serves one command, and ends with it."""
_TRIAL, _TASK = "loopback", "serve"

Result = TypeVar("Result")


@contextmanager
def loopback_server(address: str, *, https: bool = False) -> Iterator[Server]:
    """Answer every test on free ports of this loopback address while the block runs.

    Raises:
        MissingBinary: there is no agent.
        LeadlineError: the agent cannot listen.
    """
    serve = serve_everything([address], _LONGEST_MS, https=https)
    free = {"port": 0, "http_port": 0, "https_port": 0 if https else None}
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name=NAME, daemon=True)

    def run(conversation: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(conversation, loop).result()

    thread.start()
    try:
        agent = run(Agent.start(NAME, Launch((str(agent_binary()),)), sink=lambda *_: None))
        try:
            ready = run(agent.prepare(_TRIAL, _TASK, serve.model_copy(update=free)))
            assert ready.port is not None, "the workload has a session port"
            assert ready.http_port is not None, "the workload has an HTTP port"
            yield Server(
                address,
                ready.port,
                family="any",
                http_port=ready.http_port,
                # Without TLS nothing listens on it, and no test of the command uses it.
                https_port=ready.https_port or 0,
            )
        finally:
            run(agent.close())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
