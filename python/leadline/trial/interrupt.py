"""Ctrl-C: the first asks for an orderly end that keeps what was measured, the second ends at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

EXIT_CODE = 130


class Interrupt:
    """Whether an end was asked for. Make one inside the event loop."""

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        self.asked = asyncio.Event()
        self._on_first = on_first

    def catch_signals(self) -> None:
        """From now on SIGINT, SIGTERM and SIGHUP ask; whoever asks twice is obeyed at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._ask)

    def _ask(self) -> None:
        if self.asked.is_set():
            # In a jail we are its first process, so the kernel ends every other one; elsewhere the agents end with
            # their stdin. The journal is on disk up to the last event.
            os._exit(EXIT_CODE)
        self.asked.set()
        self._on_first()
