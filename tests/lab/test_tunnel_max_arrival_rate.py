"""The rate at which a real OpenVPN server chokes, searched for by `leadline tunnel --until-choke` to its end: the
server lets 20 clients in within a second of its clock (`connect-freq`), and does nothing for others.
"""

from __future__ import annotations

from typing import Any

import openvpn_servers as servers
import pytest
from openvpn_keys import Keys
from openvpn_servers import Inside, Setting

pytestmark = pytest.mark.lab

LET_IN, CLIENTS = 20, 70
HAND_WINDOW_S = 5
"""How long the server keeps those that it did not let in, and so the search's rest after a trial with many of them."""
SURELY = LET_IN - 2
"""Clients in a second, of whom none is turned away however the second lies."""


def test_the_rate_is_where_the_server_turns_clients_away(place: Inside, keys: Keys) -> None:
    with servers.server(
        place, keys, Setting(more=(f"connect-freq {LET_IN} 1", f"hand-window {HAND_WINDOW_S}"))
    ) as server:
        search = ("--until-choke", "failed_ratio < 5%", "-d", "1s", "--attempt-timeout", "1s")
        way = ("-n", str(CLIENTS), *search, *servers.issued(server))
        fleet = servers.fleet(place, server.profile("choke", f"hand-window {HAND_WINDOW_S}"), *way)
        found = fleet.document
        # What a machine that others use makes of it, and what each ending promises.
        verdicts = {"found": "valid", "generator-limited": "generator-limited", "budget": "incomplete"}
        verdicts |= {"none-held": "valid", "all-held": "undetermined"}
        rate = found["metrics"]["found_rate_per_s"]
        assert found["validity"]["verdict"] == verdicts[found["ending"]], fleet.err
        assert fleet.code == (0 if rate["value"] is not None else 3 if found["ending"] == "none-held" else 4)
        # The first fleet is the one of all at once.
        _, *fleets = (outcome["tunnel"]["clients"] for outcome in fleet.outcomes())
        turned_away = " ".join(server.said("would exceed new connection frequency limit")) + " "
        for trial, rows in zip(found["trials"], fleets, strict=True):
            check(trial, rows, turned_away)
        if found["ending"] == "found":
            assert rate["value"] == rate["low"] < rate["high"]
            assert any(not trial["holds"] and trial["rate_per_s"] == rate["high"] for trial in found["trials"])
            if all(trial["holds"] for trial in found["trials"] if trial["metrics"]["clients"] <= SURELY):
                assert rate["high"] > SURELY
        assert rate["low"] is None or any(trial["rate_per_s"] == rate["low"] for trial in found["trials"])
        assert found["errors"]["silence_after_reset"] > 0
        assert turned_away.strip()


def check(trial: dict[str, Any], rows: list[dict[str, Any]], turned_away: str) -> None:
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
    # As many of the server's clock are touched, at most, from when the first one came to when the last one was let in.
    seconds = (max(let_in_ns, default=0) - min(came_ns)) // 10**9 + 2
    assert len(let_in_ns) <= seconds * LET_IN, trial
    if len(rows) <= SURELY:
        silent = [row for row in failed if row["cause"] == "silence_after_reset"]
        # A server that is kept from its processor says nothing for a while, too, but turns nobody away.
        assert not [row for row in silent if f" {row['local']} " in turned_away], trial
