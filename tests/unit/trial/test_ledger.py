"""What is written down, in which order, and who is told."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.contract.models import Heartbeat, Prepared
from leadline.errors import DatasetError
from leadline.trial.ledger import Ledger
from leadline.trial.notices import Notice, RunEnded


def test_records_and_events_are_stamped_in_order() -> None:
    sheet: list[dict[str, Any]] = []
    ledger = Ledger(sheet)
    ledger.record("phase", trial="c01/1", phase="build", edge="begin")
    ledger.hear("gateway", Prepared(trial="c01/1/setup", task="serve", t_ns=5))
    assert [entry.get("record") or entry["host"] for entry in sheet] == ["phase", "gateway"]
    assert sheet[0]["phase"] == "build"
    assert (sheet[1]["event"]["type"], sheet[1]["event"]["t_ns"]) == ("prepared", 5)
    assert sheet[0]["at_ns"] <= sheet[1]["at_ns"]


def test_heartbeats_are_heard_and_not_kept() -> None:
    sheet: list[dict[str, Any]] = []
    heard: list[str] = []
    ledger = Ledger(sheet)
    end = ledger.listen(lambda host, event: heard.append(f"{host} {event.type}"))
    ledger.hear("client1", Heartbeat(t_ns=1))
    end()
    ledger.hear("client1", Heartbeat(t_ns=2))
    assert (sheet, heard) == ([], ["client1 heartbeat"])


def test_what_cannot_be_kept_is_told_to_nobody() -> None:
    class Full:
        def append(self, _entry: dict[str, Any], /) -> None:
            raise DatasetError("no space left")

    heard: list[str] = []
    ledger = Ledger(Full())
    ledger.listen(lambda host, _event: heard.append(host))
    with pytest.raises(DatasetError):
        ledger.hear("client1", Prepared(trial="c01/1/x", task="load", t_ns=1))
    assert heard == []


def test_every_observer_is_told() -> None:
    first: list[Notice] = []
    second: list[Notice] = []
    Ledger([], (first.append, second.append)).tell(RunEnded("done"))
    assert first == second == [RunEnded("done")]
