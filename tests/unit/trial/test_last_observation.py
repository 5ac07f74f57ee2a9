"""The hosts of a trial and their agents: what is awaited of given hosts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from leadline.agents import UnreadObservation
from leadline.trial import environment
from leadline.trial.event_log import EntryList, EventLog


class ObservedAgent:
    """An agent that answers an order to observe with one observation of its label, after a turn of the loop."""

    def __init__(self, name: str, event_log: EventLog) -> None:
        self.hello, self.lost = SimpleNamespace(host=SimpleNamespace(boot_id=name)), None
        self._name, self._event_log = name, event_log

    async def observe(self, trial: str, _period_ms: int, _machine: bool) -> None:
        line = (
            b'{"type":"observation","trial":"%b","t_ns":7,"observer_cpu_s":0,'
            b'"network":{"interfaces":[]},"processes":[]}'
        )
        read = UnreadObservation(line % trial.encode())
        asyncio.get_running_loop().call_soon(self._event_log.on_event, self._name, read, read.line)


async def test_last_observation_of_a_gateway_ends_the_wait_for_it(monkeypatch: Any) -> None:
    monkeypatch.setattr(environment, "_LAST_LOOK_S", None)
    event_log = EventLog(EntryList([]))
    names = ("gateway", "server", "client1")
    env = SimpleNamespace(
        gateways=("gateway",),
        clients=("client1",),
        emulator=None,
        lab=None,
        agents={name: ObservedAgent(name, event_log) for name in names},
    )
    await environment.observe_once_more(cast(Any, env), "c01/1/tear-down", 1000, event_log)
    assert event_log._observation_listeners == []
