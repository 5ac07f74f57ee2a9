"""Hosts that a Ray cluster gives: one actor on each of several nodes, which runs commands there.

Ray places, and cleans up after us; the bytes of a load never pass through it. The driver is a process of its own
(`ray_driver`), which this module starts, asks and hears; no code of Ray runs in this process. docs/decisions/0024-ray.md
says why, and what it costs.
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
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from leadline.agents.launchers.ray_driver.frames import CLUSTER, FrameReader, Kind, encode_frame, encode_object
from leadline.agents.process_end import how_ended
from leadline.errors import AgentError, EnvironmentLimit, InputError, LeadlineError, MissingBinary

PYTHON_VARIABLE = "LEADLINE_RAY_PYTHON"
"""The Python that runs the driver: that of the cluster, where it is not this one."""
MAX_HOSTS = 1000
LOST_STATUS = 255
"""The exit status of a process whose host is lost."""
_CHUNK_BYTES = 256 * 1024
_CLOSE_WITHIN_S = 20.0
"""For the driver's end; it gives itself less."""
_KILL_WITHIN_S = 2.0
"""For word of a killed process; a host that is out of reach sends none."""
_LAST_LINES = 8
_LINE_BYTES = 4096
_QUERY_KEYS = ("hosts", "wait")
# Run as a package by its folder: neither leadline nor what it imports has to be installed where a cluster's Python is.
_START_DRIVER = """
import importlib.util, sys
sys.path[:] = [path for path in sys.path if path]
folder = sys.argv[1]
spec = importlib.util.spec_from_file_location(
    "leadline_ray_driver", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules[spec.name] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from leadline_ray_driver.driver import main
main()
"""


@dataclass(frozen=True, slots=True)
class RayAddress:
    """What a `ray://` address says."""

    head: str | None
    """HEAD:PORT; without it, RAY_ADDRESS or the cluster that runs on this machine."""
    hosts: int | None
    """How many nodes; without it, all but the head."""
    nodes_within_s: float = 0.0
    """For a cluster that grows: how long to wait for so many nodes."""

    @classmethod
    def parse(cls, text: str) -> RayAddress:
        """Read `ray://[HEAD:PORT][?hosts=N][&wait=SECONDS]`.

        Raises:
            InputError: it is something else.
        """
        parts = urlsplit(text)
        form = "an address of a Ray cluster is ray://[HEAD:PORT]?hosts=50"
        try:
            port = parts.port
        except ValueError:
            port = 0
        if parts.scheme != "ray" or parts.path.strip("/") or parts.fragment or parts.username is not None:
            raise InputError(f"{text!r} names no Ray cluster", hint=form)
        if parts.netloc and (not parts.hostname or not port):
            raise InputError(f"{text!r} has no port of the head", hint=f"{form}; `ray start` prints the port, 6379")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = [key for key in query if key not in _QUERY_KEYS]
        if unknown:
            raise InputError(f"{text!r} has {unknown[0]!r}, which is none of {', '.join(_QUERY_KEYS)}", hint=form)
        head = parts.netloc or os.environ.get("RAY_ADDRESS") or None
        if head is not None and not re.fullmatch(r"(\[[^]]+\]|[^:/\s]+):\d+", head):
            raise InputError(f"RAY_ADDRESS is {head!r}, which is no HEAD:PORT", hint=form)
        return cls(head, _whole(text, query, "hosts", 1, MAX_HOSTS), float(_whole(text, query, "wait", 0, 86_400) or 0))


