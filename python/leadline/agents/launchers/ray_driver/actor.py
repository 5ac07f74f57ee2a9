"""What runs on a Ray node: keeps programs in a cache, runs commands there and passes their stdio on.

Travels to the node by value, so that the node needs nothing of ours; it imports the standard library and `ray` alone.
Ray runs the calls of an asynchronous actor in any order, so each stream has one call outstanding, which carries a
number: a call that is repeated after a broken connection changes nothing and gets the same answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import hashlib
import os
import platform
import signal
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Reply = tuple[bytes, bool, bytes, bool, int | None]
"""Bytes of stdout, whether it has ended, the same of stderr, and the exit status."""

_CHUNK_BYTES = 64 * 1024
_MAX_BUFFERED_BYTES = 1024 * 1024
"""Of output that was not read yet; then the command has to wait, as at any pipe."""
_LINGER_S = 0.25
"""How long output that no input asked for waits for more: a call of Ray costs a millisecond of a CPU at each end."""
_ANSWER_S = 0.1
"""After input, for which output is taken for its answer, and passed on at once."""
_MANY_BYTES = 64 * 1024
"""Of output, which is passed on at once."""
_GRACE_S = 5.0
"""Time for a command to end after its stdin has."""
_PR_SET_PDEATHSIG = 1


class Host:
    """One node."""

    def __init__(self) -> None:
        _raise_priority()
        self._commands: dict[int, Command] = {}

    async def describe(self) -> dict[str, Any]:
        """The node: id, address, name, machine (as `uname -m` says it), pid of this actor, niceness of commands."""
        import ray  # noqa: PLC0415

        return {
            "node_id": ray.get_runtime_context().get_node_id(),
            "address": ray.util.get_node_ip_address(),
            "name": platform.node(),
            "machine": {"arm64": "aarch64"}.get(platform.machine(), platform.machine()),
            "pid": os.getpid(),
            "niceness": os.getpriority(os.PRIO_PROCESS, 0) if os.geteuid() else 0,
        }

    async def find_program(self, name: str, digest: str) -> str | None:
        """The path of a program in the cache by its SHA-256; None if it is not there, or is something else."""
        return await asyncio.to_thread(find_program, name, digest)

    async def install_program(self, name: str, digest: str, packed: bytes) -> str:
        """Write a program (packed by zlib) into the cache; returns its path.

        Raises:
            OSError: no folder for it can be written.
            ValueError: what arrived is not the program.
        """
        return await asyncio.to_thread(install_program, name, digest, packed)

    async def start(self, number: int, argv: Sequence[str]) -> None:
        """Start a command; a repeated call changes nothing.

        Raises:
            OSError: it cannot be started.
        """
        if number not in self._commands:
            self._commands[number] = command = Command()
            try:
                await command.start(argv)
            except BaseException:
                del self._commands[number]
                raise

    async def write(self, number: int, turn: int, data: bytes, last: bool) -> bool:
        """Write to a command's stdin, and close it after the `last` bytes; False if the command does not read."""
        return await self._commands[number].write(turn, data, last)

    async def read(self, number: int, turn: int) -> Reply:
        """Wait for output or for the end of a command, and return it."""
        return await self._commands[number].read(turn)

    async def send_signal(self, number: int, signal_number: int) -> None:
        """Send a signal to a command, if it still runs."""
        if number in self._commands:
            self._commands[number].send_signal(signal_number)

    async def stop(self) -> None:
        """End all commands: close their stdin, wait, end their process groups."""
        commands = list(self._commands.values())
        await asyncio.gather(*(command.end() for command in commands), return_exceptions=True)


class Command:
    """One command of a host."""

    def __init__(self) -> None:
        self._output, self._errors = _Stream(self._notify), _Stream(self._notify)
        self._news = asyncio.Event()
        self._turn_read = self._turn_written = -1
        self._reply: Reply | None = None
        self._taken = True
        self._answers_until = 0.0
        self._writing, self._reading = asyncio.Lock(), asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._status: int | None = None

    async def start(self, argv: Sequence[str]) -> None:
        """Start it in a session of its own; the kernel ends it with this process."""
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *argv, stdin=pipe, stdout=pipe, stderr=pipe, env=_own_environment(), start_new_session=True,
            preexec_fn=_child_setup(os.getpid()), cwd="/",
        )  # fmt: skip
        assert self._process.stdout is not None and self._process.stderr is not None
        works = (
            self._output.pump(self._process.stdout), self._errors.pump(self._process.stderr), self._wait()
        )  # fmt: skip
        self._tasks = [asyncio.create_task(work) for work in works]

    async def write(self, turn: int, data: bytes, last: bool) -> bool:
        """Write to stdin; see `Host.write`."""
        async with self._writing:
            if turn <= self._turn_written:
                return self._taken
            self._answers_until = time.monotonic() + _ANSWER_S
            self._notify()
            stdin = self._process.stdin
            assert stdin is not None
            try:
                stdin.write(data)
                await stdin.drain()
                if last:
                    stdin.close()
            except (BrokenPipeError, ConnectionResetError):
                self._taken = False
            self._turn_written = turn
            return self._taken

    async def read(self, turn: int) -> Reply:
        """Wait for output; see `Host.read`."""
        async with self._reading:
            if turn == self._turn_read:
                assert self._reply is not None
                return self._reply
            while not self._has_news():
                self._news.clear()
                await self._news.wait()
            await self._linger()
            self._reply = (*self._output.take(), *self._errors.take(), self._status)
            self._turn_read = turn
            return self._reply

    def send_signal(self, number: int) -> None:
        """Send it to the process."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def end(self) -> None:
        """Close its stdin, wait for it, and end its process group."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._tasks[-1]), _GRACE_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._tasks[-1]

    async def _wait(self) -> None:
        self._status = await self._process.wait()
        self._notify()

    async def _linger(self) -> None:
        """Wait for more output, unless what there is has to go at once."""
        until = time.monotonic() + _LINGER_S
        while (left := until - time.monotonic()) > 0 and not self._is_urgent():
            self._news.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)

    def _is_urgent(self) -> bool:
        streams = (self._output, self._errors)
        has_ended = self._status is not None or any(stream.has_end for stream in streams)
        has_many = any(stream.waiting_bytes >= _MANY_BYTES for stream in streams)
        return has_ended or has_many or time.monotonic() < self._answers_until

    def _has_news(self) -> bool:
        """Whether a reply would say something that the last one did not."""
        if self._output.has_news() or self._errors.has_news():
            return True
        said = self._reply[4] if self._reply is not None else None
        return self._status is not None and said is None

    def _notify(self) -> None:
        self._news.set()


