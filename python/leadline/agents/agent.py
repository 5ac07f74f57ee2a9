"""One agent: sends commands, receives events, and detects when the agent is lost.

Owns the conversation over one `channel`, and the events of each task so far. Every event goes to `sink` first, so
that the events of a lost agent are kept. A line that violates the contract ends the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from leadline import __version__
from leadline.agents.channel import GRACE_S, Channel
from leadline.agents.clocks import ClockComparison, Exchange, compare
from leadline.agents.launch import Launch, named
from leadline.agents.messages import (
    PROTOCOL_VERSION,
    Command,
    ContractEvent,
    Event,
    MalformedLine,
    UnreadObservation,
    Workload,
    encode,
    greeting_of_another,
    parse_event,
)
from leadline.agents.observations import ObservationShapes
from leadline.agents.tasks import TaskLog
from leadline.contract.models import (
    Clock,
    ClockReply,
    ControllerHeartbeat,
    Exited,
    Failed,
    Finished,
    Heartbeat,
    Hello,
    Inspect,
    MeasureWakeUp,
    NetworkReply,
    NetworkView,
    ObservationEvent,
    Observe,
    OutputLine,
    Pid,
    Prepare,
    Prepared,
    Profiled,
    Shutdown,
    Start,
    Stop,
    WakeUpFacts,
    WakeUpReply,
)
from leadline.errors import AgentError, AgentLost, MissingBinary, TaskFailed
from leadline.masking import mask_line

Sink = Callable[[str, Event, bytes], None]
"""Receives the host's name, an event, and the agent's line for it without the line end."""

T = TypeVar("T")
Reply = TypeVar("Reply", ClockReply, NetworkReply, WakeUpReply)

SILENCE_S = 10.0
"""An agent sends a heartbeat each second; after ten missed ones it is lost. The end of its process is noticed at
once."""
TELL_SILENCE_S = 4.0
"""From when on a silent agent is reported."""
WATCH_PERIOD_S = 0.5
HEARTBEAT_PERIOD_S = 1.0
"""Between two heartbeats to a remote agent, which ends after twenty that it misses."""
ANSWER_WITHIN_S = 10.0


_SAME_VERSION = (
    f"this is leadline {__version__} with protocol {PROTOCOL_VERSION}: install the agent that belongs to this leadline"
)


class Agent:
    """A started agent. Create it with `start`, end it with `close`."""

    name: str
    hello: Hello
    lost: AgentLost | None

    def __init__(
        self, name: str, channel: Channel, sink: Sink, kept: Collection[str] = (), place: str | None = None
    ) -> None:
        """Masks secrets in the agent's lines, except those of the names `kept`. `place` is what people call the host
        beside its role."""
        self.name = name
        self._shown = named(name, place)
        self._kept = kept
        self.lost = None
        self._channel = channel
        self._sink = sink
        self._failure: Exception | None = None
        self._failed = asyncio.Event()
        self._closing = False
        self._on_silence: Callable[[str, float], None] = lambda *_: None
        self._greeting: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._tasks: dict[tuple[str, str], TaskLog] = {}
        self._ids = count(1)
        self._answers: dict[tuple[type[Event], int], asyncio.Future[tuple[Any, int]]] = {}
        self._shapes = ObservationShapes()
        self._beats = 0
        self._reader = asyncio.create_task(self._read_events(), name=f"{name} events")
        self._heart: asyncio.Task[None] | None = None
        self._watcher = asyncio.create_task(self._watch_heartbeat(), name=f"{name} heartbeat")

    @classmethod
    async def start(
        cls,
        name: str,
        launch: Launch,
        *,
        sink: Sink,
        logs: Path | None = None,
        kept: Collection[str] = (),
        on_silence: Callable[[str, float], None] = lambda *_: None,
    ) -> Agent:
        """Start the process and wait for its `hello`. `sink` receives every event, in order, with the host's name and
        the agent's line, in which secrets are masked, except those of the names `kept`. Its stderr is appended to a
        file in the folder `logs`, if one is given. `on_silence` is called with the host and the time, s, when nothing
        was heard for a while; the agent may come back.

        Raises:
            MissingBinary: the first program of the command is missing here.
            AgentLost: it ended, sent something else, sent nothing in time, or has another protocol version.
        """
        try:
            log = None if logs is None else logs / f"agent-{name.replace(' ', '-')}.log"
            channel = await Channel.open(launch, log)
        except (FileNotFoundError, PermissionError) as error:
            raise MissingBinary(error.filename or launch.argv[0], hint=f"it starts the agent on {name}") from error
        except OSError as error:
            raise AgentLost(
                named(name, launch.place), f"{error.filename or launch.argv[0]} cannot be started: {error.strerror}"
            ) from error
        except AgentError as error:  # its launcher has lost the host
            raise AgentLost(named(name, launch.place), error.message) from error
        agent = cls(name, channel, sink, kept, launch.place)
        agent._on_silence = on_silence
        if launch.launcher.is_remote:
            agent._heart = asyncio.create_task(agent._send_heartbeats(), name=f"{name} heartbeats to it")
        try:
            await agent._greet(launch.hello_within_s)
        except BaseException:
            agent._closing = True
            await agent._end(grace_s=0)
            raise
        return agent

    async def prepare(self, trial: str, task: str, workload: Workload, timeout_s: float = ANSWER_WITHIN_S) -> Prepared:
        """Prepare a task; discards the events of an earlier task with that name.

        Raises:
            TaskFailed: the agent could not, or (code `timeout`) did not answer in time.
            AgentLost: it is gone.
        """
        self._tasks[trial, task] = TaskLog()
        # Not validated: the workload is, and the command's own model is built of all workloads.
        await self._send(Prepare.model_construct(trial=trial, task=task, workload=workload))
        return await self._until(trial, task, lambda log: log.prepared, timeout_s=timeout_s, what="it to be ready")

    async def begin(self, trial: str, at_ns: int) -> None:
        """Start the trial's prepared measuring tasks at `at_ns` on this agent's clock."""
        await self._send(Start(trial=trial, at_ns=max(0, at_ns)))

    async def stop(self, trial: str, task: str | None = None) -> None:
        """Ask one task to end, or all of the trial's. `finished` or `exited` wait for the end itself."""
        await self._send(Stop(trial=trial, task=task))

    async def finished(self, trial: str, task: str, timeout_s: float) -> Finished:
        """The figures of a measuring task; waits for its end.

        Raises:
            TaskFailed: it failed, or (code `timeout`) did not end in time.
            AgentLost: the agent is gone.
        """
        return await self._until(trial, task, lambda log: log.finished, timeout_s=timeout_s, what="its end")

    async def exited(self, trial: str, task: str, timeout_s: float | None = None) -> Exited:
        """The exit status of a process task; waits for its end, without limit by default.

        Raises:
            TaskFailed: it could not be started, or (code `timeout`) is still running.
            AgentLost: the agent is gone.
        """
        return await self._until(trial, task, lambda log: log.exited, timeout_s=timeout_s, what="its exit")

    async def profiled(self, trial: str, task: str, timeout_s: float) -> Profiled:
        """The result of a profile; waits until it has stopped.

        Raises:
            TaskFailed: it failed, or (code `timeout`) did not end in time.
            AgentLost: the agent is gone.
        """
        return await self._until(trial, task, lambda log: log.profiled, timeout_s=timeout_s, what="its profile")

    async def output(self, trial: str, task: str, containing: str | Sequence[str], timeout_s: float) -> OutputLine:
        """The first reported line of a process that contains the text (or one of several); past lines count too.

        Raises:
            TaskFailed: the process ended first (code `exited`), or did not print it in time (code `timeout`).
            AgentLost: the agent is gone.
        """
        texts = (containing,) if isinstance(containing, str) else tuple(containing)

        def found(log: TaskLog) -> OutputLine | None:
            line = next((line for line in log.lines if any(text in line.line for text in texts)), None)
            if line is None and log.exited is not None:
                raise TaskFailed(self.name, task, "exited", log.how_it_ended())
            return line

        return await self._until(
            trial, task, found, timeout_s=timeout_s, what=f"the line {' or '.join(map(repr, texts))}"
        )

    def lines(self, trial: str, task: str) -> tuple[OutputLine, ...]:
        """The lines that a process task has reported so far."""
        log = self._tasks.get((trial, task))
        return tuple(log.lines) if log else ()

    async def observe(
        self,
        trial: str | None,
        period_ms: int,
        machine: bool,
        *,
        pids: Sequence[int] = (),
        programs: Sequence[str] = (),
        soak: bool = False,
    ) -> None:
        """Sample the host from now on; a period of 0 ends it. `pids` and `programs` name processes to sample in
        addition to the agent's own; with `soak`, a thread on each CPU counts what is left of it."""
        order = Observe(
            trial=trial,
            period_ms=period_ms,
            machine=machine,
            pids=list(map(Pid, pids)),
            programs=list(programs),
            soak=soak,
        )
        await self._send(order)

    async def measure_wake_up(self, timeout_s: float = ANSWER_WITHIN_S) -> WakeUpFacts | None:
        """How long an idle CPU of the host takes to wake up, measured now, in under half a second; None if the host
        is too busy to tell.

        Raises:
            AgentLost: the agent is gone, or does not answer in `timeout_s`.
        """
        reply, _ = await self._ask(WakeUpReply, MeasureWakeUp(id=next(self._ids)), timeout_s)
        return reply.found

    async def inspect(self, timeout_s: float = ANSWER_WITHIN_S) -> NetworkView:
        """Addresses and routes as they are now.

        Raises:
            AgentLost: the agent is gone, or does not answer in `timeout_s`.
        """
        number = next(self._ids)
        reply, _ = await self._ask(NetworkReply, Inspect(id=number), timeout_s)
        return reply.view

    async def compare_clocks(self, exchanges: int = 32) -> ClockComparison:
        """Compare this agent's clock with the controller's, by `exchanges` exchanges in turn.

        Raises:
            AgentLost: the agent is gone, or does not answer.
        """
        taken: list[Exchange] = []
        for _ in range(exchanges):
            number = next(self._ids)
            sent_ns = time.monotonic_ns()
            reply, back_ns = await self._ask(ClockReply, Clock(id=number), ANSWER_WITHIN_S)
            taken.append(Exchange(sent_ns, reply.received_ns, reply.sent_ns, back_ns))
        own = _own_boot_id()
        return compare(self.name, taken, same_boot=own is not None and own == self.hello.host.boot_id)

    async def failure(self) -> Exception:
        """Wait until the agent is lost or its sink fails, and return the error. Waits forever otherwise, and after
        `close`."""
        while self._failure is None:
            await self._failed.wait()
        return self._failure

    async def close(self) -> None:
        """Ask the agent to shut down, then kill it. The sink still receives its last events. May be called again."""
        self._closing = True
        if self._failure is None and not self._channel.ended:
            with contextlib.suppress(AgentLost):
                await self._send(Shutdown())
        await self._end(grace_s=GRACE_S)

    # # --- sending ---

    async def _greet(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                self.hello = await self._greeting
        except TimeoutError:
            reason = self._channel.with_last_words(f"it sent no hello within {within_s:g} s")
            raise AgentLost(self._shown, reason) from None
        if self.hello.protocol != PROTOCOL_VERSION:
            raise AgentLost(
                self._shown,
                f"agent {self.hello.agent_version} speaks protocol {self.hello.protocol}, {_SAME_VERSION}",
            )

    async def _send(self, command: Command) -> None:
        self._raise_if_over()
        try:
            await self._channel.send(encode(command))
        except (BrokenPipeError, ConnectionResetError):
            # The reader knows the cause: it has the exit status and the last lines of stderr.
            await asyncio.wait({self._reader}, timeout=GRACE_S)
            self._raise_if_over()
            raise AgentLost(self._shown, self._channel.with_last_words("its stdin is closed")) from None

    async def _ask(
        self, expected: type[Reply], command: Inspect | Clock | MeasureWakeUp, timeout_s: float
    ) -> tuple[Reply, int]:
        """The reply with the command's id, and its arrival time (controller's clock, ns)."""
        key = (expected, command.id)
        answer: asyncio.Future[tuple[Reply, int]] = asyncio.get_running_loop().create_future()
        self._answers[key] = answer
        try:
            await self._send(command)
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            reason = self._channel.with_last_words(f"it left `{command.type}` unanswered for {timeout_s:g} s")
            raise AgentLost(self._shown, reason) from None
        finally:
            del self._answers[key]

    def _log(self, trial: str, task: str) -> TaskLog:
        return self._tasks.setdefault((trial, task), TaskLog())

    async def _until(
        self, trial: str, task: str, ready: Callable[[TaskLog], T | None], *, timeout_s: float | None, what: str
    ) -> T:
        log = self._log(trial, task)
        try:
            async with asyncio.timeout(timeout_s):
                while (value := ready(log)) is None:
                    if log.failed is not None:
                        failed, of_input = log.failed, log.failed.blame == "input"
                        raise TaskFailed(self.name, task, failed.code, failed.message, of_input=of_input)
                    self._raise_if_over()
                    await log.change()
                return value
        except TimeoutError:
            raise TaskFailed(self.name, task, "timeout", f"waited {timeout_s:g} s for {what}") from None

    def _raise_if_over(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closing and self._channel.ended:
            raise AgentLost(self._shown, "it was closed")

    # # --- receiving ---

    async def _read_events(self) -> None:
        try:
            async for lines, now_ns in self._channel.lines():
                for line in lines:
                    self._take_line(line, now_ns)
        except MalformedLine as error:
            self._lose(str(error))
        except Exception as error:  # the sink failed, for example on a full disk: no task may wait for more events
            self._fail(error)
            self._channel.kill()
        else:
            ending = await self._channel.ending()
            if self._closing:
                self._wake()
            else:
                self._lose(ending)

    def _take_line(self, line: bytes, now_ns: int) -> None:
        if self._shapes.match(line):
            self._sink(self.name, UnreadObservation(line), line)
            return
        # Here, before anything is stored or shown: URLs may be in names, failures and single requests.
        line = mask_line(line, self._kept)
        event = self._parsed(line)
        if isinstance(event, ObservationEvent):
            self._on_event(UnreadObservation(line), line, now_ns)
            self._shapes.add(line)
        else:
            self._on_event(event, line, now_ns)

    def _parsed(self, line: bytes) -> ContractEvent:
        try:
            return parse_event(line)
        except MalformedLine as error:
            other = None if self._greeting.done() else greeting_of_another(line)
            if other is not None:
                raise MalformedLine(f"{other} ({error}), {_SAME_VERSION}") from error
            raise MalformedLine(f"it sent a line that is not in the contract: {error}") from error

    def _on_event(self, event: Event, line: bytes, now_ns: int) -> None:
        if not self._greeting.done() and not isinstance(event, Hello):
            raise MalformedLine(f"it sent a line that is not in the contract: `{event.type}` came before `hello`")
        self._sink(self.name, event, line)
        match event:
            case Heartbeat():
                self._beats += 1
            case Hello():
                if not self._greeting.done():
                    self._greeting.set_result(event)
            case ClockReply() | NetworkReply() | WakeUpReply():
                answer = self._answers.get((type(event), event.id))
                if answer is not None and not answer.done():
                    answer.set_result((event, now_ns))
            case Prepared() | Finished() | Exited() | Profiled() | OutputLine():
                self._log(event.trial, event.task).take(event)
            case Failed():
                self._on_failure(event)
            case _:
                pass

    def _on_failure(self, event: Failed) -> None:
        """Handle a failure. Without a task it concerns the whole trial; without a trial it is an error about a
        command."""
        if event.trial is None and event.error.code == "bad_command":
            # A wait for the answer to this command would end by its time limit only.
            version = self.hello.agent_version if self._greeting.done() else "without a greeting"
            self._lose(f"agent {version} does not understand a command ({event.error.message}), {_SAME_VERSION}")
        elif event.trial is None:
            self._channel.note(f"{event.error.code}: {event.error.message}")
        elif event.task is not None:
            self._log(event.trial, event.task).take(event)
        else:
            for (trial, _), log in self._tasks.items():
                if trial == event.trial and not log.over:
                    log.take(event)

    async def _watch_heartbeat(self) -> None:
        """Count ticks without a heartbeat instead of time: while this event loop is blocked, it cannot receive a
        heartbeat."""
        await asyncio.wait({self._greeting})
        quiet_ticks, heard = 0, self._beats
        while not self._closing and self._failure is None:
            await asyncio.sleep(WATCH_PERIOD_S)
            quiet_ticks, heard = (quiet_ticks + 1 if self._beats == heard else 0), self._beats
            if quiet_ticks * WATCH_PERIOD_S == TELL_SILENCE_S and not self._closing:
                self._on_silence(self._shown, TELL_SILENCE_S)
            if quiet_ticks * WATCH_PERIOD_S >= SILENCE_S and not self._closing:
                where = ": its host, or the network to it, is out of reach" if self._heart is not None else ""
                self._lose(f"no heartbeat for {SILENCE_S:g} s{where}")

    async def _send_heartbeats(self) -> None:
        """Tell a remote agent that this process is there: a network that is cut between them closes nothing."""
        await asyncio.wait({self._greeting})
        with contextlib.suppress(Exception):  # those who wait for an answer get the cause
            while not self._closing and self._failure is None:
                await self._send(ControllerHeartbeat())
                await asyncio.sleep(HEARTBEAT_PERIOD_S)

    # # --- the end ---

    def _lose(self, reason: str) -> None:
        self._fail(AgentLost(self._shown, self._channel.with_last_words(reason)))
        self._channel.kill()

    def _fail(self, failure: Exception) -> None:
        """End all current and future calls with this failure."""
        if self._failure is not None:
            return
        self._failure = failure
        self._failed.set()
        if isinstance(failure, AgentLost):
            self.lost = failure
        waiting: list[asyncio.Future[Any]] = [self._greeting, *self._answers.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(failure)
        self._wake()

    def _wake(self) -> None:
        for log in self._tasks.values():
            log.wake()

    async def _end(self, grace_s: float) -> None:
        await self._channel.end(grace_s)
        self._watcher.cancel()
        if self._heart is not None:
            self._heart.cancel()
        # Read the rest of the pipe first; but a grandchild that keeps the pipe open must not block this process.
        await asyncio.wait({self._reader}, timeout=GRACE_S)
        self._reader.cancel()
        if not self._greeting.done():
            self._greeting.cancel()


def _own_boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
