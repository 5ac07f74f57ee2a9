"""The entries of an event log, their order, and their listeners."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leadline.contract.models import Heartbeat, Prepared
from leadline.dataset import Journal, read_journal
from leadline.errors import AgentLost, DatasetError
from leadline.trial.event_log import EntryList, EventLog
from leadline.trial.notifications import Notification, RunEnded

PREPARED = Prepared(trial="c01/1/setup", task="serve", t_ns=5)
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
