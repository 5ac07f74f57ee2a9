"""What `leadline tunnel` says where the truth about a real OpenVPN server is known: too small a pool, too many clients,
wrong keys, a server that stops. And that no secret is in anything that it says or leaves.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import openvpn_servers as servers
import pytest
from openvpn_servers import Inside, Keys, Server, Setting

pytestmark = pytest.mark.lab


def own(server: Server) -> tuple[str | Path, ...]:
    """Each client has a certificate of its own."""
    return ("--ca-key", server.keys.folder / "authority.key")


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_pool_of_60_under_100_clients(place: Inside, keys: Keys, transport: str) -> None:
    with servers.server(place, keys, Setting(transport=transport, pool=60)) as server:
        fleet = servers.fleet(place, server.profile("many"), "-n", "100", *own(server), "--renegotiate-at", "1s")
        assert fleet.states == {"configured": 60, "partial": 40}, fleet.err
        assert fleet.causes("partial") == {"partial_no_address": 40}
        assert fleet.limits == {"pool_exhausted": 40}
        assert len(server.said("no free --ifconfig-pool addresses")) == 40
        given = [row["addresses"][0] for row in fleet.rows if row["state"] == "configured"]
        assert sorted(given) == sorted(f"{server.network}.1.{number}" for number in range(1, 61))
        assert fleet.code == 0


@pytest.mark.parametrize(("transport", "cause"), [("udp", "silence_after_reset"), ("tcp", "closed_unanswered")])
def test_a_server_for_50_under_100_clients(place: Inside, keys: Keys, transport: str, cause: str) -> None:
    with servers.server(place, keys, Setting(transport=transport, more=("max-clients 50",))) as server:
        # The real client would wait for 60 s.
        patience = ("--attempt-timeout", "10s")
        fleet = servers.fleet(place, server.profile("many"), "-n", "100", *own(server), *patience)
        assert fleet.states == {"configured": 50, "failed": 50}, fleet.err
        assert fleet.causes("failed") == {cause: 50}
        assert fleet.limits == {"max_clients": 50}
        assert server.said("exceed maximum number of clients")


def test_more_clients_than_a_server_answers_at_first(place: Inside, keys: Keys) -> None:
    """`connect-freq-initial` counts first packets, less those whose handshake was completed."""
    with servers.server(place, keys, Setting(more=("connect-freq-initial 10 60",))) as server:
        fleet = servers.fleet(place, server.profile("many"), "-n", "100", *own(server), "--attempt-timeout", "5s")
        answered = fleet.states["configured"]
        assert 10 <= answered < 100 and fleet.states == {"configured": answered, "failed": 100 - answered}, fleet.err
        assert fleet.causes("failed") == {"reset_unanswered": 100 - answered}
        assert fleet.limits == {"connect_freq_initial": 100 - answered}
        assert server.said("connect-freq-initial 10 60 rate limit exceeded")


def test_the_wrong_wrapping_key(place: Inside, keys: Keys, tmp_path: Path) -> None:
    other = Keys.make(tmp_path)
    with servers.server(place, keys, Setting()) as server:
        profile = server.profile("other-key")
        profile.write_text(profile.read_text().replace(f"{keys.folder}/static.key", f"{other.folder}/static.key"))
        fleet = servers.fleet(place, profile, "-n", "3", *own(server), "--attempt-timeout", "3s")
        assert (fleet.states, fleet.causes("failed")) == ({"failed": 3}, {"reset_unanswered": 3}), fleet.err
        assert server.said("tls-crypt unwrap error|unwrapping failed")
        assert server.clients() == []


def test_an_expired_certificate(place: Inside, keys: Keys) -> None:
    expired = keys.authority.issue("expired", expired=True)
    with servers.server(place, keys, Setting()) as server:
        profile = server.profile("expired", identity=expired)
        fleet = servers.fleet(place, profile, "-n", "1", "--attempt-timeout", "5s")
        assert fleet.states == {"failed": 1}, fleet.err
        assert set(fleet.causes("failed")) <= {"tls_alert_certificate_expired", "silence_after_tls", "no_keys"}
        assert server.said("VERIFY ERROR.*certificate has expired")


def test_a_server_of_another_authority(place: Inside, keys: Keys, tmp_path: Path) -> None:
    other = Keys.make(tmp_path)
    with servers.server(place, keys, Setting()) as server:
        profile = server.profile("other-ca", identity=keys.client)
        profile.write_text(profile.read_text().replace(f"{keys.folder}/authority.crt", f"{other.folder}/authority.crt"))
        fleet = servers.fleet(place, profile, "-n", "2")
        assert fleet.states == {"failed": 2}, fleet.err
        assert fleet.causes("failed") == {"tls_certificate_unknown_issuer": 2}


def test_a_wrong_password(place: Inside, keys: Keys, tmp_path: Path) -> None:
    given = tmp_path / "users"
    given.write_text(f"anna:{servers.PASSWORD}\nanna:guessed\nnobody:{servers.PASSWORD}\n")
    with servers.server(place, keys, Setting(), users=["anna"]) as server:
        fleet = servers.fleet(place, server.profile("users", "auth-user-pass"), "-n", "6", "--users", given)
        assert fleet.states == {"configured": 2, "failed": 4}, fleet.err
        assert fleet.causes("failed") == {"auth_failed": 4}
        assert len(server.said("SENT CONTROL.*AUTH_FAILED")) >= 4
        assert [row["state"] for row in fleet.rows] == ["configured", "failed", "failed"] * 2


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
            fleet = servers.fleet(place, profile, "-n", "1", option, value, "--first-data", "1s")
            assert (fleet.states, fleet.causes("partial")) == ({"partial": 1}, {cause: 1}), fleet.err
        profile = server.profile("all-there", identity=keys.client)
        good = ("--expect-option", "ping-restart 60", "--expect-route", "10.250.0.0/16", "--echo", server.gateway)
        assert servers.fleet(place, profile, "-n", "1", *good).states == {"configured": 1}


def test_no_cipher_in_common(place: Inside, keys: Keys) -> None:
    with servers.server(place, keys, Setting(ciphers="AES-256-GCM")) as server:
        profile = server.profile("other-cipher", "data-ciphers AES-128-CBC", identity=keys.client)
        fleet = servers.fleet(place, profile, "-n", "1")
        assert (fleet.states, fleet.causes("failed")) == ({"failed": 1}, {"auth_failed": 1}), fleet.err
        assert "cipher negotiation failed" in fleet.out


def test_a_server_that_stops_amid_a_storm(place: Inside, keys: Keys) -> None:
    """Nothing comes back for 5 s; the clients ask again, and all of them come up."""
    with servers.server(place, keys, Setting()) as server:
        running = servers.start_fleet(
            place, server.profile("storm"), "-n", "150", "--rate", "50/s", *own(server), "--first-data", "30s"
        )
        server.until(lambda: len(server.said("SENT CONTROL")) >= 20)
        with server.stopped(), pytest.raises(subprocess.TimeoutExpired):
            running.process.wait(5)
        fleet = running.finish()
        assert fleet.states == {"configured": 150}, fleet.err
        assert fleet.count("retransmits") > 0
        # Whoever came while the server stood still waited for it.
        assert fleet.document["metrics"]["connect_max_ms"]["value"] >= 1000


@pytest.mark.parametrize("wrap", servers.WRAPS)
def test_secrets_are_in_no_output(place: Inside, keys: Keys, tmp_path: Path, wrap: str) -> None:
    """Of a fleet that comes up, of one that is refused, and of one whose profile is wrong."""
    given = tmp_path / "users"
    given.write_text(f"anna:{servers.PASSWORD}\nanna:guessed-secret\n")
    with servers.server(place, keys, Setting(wrap=wrap), users=["anna"]) as server:
        profile = server.profile(f"secret-{wrap}", "auth-user-pass", identity=keys.client)
        mixed = servers.fleet(place, profile, "-n", "2", "--users", given)
        assert mixed.states == {"configured": 1, "failed": 1}, mixed.err
        issued = servers.fleet(place, profile, "-n", "1", "--users", given, *own(server))
        assert issued.states == {"configured": 1}, issued.err
        # The password is in the profile, which has an option that nobody knows.
        inline = f"<auth-user-pass>\nanna\n{servers.PASSWORD}\n</auth-user-pass>\nfrobnicate 3\n"
        profile.write_text(profile.read_text().replace("auth-user-pass\n", inline))
        wrong = servers.fleet(place, profile, "-n", "1")
        assert wrong.code == 2 and wrong.err.count("\n") == 1, wrong.err
        secrets = [servers.PASSWORD, "guessed-secret", *lines_of(keys)]
        for fleet in (mixed, issued, wrong):
            left = [path.read_bytes() for path in profile.with_suffix(".runs").rglob("*") if path.is_file()]
            for text in [fleet.out.encode(), fleet.err.encode(), *left]:
                assert [secret for secret in secrets if secret.encode() in text] == []
        assert left, "the runs leave something"


def lines_of(keys: Keys) -> list[str]:
    """The lines of every private file that are no marks."""
    files = ("static.key", "v2-client.key", "client.key", "authority.key")
    lines = [line for name in files for line in (keys.folder / name).read_text().splitlines()]
    return [line for line in lines if len(line) > 20 and not line.startswith(("#", "-"))]
