"""Sends packets by an agent, one test after another; for `test_packets.py`, which gives the tests as JSON, each one's
keys, and runs this in a network namespace, and for `test_guest_pktgen.py`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from leadline.agents import Agent, Launch, agent_binary
from leadline.errors import TaskFailed
from leadline.kinds.packets.model import PacketsTest
from leadline.kinds.packets.workload import generator, receivers

WITHIN_S = 30.0


async def send_all(
    tests: Sequence[Mapping[str, Any]], launch: Launch | None = None, within_s: float = WITHIN_S
) -> list[dict[str, Any]]:
    """What the generator and the receiver of each test report, or why it cannot be; the agent runs here by default."""
    launch = launch or Launch((str(agent_binary()),))
    agent = await Agent.start("here", launch, sink=lambda *_: None)
    reports: list[dict[str, Any]] = []
    try:
        for number, keys in enumerate(tests):
            trial, test = f"t{number}", PacketsTest.model_validate(dict(keys), by_alias=True)
            try:
                if test.to is not None:
                    work: Any = receivers(test, None)[0].work
                    await agent.prepare(trial, "receive", work)
                await agent.prepare(trial, "load", generator(test, test.dst or ""))
            except TaskFailed as failure:
                reports.append({"error": str(failure)})
                continue
            await agent.begin(trial, 0)
            sent = await agent.finished(trial, "load", within_s)
            await agent.stop(trial, "receive")
            counted = await agent.finished(trial, "receive", within_s)
            own, far = (one.outcome.packets for one in (sent, counted))
            assert own is not None
            assert own.generator is not None
            assert far is not None
            assert far.receiver is not None
            reports.append({"generator": own.generator.model_dump(), "receiver": far.receiver.model_dump()})
    finally:
        await agent.close()
    return reports


if __name__ == "__main__":
    print(json.dumps(asyncio.run(send_all(json.loads(sys.argv[1])))))
