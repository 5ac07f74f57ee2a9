"""A process that communicates in lines: its three streams, its last error output, its end. Knows no meaning of a line.

This process holds its stdin: when this process ends, the other one reads end of file and ends too.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

from leadline.agents.launch import Launch
from leadline.agents.launchers.model import Launcher, Process
from leadline.agents.launchers.processes import STREAM_BYTES
from leadline.agents.messages import LINE_LIMIT_BYTES, MalformedLine
from leadline.masking import mask_line

GRACE_S = 5.0
"""Time for an agent to end. It uses half of this to end its own tasks in order."""
_LINE_BYTES = 4096
"""Of its stderr; the rest of a longer line without an end is cut."""
_LAST_WORDS_LINES = 20
_LAST_WORDS_CHARACTERS = 500
_EVENT = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+Z +(ERROR|WARN|INFO|DEBUG|TRACE) ")
"""How a line of the process's own log begins; such lines exist only where `LEADLINE_LOG` asks for them."""


class Channel:
    """One process. Create it with `open`, end it with `end`."""

    def __init__(self, process: Process, launcher: Launcher, log: Path | None = None) -> None:
        """`log` is the file that its stderr is appended to; without one, lines of its own log go to our stderr."""
        self._process = process
        self._launcher = launcher
        self._log = log
        self._last_words: deque[str] = deque(maxlen=_LAST_WORDS_LINES)
        self._stderr_reader = asyncio.create_task(self._read_stderr())

    @classmethod
    async def open(cls, launch: Launch, log: Path | None = None) -> Channel:
        """Start the process; `log` as in the constructor.

        Raises:
            OSError: it cannot be started.
        """
        return cls(await launch.launcher.run(launch.argv), launch.launcher, log)

    @property
    def ended(self) -> bool:
        """Whether the process is known to have ended."""
        return self._process.returncode is not None

    async def send(self, line: bytes) -> None:
        """Write a line, which includes its line end.

        Raises:
            BrokenPipeError,
            ConnectionResetError: the process does not read any more.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        await self._process.stdin.drain()

    async def lines(self) -> AsyncIterator[tuple[list[bytes], int]]:
        """The lines of its stdout without their line ends, those that arrived together in one list, and their arrival
        time (controller's monotonic clock, ns).

        A last line without a line end is ignored: the process ended in the middle of it.

        Raises:
            MalformedLine: a line is longer than the contract allows.
        """
        assert self._process.stdout is not None
        pending = bytearray()
        while chunk := await self._process.stdout.read(STREAM_BYTES):
            now_ns = time.monotonic_ns()
            first, *others = chunk.split(b"\n")
            pending += first
            if others:
                *lines, rest = others
                yield [bytes(pending), *lines], now_ns
                pending = bytearray(rest)
            if len(pending) > LINE_LIMIT_BYTES:
                raise MalformedLine(f"a line is longer than {LINE_LIMIT_BYTES} bytes")

    def note(self, words: str) -> None:
        """Add an error that the process reported elsewhere to its last error output."""
        self._last_words.append(words[:_LAST_WORDS_CHARACTERS])

    def with_last_words(self, reason: str) -> str:
        """The reason, with the last output of the process on stderr that it does not quote."""
        words = [line for line in self._last_words if line not in reason]
        return f"{reason}; its last stderr lines: {' | '.join(words)}" if words else reason

    async def ending(self) -> str:
        """How the process ended, as text; a process that closed its stdout and still runs is killed."""
        try:
            async with asyncio.timeout(GRACE_S):
                status = await self._process.wait()
                await asyncio.wait({self._stderr_reader})
        except TimeoutError:
            if not self.ended:
                self.kill()
                return "it closed its stdout but did not end"
            status = self._process.returncode or 0
        return self._launcher.describe_end(status, self._last_words)

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def end(self, grace_s: float) -> None:
        """Close its stdin and wait, terminate it and wait, kill it; each wait takes `grace_s` at most."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        for insist in (process.terminate, process.kill):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await process.wait()
                break
            with contextlib.suppress(ProcessLookupError):
                insist()
        await process.wait()
        # A grandchild may hold stderr open; it must not hold us.
        await asyncio.wait({self._stderr_reader}, timeout=GRACE_S)
        self._stderr_reader.cancel()

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        rest = b""
        while chunk := await self._process.stderr.read(STREAM_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[:_LINE_BYTES]
            self._take_lines(lines)
        self._take_lines([rest] if rest else [])

    def _take_lines(self, lines: list[bytes]) -> None:
        """Append lines to the log; what is no event of it is among the last words."""
        lines = [mask_line(line) for line in lines]
        events = [line for line in lines if _EVENT.match(line)]
        if self._log is not None:
            self._append([line for line in lines if line.strip()])
        elif events:
            sys.stderr.write("".join(f"{line.decode(errors='replace')}\n" for line in events))
        for line in lines:
            words = line.decode(errors="replace").strip()
            if words and not _EVENT.match(line):
                self.note(words)

    def _append(self, lines: list[bytes]) -> None:
        if not lines or self._log is None:
            return
        try:
            with self._log.open("ab") as file:
                file.write(b"".join(line + b"\n" for line in lines))
        except OSError:
            self._log = None  # a full disk ends the log, not the measurement
