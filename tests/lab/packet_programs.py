"""Sends packets by an agent, one test after another, in the network namespace that it is started in; for
`test_packets.py`, which gives the tests as JSON: each one's keys.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from leadline.agents import Agent, Launch, agent_binary
from leadline.errors import TaskFailed
from leadline.kinds.packets.model import PacketsTest
from leadline.kinds.packets.workload import generator, receivers

WITHIN_S = 30.0


async def send_all(tests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the generator and the receiver of each test report, or why it cannot be."""
    agent = await Agent.start("here", Launch((str(agent_binary()),)), sink=lambda *_: None)
    reports: list[dict[str, Any]] = []
    try:
        for number, keys in enumerate(tests):
            trial, test = f"t{number}", PacketsTest.model_validate(keys, by_alias=True)
            try:
                if test.to is not None:
                    work: Any = receivers(test, None)[0].work
                    await agent.prepare(trial, "receive", work)
                await agent.prepare(trial, "load", generator(test, test.dst or ""))
            except TaskFailed as failure:
                reports.append({"error": str(failure)})
                continue
            await agent.begin(trial, 0)
            sent = await agent.finished(trial, "load", WITHIN_S)
            await agent.stop(trial, "receive")
            counted = await agent.finished(trial, "receive", WITHIN_S)
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
