"""A load whose receiver is on another host than its generator, on scripted agents: who is asked for what, and when."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from leadline.agents import Agent, ClockComparison
from leadline.contract.models import RrWorkload, Target
from leadline.errors import TaskFailed
from leadline.kinds.packets.model import PacketsTest
from leadline.kinds.packets.workload import receivers
from leadline.trial import load
from leadline.trial.event_log import EntryList, EventLog
from leadline.trial.interrupt import Interrupt
from leadline.trial.load import Part, Role
from leadline.trial.workloads import Receiver

WORK = RrWorkload(
    target=Target(host="127.0.0.1", port=1, ip_version=None),
    protocol="tcp",
    flows=1,
    threads=1,
    duration_ms=1,
    number=None,
    warmup_ms=0,
    request_bytes=1,
    response_bytes=1,
    timeout_ms=1000,
    bind=None,
    interval_ms=100,
)


class ScriptedAgent:
    """Notes what it is asked for; a receiver's task ends only when it is stopped."""

    def __init__(self, name: str, asked: list[str], refuses: str | None = None, *, is_endless: bool = False) -> None:
        self._name, self._asked, self._refuses = name, asked, refuses
        self._stopped = asyncio.Event()
        self._is_endless = is_endless
        self.begun_ns: list[int] = []
        self.prepared: list[Any] = []
        self.limit_s = 0.0

    async def prepare(self, _trial: str, task: str, work: Any, timeout_s: float) -> None:
        self._asked.append(f"{self._name} prepare {task}")
        self.prepared.append(work)
        if task == self._refuses:
            raise TaskFailed(self._name, task, "no_device", "no such device")

    async def begin(self, _trial: str, at_ns: int) -> None:
        self._asked.append(f"{self._name} begin")
        self.begun_ns.append(at_ns)

    async def finished(self, _trial: str, task: str, timeout_s: float) -> None:
        self.limit_s = timeout_s
        if task in ("receive", "reflect") or self._is_endless:
            await self._stopped.wait()
        self._asked.append(f"{self._name} {task} ended")

    async def stop(self, _trial: str, task: str | None = None) -> None:
        self._asked.append(f"{self._name} stop {task}")
        self._stopped.set()


def clock(host: str, offset_ns: int) -> ClockComparison:
    return ClockComparison(host, offset_ns, 0, 1, 0, 0, same_clock=not offset_ns, steady=True)


async def run(
    refuses: str | None = None, *, is_interrupted: bool = False
) -> tuple[list[str], dict[str, ScriptedAgent], list[dict[str, Any]]]:
    """Run a load with its receiver on `far`, 1 s ahead by its clock."""
    asked: list[str] = []
    entries: list[dict[str, Any]] = []
    agents = {name: ScriptedAgent(name, asked, refuses, is_endless=is_interrupted) for name in ("near", "far")}
    interrupt = Interrupt()
    if is_interrupted:
        asyncio.get_running_loop().call_later(0.05, interrupt.asked.set)
    parts = [Part("near", WORK), Part("far", WORK, Role.RECEIVER, task="receive", drain_ms=1)]
    one = load.Load("c01/1/t", {"kind": "rr"}, parts)
    clocks = {"near": clock("near", 0), "far": clock("far", 1_000_000_000)}
    await load.run(one, cast("dict[str, Agent]", agents), clocks, EventLog(EntryList(entries)), interrupt)
    return asked, agents, entries


async def test_receiver_is_ready_before_the_generator_and_ends_after_it() -> None:
    asked, _, _ = await run()
    order = ["far prepare receive", "near prepare load", "near begin", "near load ended", "far stop receive"]
    assert [one for one in asked if one in order] == order
    assert asked[-1] == "far receive ended"


async def test_both_roles_begin_at_one_instant_on_their_own_clocks() -> None:
    _, agents, _ = await run()
    assert agents["far"].begun_ns == [agents["near"].begun_ns[0] + 1_000_000_000]


@pytest.mark.parametrize(("near_ns", "far_ns"), [(0, 1_000_000_000), (5_000, 2_000)])
async def test_receiver_gets_by_how_much_the_generators_clock_is_ahead(near_ns: int, far_ns: int) -> None:
    """By that it turns a generator's stamps into times of its own."""
    asked: list[str] = []
    agents = {name: ScriptedAgent(name, asked) for name in ("near", "far")}
    (receiver,) = receivers(PacketsTest(name="t", kind="packets"), "192.0.2.7")
    parts = [Part("near", WORK), Part("far", receiver.work, Role.RECEIVER, task="receive", drain_ms=1)]
    clocks = {"near": clock("near", near_ns), "far": clock("far", far_ns)}
    one = load.Load("c01/1/t", {"kind": "rr"}, parts)
    await load._prepare_receivers(one, cast("dict[str, Agent]", agents), clocks)
    (work,) = agents["far"].prepared
    assert work.clock_ahead_ns == near_ns - far_ns


async def test_receiver_may_report_after_a_generator_that_took_as_long_as_it_may() -> None:
    _, agents, _ = await run()
    assert agents["far"].limit_s > agents["near"].limit_s + 0.001


async def test_record_names_the_receivers_beside_the_hosts_that_generate() -> None:
    _, _, entries = await run()
    (begin,) = [entry for entry in entries if entry["record"] == "test-begin"]
    assert begin["hosts"] == ["near"]
    assert begin["receivers"] == [{"host": "far", "task": "receive"}]


async def test_receiver_that_cannot_begin_fails_the_load() -> None:
    with pytest.raises(TaskFailed, match="no such device"):
        await run(refuses="receive")


async def test_interrupt_stops_the_generator_and_then_the_receiver() -> None:
    """Stopped together, what was on its way would count as lost."""
    asked, _, _ = await run(is_interrupted=True)
    order = ["near stop load", "near load ended", "far stop receive", "far receive ended"]
    assert [one for one in asked if one in order] == order


def test_parts_of_an_echo_are_at_both_ends() -> None:
    far, near = Receiver(WORK, 7, sends_back=True), Receiver(WORK, 7, is_at_client=True)
    parts = load.receiving_parts([far, near], "near", "far")
    assert [(part.host, part.role, part.task, part.drain_ms) for part in parts] == [
        ("far", Role.REFLECTOR, "reflect", 7),
        ("near", Role.RECEIVER, "receive", 7),
    ]
