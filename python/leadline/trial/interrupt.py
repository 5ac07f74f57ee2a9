"""Handles Ctrl-C: the first requests an orderly end that keeps the results, the second ends at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from leadline.agents import Agent
from leadline.errors import AgentLost

EXIT_CODE = 130
_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """Whether an end was requested, and the reason if it was not the user. Create it inside the event loop."""

    def __init__(
        self, on_first: Callable[[], None] = lambda: None, on_second: Callable[[], None] = lambda: None
    ) -> None:
        self.asked = asyncio.Event()
        self.why: str | None = None
        self._signalled = False
        self._on_first = on_first
        self._on_second = on_second

    async def pause(self, length_s: float) -> None:
        """Wait for this long, or until an end is requested."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.asked.wait(), length_s)

    @contextmanager
    def signals_caught(self) -> Iterator[None]:
        """Let SIGINT, SIGTERM and SIGHUP request the end while the block runs; a second signal ends at once.

        Signals that were ignored before (nohup) stay ignored, and previous handlers are restored afterwards.
        """
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in _ASKING}
        caught = [number for number in _ASKING if before[number] is not signal.SIG_IGN]
        for number in caught:
            loop.add_signal_handler(number, self._ask)
        try:
            yield
        finally:
            for number in caught:
                loop.remove_signal_handler(number)
                signal.signal(number, before[number])

    def ask(self, why: str) -> None:
        """Request the end for a reason of our own; the first Ctrl-C after that still counts as the first."""
        self.why = why
        self.asked.set()

    def _ask(self) -> None:
        if self._signalled:
            self._on_second()
            # In a jail this is the first process, so the kernel ends all others with it; elsewhere the agents end with
            # their stdin. The journal is on disk up to the last event.
            os._exit(EXIT_CODE)
        self._signalled = True
        self.asked.set()
        self._on_first()


async def stop_when_asked(interrupt: Interrupt, agent: Agent, trial: str, task: str) -> None:
    """Wait until an end is requested, then stop an agent's task."""
    await interrupt.asked.wait()
    with suppress(AgentLost):
        await agent.stop(trial, task)
