"""A child process that talks in lines: its three pipes, its last words, its end. Knows nothing of what a line means.

The process stays in our process group, and we own its stdin: when we go, its end of file is what it ends by.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections import deque
from collections.abc import AsyncIterator

from leadline.agents.messages import LINE_LIMIT_BYTES, MalformedLine

GRACE_S = 5.0
"""An agent that has to break off what it runs takes half of this for its end in good order."""
_CHUNK_BYTES = 256 * 1024
_LAST_WORDS_LINES = 20
_LAST_WORDS_CHARACTERS = 500


class Channel:
    """One process. Make one with `open`, end it with `end`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._last_words: deque[str] = deque(maxlen=_LAST_WORDS_LINES)
        self._stderr_reader = asyncio.create_task(self._read_stderr())

    @classmethod
    async def open(cls, argv: tuple[str, ...]) -> Channel:
        """Start the process.

        Raises:
            OSError: it cannot be started.
        """
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe, limit=_CHUNK_BYTES)
        return cls(process)

    @property
    def ended(self) -> bool:
        """Whether the process is known to have ended."""
        return self._process.returncode is not None

    async def send(self, line: bytes) -> None:
        """Write a line, its end included.

        Raises:
            BrokenPipeError, ConnectionResetError: the reader has gone.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        await self._process.stdin.drain()

    async def lines(self) -> AsyncIterator[tuple[bytearray, int]]:
        """Each line of its stdout, without its end, and when it was here (controller's monotonic clock, ns).

        A last line without an end is no line: the process was cut off in the middle of it.

        Raises:
            MalformedLine: a line is longer than the contract allows.
        """
        assert self._process.stdout is not None
        pending = bytearray()
        while chunk := await self._process.stdout.read(_CHUNK_BYTES):
            now_ns = time.monotonic_ns()
            pending += chunk
            if b"\n" in chunk:
                *lines, pending = pending.split(b"\n")
                for line in lines:
                    yield line, now_ns
            if len(pending) > LINE_LIMIT_BYTES:
                raise MalformedLine(f"a line is longer than {LINE_LIMIT_BYTES} bytes")

    def note(self, words: str) -> None:
        """Add to its last words what it complained of elsewhere."""
        self._last_words.append(words[:_LAST_WORDS_CHARACTERS])

    def with_last_words(self, reason: str) -> str:
        """The reason, and what the process last said on stderr."""
        return f"{reason}; its last words: {' | '.join(self._last_words)}" if self._last_words else reason

    async def ending(self) -> str:
        """How the process ended, in words; one that closed its stdout and runs on is killed."""
        try:
            async with asyncio.timeout(GRACE_S):
                status = await self._process.wait()
                await asyncio.wait({self._stderr_reader})
        except TimeoutError:
            if not self.ended:
                self.kill()
                return "it closed its stdout and ran on"
            status = self._process.returncode or 0
        if status < 0:
            return f"its process was ended by {signal.Signals(-status).name}"
        return f"its process exited with {status}"

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
        while chunk := await self._process.stderr.read(_CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[:_LAST_WORDS_CHARACTERS]
            for line in lines:
                self._note_bytes(line)
        self._note_bytes(rest)

    def _note_bytes(self, line: bytes) -> None:
        if words := line.decode(errors="replace").strip():
            self.note(words)
