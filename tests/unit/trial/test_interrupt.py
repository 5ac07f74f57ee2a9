"""Signals that ask for an end: the first is noted, the second obeyed at once, and handlers are lent, not taken."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import Any

import pytest

from leadline.errors import AgentLost
from leadline.trial import Interrupt
from leadline.trial.interrupt import stop_when_asked

ASKED_TWICE = """
import asyncio, os, signal, sys
from leadline.trial import Interrupt

async def main():
    interrupt = Interrupt(lambda: print("first"), lambda: print("second", flush=True))
    with interrupt.signals_caught():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)
            await interrupt.asked.wait()
        await asyncio.get_running_loop().create_future()

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_first_signal_requests_the_end(number: signal.Signals) -> None:
    said: list[str] = []
    interrupt = Interrupt(lambda: said.append("first"), lambda: said.append("second"))
    # Who runs the tests in the background may have had it ignored.
    before = signal.signal(number, lambda *_: None)
    try:
        with interrupt.signals_caught():
            assert not interrupt.asked.is_set()
            signal.raise_signal(number)
            async with asyncio.timeout(30):
                await interrupt.asked.wait()
    finally:
        signal.signal(number, before)
    assert said == ["first"]


@pytest.mark.processes
def test_second_signal_exits_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", ASKED_TWICE], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "first\nsecond\n", "")


async def test_handlers_come_back_and_what_was_ignored_stays_so() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, own := lambda *_: None)
        interrupt = Interrupt()
        with interrupt.signals_caught():
            signal.raise_signal(signal.SIGHUP)
            await asyncio.sleep(0)
            assert not interrupt.asked.is_set()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_pause_ends_when_an_end_is_asked_for() -> None:
    async def paused() -> bool:
        interrupt = Interrupt()
        await interrupt.pause(0.0)
        before = interrupt.asked.is_set()
        interrupt.asked.set()
        await interrupt.pause(86_400.0)
        return before

    assert asyncio.run(paused()) is False


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_request_to_end_stops_the_agents_task(is_lost: bool) -> None:
    stopped: list[tuple[str, str]] = []

    class Stopped:
        async def stop(self, trial: str, task: str) -> None:
            stopped.append((trial, task))
            if is_lost:
                raise AgentLost("a", "it is gone")

    interrupt = Interrupt()
    agent: Any = Stopped()
    stopper = asyncio.create_task(stop_when_asked(interrupt, agent, "c01/1", "crypto"))
    await asyncio.sleep(0)
    assert stopped == []
    interrupt.ask("enough")
    await stopper
    assert stopped == [("c01/1", "crypto")]
