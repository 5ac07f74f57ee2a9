"""Keys that are renewed by whom and why it may be, against a real OpenVPN server: over TLS 1.2, by the server's time,
by the clients' bytes and packets, and with tokens instead of passwords. Nothing is lost inside meanwhile.
"""

from __future__ import annotations

import openvpn_servers as servers
import pytest
from openvpn_servers import Inside, Keys, Setting

pytestmark = pytest.mark.lab

USERS = tuple(f"user-{number}" for number in range(4))


def test_tls_1_2(place: Inside, keys: Keys) -> None:
    with servers.server(place, keys, Setting(more=("tls-version-max 1.2",))) as server:
        load = ("--traffic", "echo", "--traffic-rate", "50/s", "--traffic-duration", "2s")
        when = ("-n", "4", "--settled", "3", "--renegotiate-at", "500ms", "-d", "10s")
        fleet = servers.fleet(place, server.profile("old"), *when, *load, *servers.issued(server))
        assert (fleet.code, fleet.states) == (0, {"configured": 4}), fleet.err
        renewed = fleet.count("renegotiated")
        assert 3 <= renewed == fleet.count("renegotiations_asked")
        assert fleet.count("sent") + fleet.unsent == 400
        assert (fleet.count("lost"), fleet.count("pings_lost")) == (0, 0)
        assert len(server.said("Control Channel: TLSv1.2")) == 4 + renewed


@pytest.mark.parametrize("tls", ["1.2", "1.3"])
def test_renewal_that_the_server_begins(place: Inside, keys: Keys, tls: str) -> None:
    """Twice and more, while all clients ping; whose last answers are waited for where nobody stops them."""
    more = ("reneg-sec 3", f"tls-version-max {tls}")
    with servers.server(place, keys, Setting(more=more)) as server:
        stay = ("-n", "5", "--ping", "100ms", "-d", "14s")
        fleet = servers.fleet(place, server.profile("renewed"), *stay, *servers.issued(server))
        assert len(server.said(f"Control Channel: TLSv{tls}")) >= 3 * 5
        assert fleet.states == {"configured": 5}, fleet.err
        assert (fleet.count("attempts"), fleet.count("tunnels_lost")) == (5, 0)
        assert fleet.count("pings_sent") >= 5 * 10
        assert fleet.count("pings_lost") == 0
        # Nobody asked the clients for it.
        assert fleet.count("renegotiations_asked") == 0
        assert len(server.said("SENT CONTROL")) == 5


@pytest.mark.parametrize("limit", ["reneg-bytes 150000", "reneg-pkts 150"])
def test_renewal_by_what_keys_have_carried(place: Inside, keys: Keys, limit: str) -> None:
    """Each client's own count of both ways: again and again."""
    with servers.server(place, keys, Setting()) as server:
        load = ("--traffic", "echo", "--traffic-rate", "50/s", "-l", "1000", "--traffic-duration", "4s")
        fleet = servers.fleet(place, server.profile("worn", limit), "-n", "3", *load, *servers.issued(server))
        assert (fleet.code, fleet.states) == (0, {"configured": 3}), fleet.err
        assert (fleet.count("sent") + fleet.unsent, fleet.count("lost")) == (600, 0)
        renewed = fleet.outcome["counts"]["renegotiated"]
        assert renewed >= 2 * 3 and len(server.said("Control Channel: TLSv1.3")) == 3 + renewed
        assert len(server.said("SENT CONTROL")) == 3


def test_tokens_instead_of_passwords(place: Inside, keys: Keys) -> None:
    """A client shows its password once; for new keys, and when it comes again, the token that it was given."""
    with servers.server(place, keys, Setting(more=("auth-gen-token 600",)), users=USERS) as server:
        profile = server.profile("token", "auth-user-pass")
        given = profile.with_suffix(".users")
        given.write_text("".join(f"{user}:{servers.PASSWORD}\n" for user in USERS))
        when = ("-n", "4", "--settled", "3", "--renegotiate-at", "500ms", "--reconnect-at", "2s", "-d", "9s")
        fleet = servers.fleet(place, profile, *when, "--users", given)
        assert (fleet.code, fleet.states) == (0, {"configured": 4}), fleet.err
        renewed, returned = fleet.count("renegotiated"), fleet.count("returned")
        assert 3 <= renewed == fleet.count("renegotiations_asked")
        assert 3 <= returned == fleet.count("reconnects_begun")
        # The server says of who shows a token both, one behind the other.
        assert len(server.said("Username/Password authentication succeeded")) == 4 + renewed + returned
        assert len(server.said("Username/auth-token authentication succeeded")) == renewed + returned
        assert server.said("AUTH_FAILED") == []
