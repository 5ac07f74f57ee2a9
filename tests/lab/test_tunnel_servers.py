"""What `leadline tunnel` says where the truth about a real OpenVPN server is known: too small a pool, too many clients,
something that is not pushed.
"""

from __future__ import annotations

import openvpn_servers as servers
import pytest
from openvpn_keys import Keys
from openvpn_servers import Inside, Setting

pytestmark = [pytest.mark.lab, pytest.mark.takes(20)]


@pytest.mark.parametrize("transport", ["udp", pytest.param("tcp", marks=pytest.mark.full_matrix)])
def test_a_pool_of_12_under_20_clients(place: Inside, keys: Keys, transport: str) -> None:
    with servers.server(place, keys, Setting(transport=transport, pool=12)) as server:
        fleet = servers.fleet(
            place, server.profile("many"), "-n", "20", *servers.issued(server), "--renegotiate-at", "1s"
        )
        assert fleet.states == {"configured": 12, "partial": 8}, fleet.err
        assert fleet.causes("partial") == {"partial_no_address": 8}
        assert fleet.limits == {"pool_exhausted": 8}
        assert len(server.said("no free --ifconfig-pool addresses")) == 8
        given = [row["addresses"][0] for row in fleet.rows if row["state"] == "configured"]
        assert sorted(given) == sorted(f"{server.network}.1.{number}" for number in range(1, 13))
        assert fleet.code == 0


@pytest.mark.parametrize(("transport", "cause"), [("udp", "silence_after_reset"), ("tcp", "closed_unanswered")])
def test_a_server_for_10_under_20_clients(place: Inside, keys: Keys, transport: str, cause: str) -> None:
    with servers.server(place, keys, Setting(transport=transport, more=("max-clients 10",))) as server:
        # The real client would wait for 60 s.
        patience = ("--attempt-timeout", "5s")
        fleet = servers.fleet(place, server.profile("many"), "-n", "20", *servers.issued(server), *patience)
        assert fleet.states == {"configured": 10, "failed": 10}, fleet.err
        assert fleet.causes("failed") == {cause: 10}
        assert fleet.limits == {"max_clients": 10}
        assert server.said("exceed maximum number of clients")


def test_a_limit_is_named_in_the_text(place: Inside, keys: Keys) -> None:
    with servers.server(place, keys, Setting(transport="tcp", more=("max-clients 4",))) as server:
        fleet = servers.fleet(place, server.profile("many"), "-n", "6", *servers.issued(server), as_json=False)
        text = " ".join(fleet.out.split())
        assert fleet.code == 0 and "4 configured" in text and "2 failed" in text, fleet.out + fleet.err
        assert "looks like max-clients" in text


def test_what_arrivals_do_to_settled_clients(place: Inside, keys: Keys) -> None:
    """The clients' own pings show it."""
    with servers.server(place, keys, Setting()) as server:
        when = ("-n", "12", "--settled", "3", "--rate", "5/s", "--ping", "50ms", *servers.STAY)
        running = servers.start_fleet(place, server.profile("harm"), *when, *servers.issued(server))
        running.until_stand(configured=12)
        running.until_carried(0, pings=running.standing()["pings_sent"] + 30)
        fleet = running.interrupt()
        assert fleet.states == {"configured": 12}, fleet.err
        counts = fleet.outcome["counts"]
        parts = [counts[f"pings_sent_{time}"] for time in ("before", "during", "after")]
        # A fleet that is kept from its processor passes some over, and counts them.
        assert parts[0] + counts.get("pings_unsent", 0) >= 10 * 3 and min(parts) > 0
        own = [row["inside"].get("pings_sent", 0) for row in fleet.rows]
        assert min(own[:3]) > 10 and sum(own[3:]) == 0
        assert sum(parts) == sum(own) == fleet.count("pings_sent")


def test_more_clients_than_a_server_answers_at_first(place: Inside, keys: Keys) -> None:
    """`connect-freq-initial` counts first packets, less those whose handshake was completed."""
    with servers.server(place, keys, Setting(more=("connect-freq-initial 10 60",))) as server:
        fleet = servers.fleet(
            place, server.profile("many"), "-n", "30", *servers.issued(server), "--attempt-timeout", "5s"
        )
        answered = fleet.states["configured"]
        assert 10 <= answered < 30 and fleet.states == {"configured": answered, "failed": 30 - answered}, fleet.err
        assert fleet.causes("failed") == {"reset_unanswered": 30 - answered}
        assert fleet.limits == {"connect_freq_initial": 30 - answered}
        assert server.said("connect-freq-initial 10 60 rate limit exceeded")


def test_what_is_expected_and_not_pushed(place: Inside, keys: Keys) -> None:
    """Each check is missed by its name, and the first one counts."""
    with servers.server(place, keys, Setting()) as server:
        for option, value, cause in [
            ("--expect-route", "10.251.0.0/16", "partial_route_missing"),
            ("--expect-dns", "192.0.2.53", "partial_dns_missing"),
            ("--expect-pool", "192.0.2.0/24", "partial_address_outside_pool"),
            ("--expect-option", "block-outside-dns", "partial_option_missing"),
            ("--echo", "192.0.2.99", "partial_no_data"),
        ]:
            profile = server.profile(cause, identity=keys.client)
            running = servers.start_fleet(place, profile, "-n", "1", option, value, "--first-data", "1s")
            # A client without an answer waits for it as long as an attempt may take.
            fleet = running.interrupt_once(partial=1) if option == "--echo" else running.finish()
            assert (fleet.states, fleet.causes("partial")) == ({"partial": 1}, {cause: 1}), fleet.err
        profile = server.profile("all-there", identity=keys.client)
        good = ("--expect-option", "ping-restart 60", "--expect-route", "10.250.0.0/16", "--echo", server.gateway)
        assert servers.fleet(place, profile, "-n", "1", *good).states == {"configured": 1}
