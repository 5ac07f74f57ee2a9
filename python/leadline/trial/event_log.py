"""Records everything that happens: agents' events as they arrive, and the controller's own records.

There is one `EventLog` per run. It adds a time to each entry, appends it to a journal (a file, or a list for a
measurement whose samples are not kept) and passes it to listeners and observers. Lists have no single requests of
scenarios: figures do not need them, and there may be millions. A failed write ends the run: a
figure whose samples are lost is invalid. Only records of an end (`record_end`) may be lost.

Observations are most of the events. Those that arrive in one turn of the event loop are written together, at its end
or before anything that comes after them.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pydantic_core

from leadline.agents import Event, UnreadObservation
from leadline.contract.models import Heartbeat
from leadline.errors import DatasetError, LeadlineError
from leadline.trial.notifications import Notification, Observer

_SINGLE_REQUESTS = b'{"type":"samples"'
"""The beginning of an agent's line with single requests of a scenario."""
_NONE_LEFT_OUT = re.compile(rb'"left_out":0[,}]')


class EventSink(Protocol):
    """The target of entries: a journal, or a list."""

    def append(self, entry: dict[str, Any], /) -> None:
        """Append one entry."""

    def append_event(self, host: str, at_ns: int, line: bytes, /) -> None:
        """Append an agent's event, as the line that the agent wrote."""

    def append_event_later(self, host: str, at_ns: int, line: bytes, /) -> None:
        """Append an agent's event with what comes next, or by `flush`."""

    def flush(self) -> None:
        """Write what was to be appended later."""


@dataclass(frozen=True, slots=True)
class EntryList:
    """A list of entries, which also passes each entry to a journal if there is one."""

    entries: list[dict[str, Any]]
    journal: EventSink | None = None

    def append(self, entry: dict[str, Any], /) -> None:
        """Append one entry. The list has it even if the journal has no room for it."""
        self.entries.append(entry)
        if self.journal is not None:
            self.journal.append(entry)

    def append_event(self, host: str, at_ns: int, line: bytes, /) -> None:
        """Append an agent's event, in the form in which a journal returns it. Single requests stay in the journal:
        there may be millions. Only how many of them are missing is kept."""
        if self.journal is not None:
            self.journal.append_event(host, at_ns, line)
        self._keep(host, at_ns, line)

    def append_event_later(self, host: str, at_ns: int, line: bytes, /) -> None:
        """Append an agent's event to the list at once, and to the journal with what comes next."""
        if self.journal is not None:
            self.journal.append_event_later(host, at_ns, line)
        self._keep(host, at_ns, line)

    def flush(self) -> None:
        """Write what was to be appended to the journal later."""
        if self.journal is not None:
            self.journal.flush()

    def _keep(self, host: str, at_ns: int, line: bytes) -> None:
        is_batch = line.startswith(_SINGLE_REQUESTS)
        if is_batch and _NONE_LEFT_OUT.search(line):
            return
        event = pydantic_core.from_json(line)
        if is_batch:
            event = {**event, "samples": {"left_out": event["samples"]["left_out"]}}
        self.entries.append({"host": host, "at_ns": at_ns, "event": event})


class EventLog:
    """Adds a time to each entry, appends it to the sink, and passes it to listeners and observers."""

    def __init__(
        self,
        sink: EventSink,
        observers: tuple[Observer, ...] = (),
        on_failed_observer: Callable[[Exception], None] | None = None,
    ) -> None:
        """An observer that fails gets no more notifications; its exception goes to `on_failed_observer`, or is
        raised."""
        self._sink = sink
        self._observers = list(observers)
        self._on_failed_observer = on_failed_observer
        self._listeners: list[Callable[[str, Event], None]] = []
        self._observation_listeners: list[Callable[[str, UnreadObservation], None]] = []
        self._copies: list[EntryList] = []
        self._flushes_soon = False
        self._failure: DatasetError | None = None

    def record(self, record: str, **fields: Any) -> None:
        """Append one record of the controller to the journal."""
        entry = {"record": record, "at_ns": time.monotonic_ns(), **fields}
        for sink in (self._sink, *self._copies):
            sink.append(entry)

    def record_end(self, record: str, failure: LeadlineError | None, **fields: Any) -> LeadlineError | None:
        """Append the record of an end. Returns `failure`, the one that came before, or else that of the disk: a record
        that cannot be written takes nothing from what was measured."""
        try:
            self.record(record, **fields)
        except DatasetError as error:
            return failure or self._failure or error
        return failure or self._failure

    def on_event(self, host: str, event: Event, line: bytes) -> None:
        """Append one event of an agent to the journal, as its original `line`, then pass it to the listeners.

        Raises:
            DatasetError: the journal could not be written, now or when the observations before this were due.
        """
        if self._failure is not None:
            raise self._failure
        if isinstance(event, UnreadObservation):
            self._on_observation(host, event)
            return
        # A heartbeat only shows that the agent is alive; figures do not need it.
        if not isinstance(event, Heartbeat):
            at_ns = time.monotonic_ns()
            for sink in (self._sink, *self._copies):
                sink.append_event(host, at_ns, line)
        for listener in self._listeners:
            listener(host, event)

    def _on_observation(self, host: str, event: UnreadObservation) -> None:
        at_ns = time.monotonic_ns()
        self._sink.append_event_later(host, at_ns, event.line)
        for copy in self._copies:
            copy.append_event(host, at_ns, event.line)
        if self._observation_listeners:
            self._sink.flush()
            for listener in self._observation_listeners:
                listener(host, event)
        elif not self._flushes_soon:
            self._flushes_soon = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushes_soon = False
        try:
            self._sink.flush()
        except DatasetError as error:
            self._failure = error

    def listen(self, listener: Callable[[str, Event], None]) -> Callable[[], None]:
        """Call `listener` with every event but observations; returns a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def listen_to_observations(self, listener: Callable[[str, UnreadObservation], None]) -> Callable[[], None]:
        """Call `listener` with every observation; returns a function that ends this."""
        self._observation_listeners.append(listener)
        return lambda: self._observation_listeners.remove(listener)

    def copy_to(self, entries: list[dict[str, Any]]) -> Callable[[], None]:
        """Append every further entry to this list too; returns a function that ends this."""
        copy = EntryList(entries)
        self._copies.append(copy)
        return lambda: self._copies.remove(copy)

    def notify(self, notification: Notification) -> None:
        """Pass the notification to every observer."""
        for observer in tuple(self._observers):
            try:
                observer(notification)
            except Exception as error:
                if self._on_failed_observer is None:
                    raise
                self._observers.remove(observer)
                self._on_failed_observer(error)