class _Stream:
    """Output of a command that was not read yet, and whether the output has ended."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        self._buffer = bytearray()
        self._ended = self._said_end = False
        self._room = asyncio.Event()

    async def pump(self, source: asyncio.StreamReader) -> None:
        """Read the pipe until its end, while there is room."""
        while chunk := await source.read(_CHUNK_BYTES):
            self._buffer += chunk
            self._notify()
            while len(self._buffer) > _MAX_BUFFERED_BYTES:
                self._room.clear()
                await self._room.wait()
        self._ended = True
        self._notify()

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were not read yet."""
        return len(self._buffer)

    @property
    def has_end(self) -> bool:
        """Whether it has ended, and no reply said so."""
        return self._ended and not self._said_end

    def has_news(self) -> bool:
        """Whether there are bytes, or an end that was not said."""
        return bool(self._buffer) or self.has_end

    def take(self) -> tuple[bytes, bool]:
        """The bytes, and whether they are the last."""
        data = bytes(self._buffer)
        self._buffer.clear()
        self._room.set()
        self._said_end = self._ended
        return data, self._ended


# # --- a child's own settings ---


def _raise_priority() -> None:
    """Run this actor as other processes of the host: Ray's workers have niceness 15, and a load beside one would starve
    the messages of its agent. It takes root."""
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), 0)


def _child_setup(parent: int) -> Callable[[], None]:
    """What a child does before it becomes the command: it ends with this process, and is an ordinary process where
    Ray's workers are not (niceness 15, the first to be ended when memory runs out)."""
    libc = ctypes.CDLL(None, use_errno=True)

    def set_up() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        with contextlib.suppress(OSError):
            file = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
            os.write(file, b"0")
            os.close(file)

    return set_up


def _own_environment() -> dict[str, str]:
    """The node's variables without those that Ray sets for its workers."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RAY_") and name not in ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "CUDA_VISIBLE_DEVICES")
    }


# # --- the cache of programs ---


def cache_folders() -> list[Path]:
    """Folders that may hold the cache, the best one first: the same as for hosts of other launchers. Those below
    /var/tmp, /tmp and /dev/shm must be the user's own: anyone can make them."""
    variables = os.environ
    own = [variables.get("XDG_CACHE_HOME"), f"{variables['HOME']}/.cache" if variables.get("HOME") else None]
    shared = [Path(f"{folder}/leadline-{os.geteuid()}") for folder in ("/var/tmp", "/tmp", "/dev/shm")]
    usable = [folder for folder in shared if not folder.exists() or _is_own(folder)]
    return [folder / "leadline" / "agents" for folder in (*(Path(folder) for folder in own if folder), *usable)]


def find_program(name: str, digest: str) -> str | None:
    """Find a program by its hash; see `Host.find_program`."""
    for folder in cache_folders():
        path = folder / digest / name
        with contextlib.suppress(OSError):
            if _is_own(path) and os.access(path, os.X_OK) and _digest(path) == digest:
                return str(path)
    return None


def install_program(name: str, digest: str, packed: bytes) -> str:
    """Write a program into the cache; see `Host.install_program`."""
    refusals = []
    for folder in cache_folders():
        path = folder / digest / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not _is_own(path.parent):
                refusals.append(f"{path.parent} belongs to another user")
                continue
            _write_program(path, digest, packed)
            if os.access(path, os.X_OK):
                return str(path)
            refusals.append(f"{path}: no program may run from its filesystem")
        except OSError as error:
            refusals.append(f"{path.parent}: {error.strerror}")
    raise OSError("it has no folder for the program: " + "; ".join(refusals))


def _write_program(path: Path, digest: str, packed: bytes) -> None:
    """Write it beside its place, check what was written, and put it there at once."""
    file, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        unpacker = zlib.decompressobj()
        with os.fdopen(file, "wb") as new:
            for at in range(0, len(packed), _CHUNK_BYTES):
                new.write(unpacker.decompress(packed[at : at + _CHUNK_BYTES]))
            new.write(unpacker.flush())
            os.fchmod(new.fileno(), 0o755)
        if (found := _digest(Path(name))) != digest:
            raise ValueError(f"{path}: what was written has the SHA-256 {found}, not {digest}")
        os.rename(name, path)  # noqa: PTH104
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)  # noqa: PTH108
        raise


def _digest(path: Path) -> str:
    summed = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1024 * 1024):
            summed.update(block)
    return summed.hexdigest()


def _is_own(path: Path) -> bool:
    return path.stat().st_uid == os.geteuid()
