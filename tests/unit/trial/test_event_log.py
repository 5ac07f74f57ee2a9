"""The entries of an event log, their order, and their listeners."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from leadline.agents import UnreadObservation
from leadline.contract.models import Heartbeat, Prepared
from leadline.dataset import Journal, read_journal
from leadline.errors import AgentLost, DatasetError
from leadline.trial.event_log import EntryList, EventLog
from leadline.trial.notifications import Notification, RunEnded

PREPARED = Prepared(trial="c01/1/setup", task="serve", t_ns=5)
OBSERVATION = UnreadObservation(
    b'{"type":"observation","t_ns":7,"observer_cpu_s":0.1,"network":{"interfaces":[]},"processes":[]}'
)
# Not as this side would write it: another order, and a space.
LINE = b'{"type":"prepared","trial":"c01/1/setup","task":"serve", "t_ns":5}'


def test_records_and_events_are_stamped_in_order() -> None:
    entries: list[dict[str, Any]] = []
    event_log = EventLog(EntryList(entries))
    event_log.record("phase", trial="c01/1", phase="build", edge="begin")
    event_log.on_event("gateway", PREPARED, LINE)
    assert [entry.get("record") or entry["host"] for entry in entries] == ["phase", "gateway"]
    assert entries[0]["phase"] == "build"
    assert entries[1]["event"] == json.loads(LINE)
    assert entries[0]["at_ns"] <= entries[1]["at_ns"]


def test_journal_keeps_the_agents_own_line_and_gives_the_lists_entries_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.ndjson"
    entries: list[dict[str, Any]] = []
    with Journal(path) as journal:
        event_log = EventLog(EntryList(entries, journal))
        event_log.record("phase", trial="c01/1")
        event_log.on_event('the "first" host', PREPARED, LINE + b"\r")
    assert LINE in path.read_bytes()
    assert list(read_journal(path)) == entries


def test_heartbeats_reach_listeners_and_not_the_journal() -> None:
    entries: list[dict[str, Any]] = []
    heard: list[str] = []
    event_log = EventLog(EntryList(entries))
    end = event_log.listen(lambda host, event: heard.append(f"{host} {event.type}"))
    event_log.on_event("client1", Heartbeat(t_ns=1), b"{}")
    end()
    event_log.on_event("client1", Heartbeat(t_ns=2), b"{}")
    assert (entries, heard) == ([], ["client1 heartbeat"])


def test_event_that_cannot_be_written_reaches_no_listener() -> None:
    heard: list[str] = []
    with Journal(Path("/dev/full")) as journal:
        event_log = EventLog(journal)
        event_log.listen(lambda host, _event: heard.append(host))
        with pytest.raises(DatasetError):
            event_log.on_event("client1", PREPARED, LINE)
    assert heard == []


class CountedJournal(Journal):
    """A journal that counts its writes, and fails while it is broken."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.writes = 0
        self.is_broken = False

    def _write(self, lines: bytes) -> None:
        if self.is_broken and b"record" not in lines:
            raise DatasetError("input/output error")
        self.writes += 1
        super()._write(lines)


async def test_observations_of_one_turn_are_written_together_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with CountedJournal(path) as journal:
        event_log = EventLog(journal)
        for number in range(5):
            event_log.on_event(f"client{number}", OBSERVATION, OBSERVATION.line)
        assert journal.writes == 0
        await asyncio.sleep(0)
        assert journal.writes == 1
        # A kill from here on takes nothing: they are in the file.
        assert len(list(read_journal(path))) == 5
        event_log.on_event("client5", OBSERVATION, OBSERVATION.line)
        event_log.on_event("client6", PREPARED, LINE)
        assert journal.writes == 2
        event_log.on_event("client7", OBSERVATION, OBSERVATION.line)
        event_log.record("phase", trial="c01/1")
        await asyncio.sleep(0)
        assert journal.writes == 4
    hosts = [entry.get("host") for entry in read_journal(path)]
    assert hosts == [*(f"client{number}" for number in range(8)), None]


async def test_listener_to_observations_hears_them_after_the_journal_has_them(tmp_path: Path) -> None:
    path = tmp_path / "j"
    heard: list[tuple[str, int, int]] = []
    others: list[str] = []
    with Journal(path) as journal:
        event_log = EventLog(journal)
        event_log.listen(lambda host, _event: others.append(host))
        end = event_log.listen_to_observations(
            lambda host, observation: heard.append((host, observation.read().t_ns, len(list(read_journal(path)))))
        )
        event_log.on_event("client1", OBSERVATION, OBSERVATION.line)
        event_log.on_event("client2", OBSERVATION, OBSERVATION.line)
        end()
        event_log.on_event("client3", OBSERVATION, OBSERVATION.line)
    assert heard == [("client1", 7, 1), ("client2", 7, 2)]
    assert others == []
    assert len(list(read_journal(path))) == 3


async def test_observation_that_cannot_be_written_fails_the_next_event_and_the_end(tmp_path: Path) -> None:
    with CountedJournal(tmp_path / "j") as journal:
        event_log = EventLog(journal)
        journal.is_broken = True
        event_log.on_event("client1", OBSERVATION, OBSERVATION.line)
        await asyncio.sleep(0)
        with pytest.raises(DatasetError, match="input/output error"):
            event_log.on_event("client2", Heartbeat(t_ns=1), b"{}")
        assert isinstance(event_log.record_end("trial-end", None), DatasetError)
        journal.is_broken = False
    assert [entry["record"] for entry in read_journal(tmp_path / "j")] == ["trial-end"]


async def test_list_has_observations_as_a_journal_gives_them_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.ndjson"
    entries: list[dict[str, Any]] = []
    with Journal(path) as journal:
        event_log = EventLog(EntryList(entries, journal))
        event_log.on_event("client1", OBSERVATION, OBSERVATION.line)
        event_log.on_event("client1", PREPARED, LINE)
        event_log.on_event("client2", OBSERVATION, OBSERVATION.line)
    assert list(read_journal(path)) == entries


def test_end_that_cannot_be_written_is_listed_and_its_failure_returned() -> None:
    entries: list[dict[str, Any]] = []
    first = AgentLost("client1", "it ended")
    with Journal(Path("/dev/full")) as journal:
        event_log = EventLog(EntryList(entries, journal))
        assert isinstance(event_log.record_end("test-end", None), DatasetError)
        assert event_log.record_end("trial-end", first) is first
    assert [entry["record"] for entry in entries] == ["test-end", "trial-end"]


def test_every_observer_gets_the_notification() -> None:
    first: list[Notification] = []
    second: list[Notification] = []
    EventLog(EntryList([]), (first.append, second.append)).notify(RunEnded("done"))
    assert first == second == [RunEnded("done")]
