"""The events of one task so far, and a way to wait for more. Knows no process and no clock."""

from __future__ import annotations

import asyncio

from leadline.contract.models import ErrorReport, Exited, Failed, Finished, OutputLine, Prepared, Profiled


class TaskLog:
    """The state of one task, by its events."""

    prepared: Prepared | None
    finished: Finished | None
    failed: ErrorReport | None
    exited: Exited | None
    profiled: Profiled | None
    lines: list[OutputLine]

    def __init__(self) -> None:
        self.prepared = None
        self.finished = None
        self.failed = None
        self.exited = None
        self.profiled = None
        self.lines = []
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def over(self) -> bool:
        """Whether no more events will come."""
        ends = (self.finished, self.failed, self.exited, self.profiled)
        return any(end is not None for end in ends)

    def take(self, event: Prepared | Finished | Failed | Exited | Profiled | OutputLine) -> None:
        """Store an event of this task, and wake those who wait."""
        match event:
            case Prepared():
                self.prepared = event
            case Finished():
                self.finished = event
            case Failed():
                self.failed = event.error
            case Exited():
                self.exited = event
            case Profiled():
                self.profiled = event
            case OutputLine():
                self.lines.append(event)
        self.wake()

    def how_it_ended(self) -> str:
        """The end of the process as text, with the last line that it reported."""
        if self.exited is None:
            return "it is running"
        said = f": {self.lines[-1].line.strip()}" if self.lines else ""
        return f"it {ending(self.exited)}{said}"

    async def change(self) -> None:
        """Wait for the next event."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def wake(self) -> None:
        """Wake all who wait."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


def ending(exited: Exited) -> str:
    """How a process ended, as the predicate of a sentence."""
    if exited.signal is not None:
        return f"was ended by signal {exited.signal}"
    return f"exited with {exited.code}" if exited.code is not None else "ended"
