"""Which hosts a trial goes on without: clients alone, as many as the share allows, and each is recorded once."""

from __future__ import annotations

from typing import Any

import pytest

from leadline.errors import AgentLost, DatasetError
from leadline.trial.event_log import EntryList, EventLog
from leadline.trial.losses import HostLosses

GONE = AgentLost("client2 (c2)", "its process exited with 3")


def losses(clients: int, share: float, entries: list[dict[str, Any]]) -> HostLosses:
    names = [f"client{number}" for number in range(1, clients + 1)]
    return HostLosses(names, share, "c01/1", EventLog(EntryList(entries)))


@pytest.mark.parametrize(
    ("clients", "share", "allowed"),
    [(50, 0.02, 1), (49, 0.02, 0), (10, 0.3, 3), (3, 0.34, 1), (100, 0.07, 7), (5, 0.0, 0)],
)
def test_the_share_is_rounded_down(clients: int, share: float, allowed: int) -> None:
    entries: list[dict[str, Any]] = []
    found = losses(clients, share, entries)
    accepted = [found.accept(f"client{number}", GONE) for number in range(1, clients + 1)]
    assert accepted == [True] * allowed + [False] * (clients - allowed)
    assert [entry["host"] for entry in entries] == [f"client{number}" for number in range(1, allowed + 1)]


def test_a_loss_is_recorded_once_with_its_reason() -> None:
    entries: list[dict[str, Any]] = []
    found = losses(10, 0.1, entries)
    assert found.accept("client2", GONE) and found.accept("client2", GONE)
    [entry] = entries
    assert (entry["record"], entry["clients"]) == ("host-lost", 10)
    assert entry["reason"] == "the agent on client2 (c2) is lost: its process exited with 3"


def test_gateways_and_servers_are_never_left_out_nor_is_a_failure_of_this_machine_a_loss() -> None:
    entries: list[dict[str, Any]] = []
    found = losses(10, 0.9, entries)
    assert not found.accept("server", GONE)
    assert not found.accept("gateway", GONE)
    assert not found.accept("client1", DatasetError("the disk is full", is_full=True))
    assert entries == []