class RayCluster:
    """Nodes of a Ray cluster, for as long as its `async with` block."""

    hosts: list[RayHost]
    """One for each node, in the order of the placement group."""

    def __init__(self, address: RayAddress, *, place_within_s: float = 30.0, log: Path | None = None) -> None:
        """Waits `place_within_s` for nodes that are there and not free. What Ray prints is appended to `log`."""
        self.hosts = []
        self._address = address
        self._place_within_s = place_within_s
        self._log = log
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._processes: dict[int, RayProcess] = {}
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._tasks: list[asyncio.Task[None]] = []
        self._ended: str | None = None

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
        """Put a program into the cache of each host, which then runs it where a command begins with its name.

        Args:
            name: the program's, for example `leadline-agent`.
            builds: its file for each kind of machine, as `uname -m` names it.

        Raises:
            AgentError: a host has no place for it, or is of another kind; it names each such host.
        """
        files = {machine: str(path.resolve()) for machine, path in builds.items()}
        found = await self._ask(Kind.INSTALL, next(self._numbers), {"name": name, "files": files})
        troubles = []
        for host, path, problem in zip(self.hosts, found["paths"], found["problems"], strict=True):
            if problem is not None:
                troubles.append(f"{host.address}: {problem}")
            else:
                host.programs[name] = path
        if troubles:
            raise AgentError(f"{name} cannot be installed on {len(troubles)} of {len(self.hosts)} hosts: {troubles[0]}")

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
        """As `RayHost.run`."""
        number = next(self._numbers)
        self._processes[number] = process = RayProcess(self, host, number)
        try:
            await self._ask(Kind.START, number, {"host": host.position, "argv": list(argv)})
        except BaseException:
            del self._processes[number]
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
        folder = Path(__file__).parent / "ray_driver"
        pipe = asyncio.subprocess.PIPE
        try:
            # In a session of its own, so that Ctrl-C reaches this process alone.
            self._driver = await asyncio.create_subprocess_exec(
                python, "-c", _START_DRIVER, str(folder), stdin=pipe, stdout=pipe, stderr=pipe,
                start_new_session=True, limit=_CHUNK_BYTES, env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
            )  # fmt: skip
        except OSError as error:
            raise MissingBinary(python, hint=f"{PYTHON_VARIABLE} names the Python of a Ray cluster") from error
        reading = (self._read_frames(), self._read_errors())
        self._tasks = [asyncio.create_task(work) for work in reading]
        wish = {
            "address": self._address.head, "hosts": self._address.hosts,
            "nodes_within_s": self._address.nodes_within_s, "place_within_s": self._place_within_s,
        }  # fmt: skip
        placed = await self._ask(Kind.CONNECT, CLUSTER, wish)
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
        await asyncio.wait(self._tasks[1:], timeout=_KILL_WITHIN_S)
        words = " | ".join(self._last_lines)
        self._ended = f"the Ray driver ended ({how_ended(status, is_ssh=False, words=())}), as it does when the head is lost"
        if words:
            self._ended += f"; its last lines: {words}"
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(AgentError(self._ended))
        for process in list(self._processes.values()):
            process.lose(self._ended)

    def _take(self, kind: Kind, number: int, payload: bytes) -> None:
        answer, process = self._answers.get(number), self._processes.get(number)
        if kind in (Kind.PLACED, Kind.INSTALLED, Kind.STARTED) and answer is not None and not answer.done():
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
    """One node. A `Launcher`."""

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
        self.lost: str | None = None
        """Why the host is gone; None while it is not known to be."""

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
        if self.lost is not None and status == LOST_STATUS:
            return self.lost
        return how_ended(status, is_ssh=False, words=words)


class RayProcess:
    """A command on a node. A `Process`."""

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
        """Ask it to end."""
        self._send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once. A host that cannot be reached counts as lost then."""
        self._send_signal(signal.SIGKILL)
        if self.returncode is None:
            asyncio.get_running_loop().call_later(_KILL_WITHIN_S, self.lose, self._out_of_reach())

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

    def _out_of_reach(self) -> str:
        return f"its Ray node {self._host.address} is out of reach"


class RayInput:
    """The stdin of a command. A `ProcessInput`."""

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


def _whole(text: str, query: Mapping[str, str], key: str, low: int, high: int) -> int | None:
    if key not in query:
        return None
    if not query[key].isdecimal() or not low <= int(query[key]) <= high:
        raise InputError(f"{text!r}: {key} must be a number from {low} to {high}, not {query[key]!r}")
    return int(query[key])
