"""Hosts that a Ray cluster gives: one actor on each of several nodes, which runs commands there.

Ray places, and cleans up after us; the bytes of a load never pass through it. The driver is a process of its own
(`ray_driver`), which this module starts, asks and hears; no code of Ray runs in this process. Why, and what it costs:
docs/decisions/0024-ray.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

from leadline.agents.launchers.processes import HERE
from leadline.agents.launchers.ray_driver.frames import CLUSTER, FrameReader, Kind, encode_frame, encode_object
from leadline.errors import AgentError, EnvironmentLimit, InputError, LeadlineError, MissingBinary

PYTHON_VARIABLE = "LEADLINE_RAY_PYTHON"
"""The Python that runs the driver: that of the cluster, where it is not this one."""
PLACE_WITHIN_S = 30.0
LOST_STATUS = 255
"""The exit status of a process whose host is lost."""
_CHUNK_BYTES = 256 * 1024
_CONNECT_WITHIN_S = 30.0
"""For a driver to connect. Ray repeats its own attempts without an end, where no node runs beside it."""
_CLOSE_WITHIN_S = 20.0
"""For the driver's end; it gives itself less."""
_KILL_WITHIN_S = 5.0
"""For word of a killed process; a host that is out of reach sends none."""
_LAST_WORDS_WITHIN_S = 2.0
"""For the rest of what a driver that ended has printed."""
_LAST_LINES = 8
_LINE_BYTES = 4096
_HEAD = re.compile(r"(\[[^]]+\]|[^:/\s]+):\d+")
_DRIVER_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # The actor travels as bytecode, which is the same for all patches of a Python.
    "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL": "minor",
}
# Neither leadline nor what it imports has to be installed where a cluster's Python is: the packages above the driver's
# are empty there.
_START_DRIVER = """
import sys, types
if sys.version_info < (3, 11):
    sys.exit("Python 3.11 or newer is needed, and this is " + sys.version.split()[0])
sys.path[:] = [path for path in sys.path if path]
name, folder = "leadline", sys.argv[1]
for below in ("agents", "launchers", None):
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = [folder]
    name, folder = f"{name}.{below}", f"{folder}/{below}"
from leadline.agents.launchers.ray_driver.driver import main
main()
"""


