"""Lines as OpenVPN 2.6.14 and 2.4 write them, and what they mean."""

from __future__ import annotations

import pytest

from leadline.sut.openvpn.log import cause, of_client, refuses_unnamed, unanswered, unstamped

T = "2026-11-21 20:00:00 "
UNREACHED = T + ("TLS Error: TLS key negotiation failed to occur within 60 seconds (check your network connectivity)")
POOL = T + "client4/10.81.1.4:40112 MULTI: no free --ifconfig-pool addresses are available"
FULL = T + "10.81.1.9:1194 MULTI: new incoming connection would exceed maximum number of clients (2)"


@pytest.mark.parametrize(
    ("line", "begins"),
    [
        (T + "AUTH: Received control message: AUTH_FAILED,Data channel cipher", "the gateway refused it: AUTH"),
        (
            T + "read UDPv4 [ECONNREFUSED]: Connection refused (fd=3,code=111)",
            "no process listens at the gateway: read",
        ),
        (UNREACHED, "no answer from the gateway: TLS Error"),
        (T + "VERIFY ERROR: depth=0, error=certificate has expired", "a certificate was refused: VERIFY"),
        ("Options error: Unrecognized option or missing parameter(s)", "it refuses its options: Options"),
        (POOL, "the gateway's address pool is used up: MULTI"),
        (FULL, "the gateway has its maximum number of clients: 10.81.1.9"),
        (
            T
            + "TCP/UDP: Socket bind failed on local address [AF_INET]10.81.0.1:1194: Address already in use (errno=98)",
            "its port is in use: TCP/UDP",
        ),
    ],
)
def test_a_line_and_its_meaning(line: str, begins: str) -> None:
    found = cause([line])
    assert found is not None
    assert found.startswith(begins)
    assert "2026" not in found


def test_what_explains_most_wins_over_what_comes_last() -> None:
    lines = [T + "Options error: no such cipher", T + "Exiting due to fatal error"]
    assert cause(lines) == "it refuses its options: Options error: no such cipher"
    assert cause(reversed(lines)) == cause(lines)


def test_success_is_no_cause() -> None:
    assert cause([T + "Initialization Sequence Completed"]) is None
    assert cause([]) is None


def test_the_servers_lines_about_one_client() -> None:
    other = T + "client41/10.81.1.41:40112 MULTI: no free --ifconfig-pool addresses are available"
    assert of_client([POOL, other, FULL], "client4") == [POOL]


def test_who_is_turned_away_unnamed_hears_nothing() -> None:
    assert refuses_unnamed(FULL)
    assert not refuses_unnamed(POOL)
    assert unanswered([UNREACHED, T + "TLS Error: TLS handshake failed"])
    assert not unanswered([T + "AUTH_FAILED"])


@pytest.mark.parametrize(
    "line",
    ["2026-11-21 20:00:00 hello", "2026-11-21 20:00:00 us=4711 hello", "Sat Nov 21 20:00:00 2026 hello", "hello"],
)
def test_times_are_taken_off(line: str) -> None:
    assert unstamped(line) == "hello"
