"""Reads the stretches of a long journal in further processes, while this one cuts it.

Owns those processes: each takes one stretch at a time on stdin and answers with its results on stdout, until stdin
ends. They end with this process, however that ends. Where one fails, this process does its work.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import IO

from leadline.registry import KINDS
from leadline.trial.journal_stretches import Read, ReadStretch, Stretch, read_stretch

# A process takes a second to start: as long as the analysis of a journal of this size.
_LEAST_JOURNAL_BYTES = 32 * 1024 * 1024
_MOST_PROCESSES = 4
_LENGTH_BYTES = 8
_MOST_BYTES = 1 << 30
"""The longest message. A length beyond it is not one of this protocol."""
_PROGRAM = ("-P", "-m", __name__)


@contextmanager
def analysis_processes(journal_bytes: int | None) -> Iterator[Read | None]:
    """The way to read the stretches of a journal of this size, while the block runs; None if it is best read whole."""
    count = min(_MOST_PROCESSES, len(os.sched_getaffinity(0)) - 1)
    # Another process knows only the kinds of test that come with Leadline.
    if count < 1 or (journal_bytes or 0) < _LEAST_JOURNAL_BYTES or KINDS.has_added:
        yield None
        return
    with ThreadPoolExecutor(count, "analysis") as threads:
        processes = _Processes(count, threads)
        try:
            yield processes.read
        finally:
            processes.end()


class _Processes:
    """The processes, and the stretches that they read."""

    def __init__(self, count: int, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._all = [_start() for _ in range(count)]
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in self._all:
            self._idle.put(process)
        self._under_way: list[Future[ReadStretch]] = []

    def read(self, stretch: Stretch) -> Future[ReadStretch]:
        """Hand a stretch over. If each process has work and more waits, read it here."""
        self._under_way = [future for future in self._under_way if not future.done()]
        if len(self._under_way) > len(self._all):
            here: Future[ReadStretch] = Future()
            here.set_result(read_stretch(stretch))
            return here
        # Now, because the facts about hosts change with later events.
        question = pickle.dumps(stretch, pickle.HIGHEST_PROTOCOL)
        future = self._threads.submit(self._ask, question)
        self._under_way.append(future)
        return future

    def end(self) -> None:
        """End all processes."""
        for process in self._all:
            process.kill()
            # What could not be written to a process that died is still in its buffer.
            with suppress(OSError):
                process.communicate()

    def _ask(self, question: bytes) -> ReadStretch:
        process = self._idle.get()
        try:
            assert process.stdin is not None and process.stdout is not None
            _write(process.stdin, question)
            answer = _read(process.stdout)
        except OSError:
            answer = None
        finally:
            self._idle.put(process)
        if answer is None:
            return read_stretch(pickle.loads(question))
        found: ReadStretch = pickle.loads(answer)
        return found


def _start() -> subprocess.Popen[bytes]:
    """Start a process. A session of its own keeps it from the terminal's signals: it ends with its stdin."""
    argv = [sys.executable, *_PROGRAM]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=nothing, start_new_session=True)


def _write(stream: IO[bytes], content: bytes) -> None:
    stream.write(len(content).to_bytes(_LENGTH_BYTES, "big"))
    stream.write(content)
    stream.flush()


def _read(stream: IO[bytes]) -> bytes | None:
    """The next message; None if the stream ends before its end."""
    length = int.from_bytes(stream.read(_LENGTH_BYTES), "big")
    content = stream.read(length) if length <= _MOST_BYTES else b""
    return content if length and len(content) == length else None


def main() -> None:
    """Read stretches until stdin ends. An error ends this process: its parent then reads the stretch itself."""
    gc.disable()
    while (question := _read(sys.stdin.buffer)) is not None:
        _write(sys.stdout.buffer, pickle.dumps(read_stretch(pickle.loads(question)), pickle.HIGHEST_PROTOCOL))


if __name__ == "__main__":
    main()