class RayCluster:
    """Nodes of a Ray cluster, for as long as its `async with` block."""

    hosts: list[RayHost]
    """One for each node, in the order of the placement group."""

    def __init__(
        self, head: str | None, hosts: int, *, place_within_s: float = PLACE_WITHIN_S, log: Path | None = None
    ) -> None:
        """Nothing is connected yet.

        Args:
            head: HEAD:PORT; None for RAY_ADDRESS, or else for the cluster that runs on this machine.
            hosts: how many nodes.
            place_within_s: time limit for nodes that are there and not free.
            log: what Ray prints is appended to this file.
        """
        self.hosts = []
        self._head = head
        self._count = hosts
        self._place_within_s = place_within_s
        self._log = log
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._processes: dict[int, RayProcess] = {}
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_connected = asyncio.Event()
        self._ended: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether its driver has ended: nothing more can be started there."""
        return self._ended is not None

    async def __aenter__(self) -> RayCluster:
        """Connect, and start an actor on each node.

        Raises:
            InputError: there is no such cluster, it has too few nodes, or its versions are others.
            MissingBinary: Ray, or the Python that the variable names, is not installed.
            AgentError: the cluster gave no nodes, or an actor did not start.
        """
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def install(self, name: str, builds: Mapping[str, Path]) -> None:
        """Put a program into the cache of each host, which then runs it where a command begins with its name. A host
        that does not take it has the reason in its `refusals`.

        Args:
            name: the program's, for example `leadline-agent`.
            builds: its file for each kind of machine, as `uname -m` names it.

        Raises:
            AgentError: the cluster is gone.
        """
        files = {machine: str(path.resolve()) for machine, path in builds.items()}
        found = await self._ask(Kind.INSTALL, next(self._numbers), {"name": name, "files": files})
        for host, path, problem in zip(self.hosts, found["paths"], found["problems"], strict=True):
            if path is not None:
                host.programs[name] = path
            else:
                host.refusals[name] = problem

    async def close(self) -> None:
        """End all commands and actors, and give the nodes back. May be called again."""
        driver = getattr(self, "_driver", None)
        if driver is None:
            return
        if driver.returncode is None:
            with contextlib.suppress(ConnectionError):
                driver.stdin.write(encode_frame(Kind.CLOSE, CLUSTER))
                driver.stdin.close()
            try:
                async with asyncio.timeout(_CLOSE_WITHIN_S):
                    await driver.wait()
            except TimeoutError:
                driver.kill()
                await driver.wait()
        await asyncio.wait(self._tasks, timeout=_CLOSE_WITHIN_S)
        for task in self._tasks:
            task.cancel()

    # # --- for processes ---

    async def start(self, host: RayHost, argv: Sequence[str]) -> RayProcess:
        """Start a command on a host; see `RayHost.run`."""
        number = next(self._numbers)
        self._processes[number] = process = RayProcess(self, host, number)
        try:
            await self._ask(Kind.START, number, {"host": host.position, "argv": list(argv)})
        except BaseException as error:
            del self._processes[number]
            if isinstance(error, asyncio.CancelledError):
                with contextlib.suppress(ConnectionError):
                    self.send(encode_object(Kind.SIGNAL, number, {"signal": int(signal.SIGKILL)}))
            raise
        return process

    def send(self, frame: bytes) -> None:
        """Send the driver a frame."""
        assert self._driver.stdin is not None
        self._driver.stdin.write(frame)

    async def drain(self) -> None:
        """Wait until the driver reads.

        Raises:
            ConnectionError: it is gone.
        """
        assert self._driver.stdin is not None
        await self._driver.stdin.drain()

    # # --- the driver ---

    async def _open(self) -> None:
        named = os.environ.get(PYTHON_VARIABLE)
        python = named or sys.executable
        folder = Path(__file__).parents[2]
        pipe = asyncio.subprocess.PIPE
        try:
            # In a session of its own, so that Ctrl-C reaches this process alone.
            self._driver = await asyncio.create_subprocess_exec(
                python, "-c", _START_DRIVER, str(folder), stdin=pipe, stdout=pipe, stderr=pipe,
                start_new_session=True, limit=_CHUNK_BYTES, env={**_DRIVER_VARIABLES, **os.environ},
            )  # fmt: skip
        except OSError as error:
            raise MissingBinary(python, hint=f"{PYTHON_VARIABLE} names the Python of a Ray cluster") from error
        reading = (self._read_frames(), self._read_errors())
        self._tasks = [asyncio.create_task(work) for work in reading]
        wish = {
            "address": self._head or _address_of_environment(), "hosts": self._count,
            "place_within_s": self._place_within_s,
        }  # fmt: skip
        asking = asyncio.create_task(self._ask(Kind.CONNECT, CLUSTER, wish))
        connecting = asyncio.create_task(self._is_connected.wait())
        try:
            await asyncio.wait({asking, connecting}, timeout=_CONNECT_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done() and not connecting.done():
                self._driver.kill()
                where = f"at {self._head}" if self._head else "of this machine"
                raise EnvironmentLimit(
                    f"the Ray cluster {where} let no driver in within {_CONNECT_WITHIN_S:g} s",
                    hint="a driver needs a living node beside it: run this on the head, or on another node",
                )
            placed = await asking
        finally:
            asking.cancel()
            connecting.cancel()
        self.hosts = [RayHost(self, position, facts) for position, facts in enumerate(placed["hosts"])]

    async def _ask(self, kind: Kind, number: int, wish: dict[str, Any]) -> dict[str, Any]:
        if self._ended is not None:
            raise AgentError(self._ended)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            with contextlib.suppress(ConnectionError):  # the reader says why
                self.send(encode_object(kind, number, wish))
            return await answer
        finally:
            self._answers.pop(number, None)

    async def _read_frames(self) -> None:
        assert self._driver.stdout is not None
        frames = FrameReader()
        while data := await self._driver.stdout.read(_CHUNK_BYTES):
            for kind, number, payload in frames.feed(data):
                self._take(kind, number, payload)
        status = await self._driver.wait()
        await asyncio.wait(self._tasks[1:], timeout=_LAST_WORDS_WITHIN_S)
        words = " | ".join(self._last_lines)
        why = ", as it does when the head is lost" if self.hosts else ""
        self._ended = f"the Ray driver ended ({HERE.describe_end(status, ())}){why}"
        if words:
            self._ended += f"; its last lines: {words}"
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(AgentError(self._ended))
        for process in list(self._processes.values()):
            process.lose(self._ended)

    def _take(self, kind: Kind, number: int, payload: bytes) -> None:
        answer, process = self._answers.get(number), self._processes.get(number)
        if kind is Kind.CONNECTED:
            self._is_connected.set()
        elif kind in (Kind.PLACED, Kind.INSTALLED, Kind.STARTED) and answer is not None and not answer.done():
            answer.set_result(json.loads(payload))
        elif kind is Kind.REFUSED and answer is not None and not answer.done():
            answer.set_exception(_failure(json.loads(payload)))
        elif process is not None:
            process.take(kind, payload)
            if process.is_over:
                del self._processes[number]

    async def _read_errors(self) -> None:
        """Keep what Ray prints off our stderr: in the log, and the last lines for a message."""
        assert self._driver.stderr is not None
        rest = b""
        while chunk := await self._driver.stderr.read(_CHUNK_BYTES):
            if self._log is not None:
                with contextlib.suppress(OSError), self._log.open("ab") as file:
                    file.write(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[:_LINE_BYTES]
            self._last_lines.extend(line.decode(errors="replace").strip()[:300] for line in lines if line.strip())


class RayHost:
    """One node. A `Launcher` (see `model`)."""

    is_remote = True

    def __init__(self, cluster: RayCluster, position: int, facts: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self.position = position
        self.node_id: str = facts["node_id"]
        """Ray's name of the node, hexadecimal."""
        self.address: str = facts["address"]
        """IP address by which the nodes of the cluster reach it."""
        self.name: str = facts["name"]
        """Host name."""
        self.machine: str = facts["machine"]
        """As `uname -m` names it, for example `x86_64`."""
        self.niceness: int = facts["niceness"]
        """Of the commands; Ray runs its workers at 15, and only a cluster that runs as root can take that back."""
        self.programs: dict[str, str] = {}
        """Path on the host of each installed program."""
        self.refusals: dict[str, str] = {}
        """Why it does not have a program."""
        self.lost: str | None = None
        """Why the host is gone; None while it is not known to be."""
        self.last_loss: str | None = None
        """Why the last process that ended without a word did so."""

    async def run(self, argv: Sequence[str]) -> RayProcess:
        """Start a command on the host; an installed program is found by its name.

        Raises:
            OSError: its program cannot be started there.
            AgentError: the host, or the cluster, is gone.
        """
        program, *words = argv
        return await self._cluster.start(self, [self.programs.get(program, program), *words])

    def describe_end(self, status: int, words: Iterable[str]) -> str:
        """How a process with this status ended: with its host, or by itself."""
        if self.last_loss is not None and status == LOST_STATUS:
            return self.last_loss
        return HERE.describe_end(status, words)


