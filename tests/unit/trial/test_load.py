"""A load of which one client is stopped before it begins, with agents of their own over loopback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leadline.agents import Agent, Event, Launch, agent_binary
from leadline.contract.models import Prepared, RrWorkload, ServeWorkload, Target
from leadline.errors import TaskFailed
from leadline.trial import load
from leadline.trial.event_log import EntryList, EventLog
from leadline.trial.interrupt import Interrupt
from leadline.trial.workloads import PLAIN_ANSWER

pytestmark = pytest.mark.agent

SERVE = ServeWorkload(bind=["127.0.0.1"], port=0, http_port=None, answer=PLAIN_ANSWER, longest_ms=900_000, most_flows=4)


def five_transactions(port: int) -> RrWorkload:
    return RrWorkload(
        target=Target(host="127.0.0.1", port=port, ip_version=None),
        protocol="tcp",
        flows=1,
        threads=1,
        duration_ms=300_000,
        number=5,
        warmup_ms=0,
        request_bytes=1,
        response_bytes=1,
        timeout_ms=60_000,
        bind=None,
        interval_ms=100,
    )


@pytest.mark.parametrize("is_asked", [True, False])
async def test_load_stopped_before_its_start_fails_unless_the_end_was_asked(is_asked: bool) -> None:
    entries: list[dict[str, Any]] = []
    event_log, interrupt = EventLog(EntryList(entries)), Interrupt()
    stops: list[asyncio.Task[None]] = []
    launch = Launch((str(agent_binary()),))
    first = await Agent.start("first", launch, sink=event_log.on_event)
    late = await Agent.start("late", launch, sink=event_log.on_event)
    agents = {"first": first, "late": late}
    try:
        serve = await first.prepare("t/setup", "serve", SERVE)
        assert serve.port
        clocks = {host: await agent.compare_clocks() for host, agent in agents.items()}
        work = five_transactions(serve.port)
        wanted = load.Load("t/rr", {"kind": "rr"}, [load.Part(host, work) for host in agents])

        def stop_one(host: str, event: Event) -> None:
            if host == "late" and isinstance(event, Prepared):
                stops.append(asyncio.create_task(late.stop(wanted.label)))
                if is_asked:
                    interrupt.ask("the test")

        event_log.listen(stop_one)
        running = load.run(wanted, agents, clocks, event_log, interrupt)
        if is_asked:
            await running
        else:
            with pytest.raises(TaskFailed, match="stopped before it began"):
                await running
    finally:
        await first.close()
        await late.close()
    assert any("stopped before it began" in str(entry) for entry in entries)
