"""Why `leadline tunnel` says that no tunnel came up, where the truth about a real OpenVPN server is known: wrong keys,
certificates whose time is over, other authorities, wrong passwords. Each has one cause, and all its clients have it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import openvpn_servers as servers
import pytest
from openvpn_keys import WRAPS, Keys
from openvpn_servers import Inside, Setting

pytestmark = [pytest.mark.lab, pytest.mark.takes(15)]

CLIENTS = 5
PATIENCE = ("-n", str(CLIENTS), "--attempt-timeout", "5s")


def version(name: str) -> tuple[str, ...]:
    """A server's lines that allow this version of TLS alone."""
    return (f"tls-version-min {name}", f"tls-version-max {name}")


@pytest.mark.parametrize(
    ("transport", "wrap"),
    [
        ("udp", "tls-crypt"),
        ("tcp", "tls-auth"),
        *(
            pytest.param(transport, wrap, marks=pytest.mark.full_matrix)
            for transport in ("udp", "tcp")
            for wrap in WRAPS[1:]
            if (transport, wrap) not in (("udp", "tls-crypt"), ("tcp", "tls-auth"))
        ),
    ],
)
def test_the_wrong_wrapping_key(place: Inside, keys: Keys, tmp_path: Path, transport: str, wrap: str) -> None:
    other, cause = Keys.make(tmp_path), "reset_unanswered" if transport == "udp" else "closed_unanswered"
    refusals = {"tls-auth": "HMAC authentication failed", "tls-crypt": "unwrap error", "tls-crypt-v2": "client key"}
    with servers.server(place, keys, Setting(transport=transport, wrap=wrap)) as server:
        profile = server.profile("other-key", identity=keys.client)
        text = profile.read_text()
        for name in ("static.key", "v2-client.key"):
            text = text.replace(f"{keys.folder}/{name}", f"{other.folder}/{name}")
        profile.write_text(text)
        fleet = servers.fleet(place, profile, *PATIENCE)
        assert (fleet.states, fleet.causes("failed")) == ({"failed": CLIENTS}, {cause: CLIENTS}), fleet.err
        server.until(lambda: server.said(refusals[wrap]))
        # No other client connects, so this is no limit.
        assert fleet.limits == {}
        server.until(server.is_empty)


@pytest.mark.parametrize(
    ("transport", "tls", "cause"),
    [
        # 2.6 ends a session without the alert; of TLS 1.3 the client's part is over before the server has looked at it.
        ("udp", "1.2", "tls_unfinished"),
        ("udp", "1.3", "no_keys"),
        pytest.param("tcp", "1.2", "closed_by_server", marks=pytest.mark.full_matrix),
        ("tcp", "1.3", "closed_by_server"),
    ],
)
def test_an_expired_certificate(place: Inside, keys: Keys, transport: str, tls: str, cause: str) -> None:
    expired = keys.authority.issue("expired", expired=True)
    with servers.server(place, keys, Setting(transport=transport, more=version(tls))) as server:
        fleet = servers.fleet(place, server.profile("expired", identity=expired), *PATIENCE)
        assert (fleet.states, fleet.causes("failed")) == ({"failed": CLIENTS}, {cause: CLIENTS}), fleet.err
        server.until(lambda: len(server.said("VERIFY ERROR.*certificate has expired: CN=expired")) >= CLIENTS)


@pytest.mark.parametrize("tls", [pytest.param("1.2", marks=pytest.mark.full_matrix), "1.3"])
def test_a_server_whose_certificate_has_expired(place: Inside, keys: Keys, tls: str) -> None:
    expired = keys.authority.issue("expired-server", server=True, expired=True)
    with servers.server(place, replace(keys, server=expired), Setting(more=version(tls))) as server:
        fleet = servers.fleet(place, server.profile("client", identity=keys.client), *PATIENCE)
        assert fleet.states == {"failed": CLIENTS}, fleet.err
        assert fleet.causes("failed") == {"tls_certificate_expired": CLIENTS}
        # TLS 1.3 has no keys yet in which the server could read why.
        alert = "Received fatal SSL alert: certificate expired" if tls == "1.2" else "TLS handshake failed"
        server.until(lambda: len(server.said(alert)) == CLIENTS)
        server.until(server.is_empty)


def test_a_server_of_another_authority(place: Inside, keys: Keys, tmp_path: Path) -> None:
    other = Keys.make(tmp_path)
    with servers.server(place, keys, Setting()) as server:
        profile = server.profile("other-ca", identity=keys.client)
        profile.write_text(profile.read_text().replace(f"{keys.folder}/authority.crt", f"{other.folder}/authority.crt"))
        fleet = servers.fleet(place, profile, *PATIENCE)
        assert fleet.states == {"failed": CLIENTS}, fleet.err
        assert fleet.causes("failed") == {"tls_certificate_unknown_issuer": CLIENTS}


def test_a_wrong_password(place: Inside, keys: Keys, tmp_path: Path) -> None:
    given = tmp_path / "users"
    given.write_text(f"anna:{servers.PASSWORD}\nanna:guessed\nnobody:{servers.PASSWORD}\n")
    with servers.server(place, keys, Setting(), users=["anna"]) as server:
        fleet = servers.fleet(place, server.profile("users", "auth-user-pass"), "-n", "6", "--users", given)
        assert fleet.states == {"configured": 2, "failed": 4}, fleet.err
        assert fleet.causes("failed") == {"auth_failed": 4}
        server.until(lambda: len(server.said("SENT CONTROL.*AUTH_FAILED")) >= 4)
        assert [row["state"] for row in fleet.rows] == ["configured", "failed", "failed"] * 2


def test_no_cipher_in_common(place: Inside, keys: Keys) -> None:
    with servers.server(place, keys, Setting(ciphers="AES-256-GCM")) as server:
        profile = server.profile("other-cipher", "data-ciphers AES-128-CBC", identity=keys.client)
        fleet = servers.fleet(place, profile, "-n", "1")
        assert (fleet.states, fleet.causes("failed")) == ({"failed": 1}, {"auth_failed": 1}), fleet.err
        assert "cipher negotiation failed" in fleet.out
