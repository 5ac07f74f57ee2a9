"""The limits of servers that misfortunes look like, on fleets with known ends; and where none may be concluded."""

from __future__ import annotations

from typing import Any, cast

import pytest
from made_fleets import client, fleet
from made_journals import EPOCH_NS, S

from leadline.analysis.fleet_model import Overload
from leadline.analysis.overload import overload
from leadline.analysis.tunnels import findings
from leadline.contract.records import TunnelClientReport

SILENT = {"answered_ns": 2_000_000, "tls_ns": None, "keys_ns": None}
UNHEARD = SILENT | {"answered_ns": None}


def failed(numbers: range, cause: str, **changes: Any) -> list[dict[str, Any]]:
    return [client(number, "failed", cause, **changes) for number in numbers]


def overload_of(rows: list[dict[str, Any]]) -> tuple[Overload, ...]:
    return overload(cast(list[TunnelClientReport], rows))


UP = [client(number) for number in range(50)]


def test_silence_beside_clients_that_are_held_is_max_clients() -> None:
    found = findings(fleet([*UP, *failed(range(50, 100), "silence_after_reset", **SILENT)]))
    assert found is not None
    assert found.overload == (
        Overload("max_clients", 50, "50 clients answered once, then not at all, while it held 50"),
    )
    over_tcp = overload_of([*UP, *failed(range(50, 51), "closed_unanswered", **UNHEARD)])
    said = "1 client connected, then closed before an answer, while it held 50"
    assert over_tcp == (Overload("max_clients", 1, said),)


def test_unanswered_resets_beside_answered_ones_are_connect_freq_initial() -> None:
    found = overload_of([*UP, *failed(range(50, 60), "reset_unanswered", **UNHEARD)])
    said = "10 clients got no answer to any reset while 50 got one"
    assert found == (Overload("connect_freq_initial", 10, said),)


def test_no_address_beside_given_ones_is_an_exhausted_pool() -> None:
    without = [client(number, "partial", "partial_no_address") for number in range(50, 90)]
    assert [(one.name, one.clients) for one in overload_of([*UP, *without])] == [("pool_exhausted", 40)]
    assert overload_of(without) == (), "a server that gives no client an address has no pool"


@pytest.mark.parametrize("cause", ["reset_unanswered", "silence_after_reset"])
def test_a_server_that_serves_no_client_shows_no_limit(cause: str) -> None:
    assert overload_of(failed(range(50), cause, **UNHEARD)) == ()


@pytest.mark.parametrize("cause", ["reset_unanswered", "silence_after_reset"])
def test_a_server_that_is_gone_shows_no_limit(cause: str) -> None:
    lost = {"pings_sent": 10, "pings_answered": 5}
    without_pings = [client(number, inside=lost if number % 2 else {}) for number in range(50)]
    later = failed(range(50, 60), cause, **(UNHEARD | {"due_ns": EPOCH_NS + 5 * S}))
    assert overload_of([*without_pings, *later]) == ()
    assert [one.clients for one in overload_of([*UP, *later])] == [10], "pings came back: it was still there"


@pytest.mark.parametrize("cause", ["reset_unanswered", "silence_after_reset"])
def test_a_server_that_was_stopped_while_clients_came_shows_no_limit(cause: str) -> None:
    # All were due at once; the server was heard for 1 s, and these waited for 8 s.
    heard = [client(number, inside={}, heard_ns=1 * S) for number in range(50)]
    waited = failed(range(50, 60), cause, **(UNHEARD | {"ended_ns": 8 * S}))
    assert overload_of([*heard, *waited]) == ()
    living = [*heard, client(60, inside={}, heard_ns=7 * S)]
    assert [one.clients for one in overload_of([*living, *waited])] == [10], "it still spoke to one of them"


def test_silence_at_every_attempt_is_no_passing_trouble() -> None:
    without_pings = [client(number, inside={}) for number in range(50)]
    late = SILENT | {"due_ns": EPOCH_NS + 5 * S, "attempts": 3}
    assert [
        one.name for one in overload_of([*without_pings, *failed(range(50, 60), "silence_after_reset", **late)])
    ] == ["max_clients"]


def test_other_causes_are_no_limit() -> None:
    assert overload_of([*UP, *failed(range(50, 60), "auth_failed")]) == ()
