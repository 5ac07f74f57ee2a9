"""The rate at which a real OpenVPN server chokes, searched for by `leadline tunnel --until-choke` to its end: the
server lets 20 clients in within a second of its clock (`connect-freq`), and does nothing for others.
"""

from __future__ import annotations

from typing import Any

import openvpn_servers as servers
import pytest
from openvpn_servers import Inside, Keys, Setting

pytestmark = pytest.mark.lab

LET_IN, CLIENTS = 20, 70
HAND_WINDOW_S = 5
"""How long the server keeps those that it did not let in, and so the search's rest after a trial with many of them."""
MOST = 3 * LET_IN / 0.95
"""Clients of a trial that holds: it lasts for little more than a second, which touches three of the clock's at most."""
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
        rate = found["metrics"]["found_rate_per_s"]
        assert found["validity"]["verdict"] == verdicts[found["ending"]], fleet.err
        assert fleet.code == (4 if rate["value"] is None else 0)
        if found["ending"] == "found":
            assert rate["value"] == rate["low"]
            assert SURELY <= rate["low"] < rate["high"] <= MOST
            assert any(not trial["holds"] and trial["rate_per_s"] == rate["high"] for trial in found["trials"])
        assert rate["low"] is None or any(trial["rate_per_s"] == rate["low"] for trial in found["trials"])
        assert set(found["errors"]) == {"silence_after_reset"}
        for trial in found["trials"]:
            check(trial)
        assert not found["trials"][0]["holds"], "all at once"
        assert server.said("would exceed new connection frequency limit")


def check(trial: dict[str, Any]) -> None:
    """A trial says why it holds or does not, and no other than the server's limit is the reason."""
    clients, failed = trial["metrics"]["clients"], trial["metrics"]["failed_ratio"]
    assert trial["why"]
    assert trial["holds"] == (failed < 0.05) or trial["generator_limited"], trial
    if clients > MOST:
        assert not trial["holds"], trial
    if clients <= SURELY:
        assert failed == 0, trial
