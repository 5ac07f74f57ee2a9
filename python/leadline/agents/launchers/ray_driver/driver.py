"""The program: reads frames from its stdin, obeys, and writes frames to its stdout.

What Ray prints goes to its stderr. The end of its stdin ends it, after it has ended all commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import sys
import zlib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from leadline.agents.launchers.ray_driver.cluster import Cluster, Lost, PlacedHost, Refusal
from leadline.agents.launchers.ray_driver.frames import CLUSTER, FrameReader, Kind, encode_frame, encode_object

_CHUNK_BYTES = 256 * 1024
_MAX_WRITE_BYTES = 1024 * 1024
_MAX_WAITING_BYTES = 16 * 1024 * 1024
"""For a command that does not read its stdin."""
_CLOSE_WITHIN_S = 8.0
"""For the end of all commands, and again for giving the nodes back."""
_PACK_LEVEL = 1


def main() -> None:
    """Run until stdin ends."""
    # A child of ours, or Ray, may write to descriptor 1: frames have a descriptor that no other code knows.
    frames_out = os.dup(1)
    os.dup2(2, 1)
    # Ctrl-C is the controller's; it ends this process by ending its stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Not asyncio.run, nor an ordinary exit: both would wait for threads that wait for a cluster.
    asyncio.new_event_loop().run_until_complete(Driver().run(frames_out))
    sys.stderr.flush()
    os._exit(0)


class Driver:
    """The conversation with the controller."""

    def __init__(self) -> None:
        self._cluster = Cluster()
        self._relays: dict[int, Relay] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    async def run(self, frames_out: int) -> None:
        """Obey frames until stdin ends or asks to close."""
        loop = asyncio.get_running_loop()
        stdin = asyncio.StreamReader(limit=4 * _CHUNK_BYTES)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin.buffer)
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(frames_out, "wb", buffering=0)
        )
        self._out = asyncio.StreamWriter(transport, protocol, None, loop)
        frames = FrameReader()
        while not self._closing and (data := await stdin.read(_CHUNK_BYTES)):
            for kind, number, payload in frames.feed(data):
                self._take(kind, number, payload)
        for task in self._tasks:
            task.cancel()
        problems = await self._cluster.close(_CLOSE_WITHIN_S)
        with contextlib.suppress(ConnectionError):
            await self.send(encode_object(Kind.CLOSED, CLUSTER, {"problems": problems}))

    async def send(self, frame: bytes) -> None:
        """Write a frame and wait until there is room for the next."""
        self._out.write(frame)
        await self._out.drain()

    def _take(self, kind: Kind, number: int, payload: bytes) -> None:
        relay = self._relays.get(number)
        match kind:
            case Kind.CONNECT:
                self._spawn(self._answer(number, self._connect(json.loads(payload))))
            case Kind.INSTALL:
                self._spawn(self._answer(number, self._install(number, json.loads(payload))))
            case Kind.START:
                wish = json.loads(payload)
                host = self._cluster.hosts[wish["host"]]
                self._relays[number] = relay = Relay(self, self._cluster, host, number)
                self._spawn(self._answer(number, relay.run(wish["argv"])))
            case Kind.INPUT if relay is not None:
                relay.write(payload)
            case Kind.CLOSE_INPUT if relay is not None:
                relay.close_input()
            case Kind.SIGNAL if relay is not None:
                self._spawn(relay.send_signal(json.loads(payload)["signal"]))
            case Kind.CLOSE:
                self._closing = True
            case _:
                pass  # for a command that has ended

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, number: int, work: Coroutine[Any, Any, None]) -> None:
        """Do a request; a failure is its answer."""
        try:
            await work
        except Refusal as refusal:
            facts = {"message": refusal.message, "hint": refusal.hint, "code": refusal.code, "errno": refusal.errno}
            await self.send(encode_object(Kind.REFUSED, number, facts))
        except Exception as error:
            facts = {"message": f"{type(error).__name__}: {error}", "hint": None, "code": "failed", "errno": None}
            await self.send(encode_object(Kind.REFUSED, number, facts))
        finally:
            self._relays.pop(number, None)

    async def _connect(self, wish: dict[str, Any]) -> None:
        await asyncio.to_thread(self._cluster.connect, wish["address"])
        await self.send(encode_object(Kind.CONNECTED, CLUSTER, {}))
        await self._cluster.place(wish["hosts"], wish["place_within_s"])
        self._spawn(self._cluster.watch())
        await self.send(encode_object(Kind.PLACED, CLUSTER, {"hosts": [host.facts for host in self._cluster.hosts]}))

    async def _install(self, number: int, wish: dict[str, Any]) -> None:
        """Put one program, in a build for each kind of machine, into the cache of each host that lacks it."""
        builds = {machine: _Build(Path(file), self._cluster) for machine, file in wish["files"].items()}

        async def install(host: PlacedHost) -> str:
            build = builds.get(host.facts["machine"])
            if build is None:
                known = ", ".join(builds) or "none"
                raise Refusal(f"its machine is {host.facts['machine']}, and {wish['name']} is here for {known}")
            digest = await build.digest()
            path = await self._cluster.call(host, "find_program", wish["name"], digest)
            if path is None:
                packed = await build.reference()
                path = await self._cluster.call(host, "install_program", wish["name"], digest, packed)
            return str(path)

        found = await asyncio.gather(*map(install, self._cluster.hosts), return_exceptions=True)
        paths = [None if isinstance(one, BaseException) else one for one in found]
        problems = [str(one) if isinstance(one, BaseException) else None for one in found]
        await self.send(encode_object(Kind.INSTALLED, number, {"paths": paths, "problems": problems}))


class _Build:
    """A program for one kind of machine: read, packed and stored once, and only if a host lacks it."""

    def __init__(self, file: Path, cluster: Cluster) -> None:
        self._file = file
        self._cluster = cluster
        self._lock = asyncio.Lock()
        self._content: bytes | None = None
        self._digest = ""
        self._reference: Any = None

    async def digest(self) -> str:
        """Its SHA-256."""
        async with self._lock:
            if self._content is None:
                self._content = await asyncio.to_thread(self._file.read_bytes)
                self._digest = await asyncio.to_thread(lambda data: hashlib.sha256(data).hexdigest(), self._content)
        return self._digest

    async def reference(self) -> Any:
        """Where the object store has it, packed."""
        async with self._lock:
            if self._reference is None:
                packed = await asyncio.to_thread(zlib.compress, self._content or b"", _PACK_LEVEL)
                self._reference = await asyncio.to_thread(self._cluster.store, packed)
        return self._reference


class Relay:
    """The stdio of one command. At most one call is outstanding for each direction; what is written meanwhile goes
    together into the next."""

    def __init__(self, driver: Driver, cluster: Cluster, host: PlacedHost, number: int) -> None:
        self._driver, self._cluster, self._host, self._number = driver, cluster, host, number
        self._waiting = bytearray()
        self._input_ends = False
        self._more = asyncio.Event()

    def write(self, data: bytes) -> None:
        """Send bytes to its stdin."""
        self._waiting += data
        self._more.set()

    def close_input(self) -> None:
        """End its stdin after what was written."""
        self._input_ends = True
        self._more.set()

    async def send_signal(self, number: int) -> None:
        """Send it a signal, if its host can be reached."""
        with contextlib.suppress(Exception):
            await self._cluster.call(self._host, "send_signal", self._number, number)

    async def run(self, argv: list[str]) -> None:
        """Start the command and relay until its end.

        Raises:
            Refusal: it cannot be started.
        """
        try:
            await self._cluster.call(self._host, "start", self._number, argv)
        except Lost as lost:
            raise Refusal(str(lost)) from lost
        except OSError as error:
            raise Refusal(error.strerror or str(error), None, "os", error.errno) from error
        await self._driver.send(encode_object(Kind.STARTED, self._number, {}))
        writing = asyncio.create_task(self._write())
        try:
            await self._read()
        except Lost as lost:
            await self._driver.send(encode_object(Kind.LOST, self._number, {"reason": str(lost)}))
        finally:
            writing.cancel()

    async def _read(self) -> None:
        turn, status, ended = 0, None, (False, False)
        while status is None or ended != (True, True):
            output, output_ended, errors, errors_ended, status = await self._cluster.call(
                self._host, "read", self._number, turn
            )
            turn += 1
            parts = (
                (Kind.OUTPUT, output, output_ended, ended[0]),
                (Kind.ERRORS, errors, errors_ended, ended[1]),
            )
            for kind, data, has_ended, was_ended in parts:
                if data:
                    await self._driver.send(encode_frame(kind, self._number, data))
                if has_ended and not was_ended:
                    await self._driver.send(encode_frame(kind, self._number))
            ended = (output_ended, errors_ended)
            if status is not None:
                await self._driver.send(encode_object(Kind.EXITED, self._number, {"status": status}))

    async def _write(self) -> None:
        turn = 0
        is_last = False
        while not is_last:
            while not self._waiting and not self._input_ends:
                self._more.clear()
                await self._more.wait()
            data = bytes(self._waiting[:_MAX_WRITE_BYTES])
            del self._waiting[:_MAX_WRITE_BYTES]
            is_last = self._input_ends and not self._waiting
            try:
                is_taken = await self._cluster.call(self._host, "write", self._number, turn, data, is_last)
            except Lost:
                return  # the reader says so
            turn += 1
            if not is_taken or len(self._waiting) > _MAX_WAITING_BYTES:
                await self._driver.send(encode_frame(Kind.CLOSE_INPUT, self._number))
                return