class RayProcess:
    """A command on a node. A `Process` (see `model`)."""

    def __init__(self, cluster: RayCluster, host: RayHost, number: int) -> None:
        self._cluster = cluster
        self._host = host
        self.number = number
        self.stdin = RayInput(cluster, number)
        self.stdout = asyncio.StreamReader()
        self.stderr = asyncio.StreamReader()
        self.returncode: int | None = None
        self._has_ended = asyncio.Event()
        self._open = {Kind.OUTPUT: self.stdout, Kind.ERRORS: self.stderr}

    @property
    def is_over(self) -> bool:
        """Whether nothing more can come of it."""
        return self.returncode is not None and not self._open

    async def wait(self) -> int:
        """Wait for its end, and return its status; `LOST_STATUS` where its host was lost."""
        await self._has_ended.wait()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        """Ask it to end; see `Process`."""
        self._check_running()
        self._send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once; see `Process`. It counts as ended if its host does not answer."""
        self._check_running()
        self._send_signal(signal.SIGKILL)
        reason = f"its Ray node {self._host.address} is out of reach"
        asyncio.get_running_loop().call_later(_KILL_WITHIN_S, self._end_unheard, reason)

    def take(self, kind: Kind, payload: bytes) -> None:
        """A frame of the driver about it."""
        match kind:
            case Kind.OUTPUT | Kind.ERRORS:
                stream = self._open.get(kind)
                if stream is not None and payload:
                    stream.feed_data(payload)
                elif stream is not None:
                    stream.feed_eof()
                    del self._open[kind]
            case Kind.EXITED:
                self._end(int(json.loads(payload)["status"]))
            case Kind.CLOSE_INPUT:
                self.stdin.is_broken = True
            case Kind.LOST:
                self.lose(str(json.loads(payload)["reason"]))
            case _:
                pass

    def lose(self, reason: str) -> None:
        """Its host is gone; a process that has ended stays as it is."""
        if self.returncode is None:
            self._host.lost = self._host.lost or reason
        self._end_unheard(reason)

    def _end_unheard(self, reason: str) -> None:
        """Take it as ended, though no word of it came."""
        if self.returncode is None:
            self._host.last_loss = reason
        for stream in self._open.values():
            stream.feed_eof()
        self._open.clear()
        self._end(LOST_STATUS)

    def _end(self, status: int) -> None:
        if self.returncode is None:
            self.returncode = status
            self.stdin.is_broken = True
            self._has_ended.set()

    def _send_signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ConnectionError):
            self._cluster.send(encode_object(Kind.SIGNAL, self.number, {"signal": int(number)}))

    def _check_running(self) -> None:
        if self.returncode is not None:
            raise ProcessLookupError


class RayInput:
    """The stdin of a command. An `Input` (see `model`)."""

    def __init__(self, cluster: RayCluster, number: int) -> None:
        self._cluster = cluster
        self._number = number
        self._is_closed = False
        self.is_broken = False
        """Whether the command does not read any more."""

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if not self._is_closed and not self.is_broken and data:
            self._cluster.send(encode_frame(Kind.INPUT, self._number, data))

    async def drain(self) -> None:
        """Wait until few bytes wait.

        Raises:
            BrokenPipeError: the command does not read any more, or is gone.
        """
        if self.is_broken or self._is_closed:
            raise BrokenPipeError
        await self._cluster.drain()

    def close(self) -> None:
        """End it after what was written."""
        if not self._is_closed and not self.is_broken:
            with contextlib.suppress(ConnectionError):
                self._cluster.send(encode_frame(Kind.CLOSE_INPUT, self._number))
        self._is_closed = True


def _failure(facts: Mapping[str, Any]) -> Exception:
    message, hint = facts["message"], facts["hint"]
    if facts["code"] == "os":
        return OSError(facts["errno"], message)
    kinds: dict[str, type[LeadlineError]] = {"input": InputError, "missing": EnvironmentLimit}
    return kinds.get(facts["code"], AgentError)(message, hint=hint)


def _address_of_environment() -> str | None:
    named = os.environ.get("RAY_ADDRESS") or None
    if named not in (None, "auto") and not _HEAD.fullmatch(named):
        raise InputError(f"RAY_ADDRESS is {named!r}, which is no HEAD:PORT", hint="name the head: ray://HEAD:PORT")
    return None if named == "auto" else named
