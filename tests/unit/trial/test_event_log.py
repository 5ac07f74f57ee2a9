"""What is written down, in which order, and who is told."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.contract.models import Heartbeat, Prepared
from leadline.errors import DatasetError
from leadline.trial.event_log import EventLog
from leadline.trial.notifications import Notification, RunEnded


def test_records_and_events_are_stamped_in_order() -> None:
    sink: list[dict[str, Any]] = []
    event_log = EventLog(sink)
    event_log.record("phase", trial="c01/1", phase="build", edge="begin")
    event_log.on_event("gateway", Prepared(trial="c01/1/setup", task="serve", t_ns=5))
    assert [entry.get("record") or entry["host"] for entry in sink] == ["phase", "gateway"]
    assert sink[0]["phase"] == "build"
    assert (sink[1]["event"]["type"], sink[1]["event"]["t_ns"]) == ("prepared", 5)
    assert sink[0]["at_ns"] <= sink[1]["at_ns"]


def test_heartbeats_reach_listeners_and_not_the_journal() -> None:
    sink: list[dict[str, Any]] = []
    heard: list[str] = []
    event_log = EventLog(sink)
    end = event_log.listen(lambda host, event: heard.append(f"{host} {event.type}"))
    event_log.on_event("client1", Heartbeat(t_ns=1))
    end()
    event_log.on_event("client1", Heartbeat(t_ns=2))
    assert (sink, heard) == ([], ["client1 heartbeat"])


def test_event_that_cannot_be_written_reaches_no_listener() -> None:
    class Full:
        def append(self, _entry: dict[str, Any], /) -> None:
            raise DatasetError("no space left")

    heard: list[str] = []
    event_log = EventLog(Full())
    event_log.listen(lambda host, _event: heard.append(host))
    with pytest.raises(DatasetError):
        event_log.on_event("client1", Prepared(trial="c01/1/x", task="load", t_ns=1))
    assert heard == []


def test_every_observer_gets_the_notification() -> None:
    first: list[Notification] = []
    second: list[Notification] = []
    EventLog([], (first.append, second.append)).notify(RunEnded("done"))
    assert first == second == [RunEnded("done")]
