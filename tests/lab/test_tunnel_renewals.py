"""Renewal of keys by either side and for any reason, against a real OpenVPN server: over TLS 1.2, by the server's time,
by the clients' bytes and packets, and with tokens instead of passwords. Nothing is lost inside meanwhile.
"""

from __future__ import annotations

import openvpn_servers as servers
import pytest
from openvpn_keys import Keys
from openvpn_servers import Inside, Setting

pytestmark = [pytest.mark.lab, pytest.mark.takes(30)]

USERS = tuple(f"user-{number}" for number in range(4))


def test_tls_1_2(place: Inside, keys: Keys) -> None:
    with servers.server(place, keys, Setting(more=("tls-version-max 1.2",))) as server:
        when = ("-n", "4", "--settled", "3", "--renegotiate-at", "500ms", *servers.echo("20/s"))
        running = servers.start_fleet(place, server.profile("old"), *when, *servers.issued(server))
        running.until_carried(20, pings=60, renewed=True)
        fleet = running.interrupt()
        assert fleet.states == {"configured": 4}, fleet.err
        renewed = fleet.count("renegotiated")
        assert 3 <= renewed == fleet.count("renegotiations_asked")
        assert len(server.said("Control Channel: TLSv1.2")) == 4 + renewed


@pytest.mark.parametrize("tls", [pytest.param("1.2", marks=pytest.mark.full_matrix), "1.3"])
def test_renewal_that_the_server_begins(place: Inside, keys: Keys, tls: str) -> None:
    """Twice and more, while all clients ping."""
    more = ("reneg-sec 3", f"tls-version-max {tls}")
    with servers.server(place, keys, Setting(more=more)) as server:
        stay = ("-n", "5", "--ping", "100ms", *servers.STAY)
        running = servers.start_fleet(place, server.profile("renewed"), *stay, *servers.issued(server))
        running.until(lambda: len(server.said(f"Control Channel: TLSv{tls}")) >= 3 * 5)
        running.until_carried(0, pings=running.standing()["pings_sent"] + 50)
        fleet = running.interrupt()
        assert fleet.states == {"configured": 5}, fleet.err
        assert (fleet.count("attempts"), fleet.count("tunnels_lost")) == (5, 0)
        # No plan asked the clients for it.
        assert fleet.count("renegotiations_asked") == 0
        assert len(server.said("SENT CONTROL")) == 5


@pytest.mark.parametrize("limit", ["reneg-bytes 30000", pytest.param("reneg-pkts 30", marks=pytest.mark.full_matrix)])
def test_renewal_by_what_keys_have_carried(place: Inside, keys: Keys, limit: str) -> None:
    """Each client's own count of both ways: again and again."""
    with servers.server(place, keys, Setting()) as server:
        load = servers.echo("10/s", "-l", "1000")
        running = servers.start_fleet(place, server.profile("worn", limit), "-n", "3", *load, *servers.issued(server))
        # A third one is due for each after this number.
        running.until_carried(50)
        running.until(lambda: running.standing()["renegotiated"] >= 2 * 3)
        fleet = running.interrupt()
        assert fleet.states == {"configured": 3}, fleet.err
        # The end may come when a client's new keys are half made.
        under_way = len(server.said("Control Channel: TLSv1.3")) - 3 - fleet.outcome["counts"]["renegotiated"]
        assert 0 <= under_way <= 3
        assert len(server.said("SENT CONTROL")) == 3


def test_tokens_instead_of_passwords(place: Inside, keys: Keys) -> None:
    """A client shows its password once; for new keys, and when it comes again, the token that it was given."""
    with servers.server(place, keys, Setting(more=("auth-gen-token 600",)), users=USERS) as server:
        profile = server.profile("token", "auth-user-pass")
        given = profile.with_suffix(".users")
        given.write_text("".join(f"{user}:{servers.PASSWORD}\n" for user in USERS))
        when = ("-n", "4", "--settled", "3", "--users", given, *servers.STAY)
        running = servers.start_fleet(place, profile, *when, "--renegotiate-at", "500ms")
        running.until(lambda: any(one.has_renewed for one in running.moments()))
        first = running.interrupt()
        running = servers.start_fleet(place, profile, *when, "--reconnect-at", "500ms")
        running.until(lambda: any(one.has_returned for one in running.moments()))
        second = running.interrupt()
        assert first.states == second.states == {"configured": 4}, first.err + second.err
        renewed, returned = first.count("renegotiated"), second.count("returned")
        assert 3 <= renewed == first.count("renegotiations_asked")
        assert 3 <= returned == second.count("reconnects_begun")
        # The server says of who shows a token both, one behind the other.
        assert len(server.said("Username/Password authentication succeeded")) == 8 + renewed + returned
        assert len(server.said("Username/auth-token authentication succeeded")) == renewed + returned
        assert server.said("AUTH_FAILED") == []


def test_keys_that_the_server_refuses_once_both_have_them(place: Inside, keys: Keys) -> None:
    """A token that has run out: the server ends the exchange of keys, and then refuses the user."""
    more = ("auth-gen-token 6 4", "hand-window 2")
    with servers.server(place, keys, Setting(more=more), users=USERS) as server:
        profile = server.profile("late", "auth-user-pass")
        given = profile.with_suffix(".users")
        given.write_text("".join(f"{user}:{servers.PASSWORD}\n" for user in USERS))
        # A server that stalls for 2 s forgets a client that is connecting: it tries again. So does one that is refused,
        # with its password.
        when = ("--settled", "3", "--attempt-timeout", "5s", "--retries", "9", "--renegotiate-at", "9s", *servers.STAY)
        running = servers.start_fleet(place, profile, "-n", "4", "--users", given, *when)
        ends = ("renegotiations_failed", "renegotiated", "actions_skipped")
        running.until(lambda: sum(running.standing()[end] for end in ends) == 4)
        fleet = running.interrupt()
        # The settled ones were connected 9 s before; the fourth one may have come late, with a token that is still
        # valid, or too late for its renewal.
        names = ("renegotiations_failed", "renegotiated", "renegotiations_asked", "renegotiations_unfinished")
        failed, renewed, asked, unfinished = (fleet.count(name) for name in names)
        assert 3 <= failed == unfinished == asked - renewed
        assert fleet.document["errors"]["auth_token_refused"] == failed
        # The server may say it twice: for the keys, and to a client that asks for its options again.
        refused = {line.partition(" SENT CONTROL")[0].split()[-1] for line in server.said("SENT CONTROL.*AUTH_FAILED")}
        assert len(refused) == failed, refused
