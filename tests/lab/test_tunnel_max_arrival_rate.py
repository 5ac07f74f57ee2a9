"""The rate of arriving clients that overloads a real OpenVPN server, searched for by `leadline tunnel --until-choke`:
the server lets 20 clients in within a period of its clock (`connect-freq`), and does nothing for others.

What each ending promises is in tests/unit/trial/test_max_arrival_rate.py, whose trials are scripted.
"""

from __future__ import annotations

from typing import Any

import openvpn_servers as servers
import pytest
from openvpn_keys import Keys
from openvpn_servers import Inside, Setting

pytestmark = [pytest.mark.lab, pytest.mark.takes(30)]

LET_IN, CLIENTS = 20, 70
HAND_WINDOW_S = 5
"""How long the server keeps those that it did not let in, and so the search's rest after a trial with many of them."""
SURELY = LET_IN - 2
"""Clients per second, none of which is turned away in any second."""
PERIOD_S, ATTEMPT_S = 6, 4
"""The server's period is longer than a client's attempt: a client connects or is turned away, whatever time its
handshake takes on a busy machine."""


def setting(period_s: int) -> Setting:
    """Of a server that lets `LET_IN` clients in within a period of its clock."""
    return Setting(more=(f"connect-freq {LET_IN} {period_s}", f"hand-window {HAND_WINDOW_S}"))


def search(place: Inside, server: servers.Server, attempt_s: int) -> servers.Running:
    """A search on its way."""
    profile = server.profile("choke", f"hand-window {HAND_WINDOW_S}")
    options = ("--until-choke", "failed_ratio < 5%", "-d", "1s", "--attempt-timeout", f"{attempt_s}s")
    return servers.start_fleet(place, profile, "-n", str(CLIENTS), *options, *servers.issued(server))


@pytest.mark.decided_by("the interrupt, and the clients that the server counted")
def test_trials_of_a_search_fail_by_the_clients_that_the_server_turned_away(place: Inside, keys: Keys) -> None:
    """All clients at once and the first two trials, on a machine of any speed."""
    with servers.server(place, keys, setting(PERIOD_S)) as server:
        running = search(place, server, ATTEMPT_S)
        running.until(lambda: trials_ended(running) >= 3)
        fleet = running.interrupt()
        found = fleet.document
        assert (fleet.code, found["ending"], found["validity"]["verdict"]) == (130, "interrupted", "incomplete")
        assert found["metrics"]["at_once_per_s"]["value"] > 0
        check_trials(found, fleet, server, PERIOD_S)


@pytest.mark.full_matrix
@pytest.mark.exclusive
def test_found_rate_is_where_the_server_turns_clients_away(place: Inside, keys: Keys) -> None:
    """A whole search. Others that take this machine's processors make its trials fail, so it runs alone."""
    with servers.server(place, keys, setting(1)) as server:
        fleet = search(place, server, 1).finish()
        found = fleet.document
        rate = found["metrics"]["found_rate_per_s"]
        if found["ending"] == "generator-limited":
            pytest.skip(f"this machine was too busy for a whole search: {found['validity']['reasons']}")
        assert (fleet.code, found["ending"], found["validity"]["verdict"]) == (0, "found", "valid"), fleet.err
        assert rate["value"] == rate["low"] < rate["high"]
        assert rate["high"] > SURELY
        bounds = {(trial["rate_per_s"], trial["holds"]) for trial in found["trials"]}
        assert {(rate["low"], True), (rate["high"], False)} <= bounds
        check_trials(found, fleet, server, 1)


def trials_ended(running: servers.Running) -> int:
    """Of all clients at once and of the rates that were tried since."""
    journals = [folder / "journal.ndjson" for folder in servers.runs_in(running.folder) if folder not in running.others]
    return sum(path.read_text().count('"trial-end"') for path in journals if path.exists())


def check_trials(found: dict[str, Any], fleet: servers.Fleet, server: servers.Server, period_s: int) -> None:
    # The first fleet is the one of all at once.
    _, *fleets = (outcome["tunnel"]["clients"] for outcome in fleet.outcomes())
    turned_away = " ".join(server.said("would exceed new connection frequency limit")) + " "
    assert found["trials"]
    for trial, rows in zip(found["trials"], fleets[: len(found["trials"])], strict=True):
        check(trial, rows, turned_away, period_s)
    assert found["errors"]["silence_after_reset"] > 0
    assert turned_away.strip()


def check(trial: dict[str, Any], rows: list[dict[str, Any]], turned_away: str, period_s: int) -> None:
    """A trial says why it holds or does not, and its clients failed by the server's limit, as that is by its clock.

    On a machine that others use, clients may also come up too late, or queue, and what comes in a second at the given
    rate may take longer to come.
    """
    assert trial["why"] and trial["metrics"]["clients"] == len(rows)
    failed = [row for row in rows if row["state"] == "failed"]
    assert trial["metrics"]["failed_ratio"] == pytest.approx(len(failed) / len(rows))
    if trial["holds"]:
        assert len(failed) < 0.05 * len(rows), trial
    else:
        assert len(failed) >= 0.05 * len(rows) or "queued" in trial["why"] or trial["generator_limited"], trial
    came_ns = [row["due_ns"] + row["sent_ns"] for row in rows if row["sent_ns"] is not None]
    let_in_ns = [row["due_ns"] + row["tls_ns"] for row in rows if row["tls_ns"] is not None]
    # As many periods are touched, at most, from when the first one came to when the last one was let in: the server's
    # clock has whole seconds.
    seconds = (max(let_in_ns, default=0) - min(came_ns)) // 10**9 + 2
    assert len(let_in_ns) <= -(-seconds // period_s) * LET_IN, trial
    if len(rows) <= SURELY:
        silent = [row for row in failed if row["cause"] == "silence_after_reset"]
        # A server that is kept from its processor says nothing for a while, too, but turns no client away.
        assert not [row for row in silent if f" {row['local']} " in turned_away], trial
