"""`leadline tunnel` against real OpenVPN servers, in every combination of transport, address family, wrapping, data
cipher and way to say who one is. Each fleet comes up, is answered inside, negotiates new keys once and leaves; the
server's log and status tell of the same clients.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import cli_runs as cli
import openvpn_servers as servers
import pytest
from openvpn_servers import Inside, Keys, Running, Server, Setting

pytestmark = pytest.mark.lab

CLIENTS, SETTLED = 3, 2
WHEN = ("-n", str(CLIENTS), "--settled", str(SETTLED), "--renegotiate-at", "2500ms", "-d", "6s")
"""The settled ones have come up when this time begins; before they ask for new keys, the server has written its status
twice. The last one may come up too late to take part.
"""
CIPHERS = ("AES-256-GCM", "CHACHA20-POLY1305", "AES-256-CBC")
MORE_CIPHERS = ("AES-128-GCM", "AES-192-GCM", "AES-128-CBC", "AES-192-CBC")
WAYS = ("certificate", "password")
USERS = tuple(f"password-{cipher}-{number}" for cipher in (*CIPHERS, *MORE_CIPHERS) for number in range(CLIENTS))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    cli.skip_unless_possible()
    servers.openvpn()
    with servers.inside(tmp_path_factory.mktemp("tunnels")) as jail:
        yield jail


@pytest.fixture(scope="module")
def keys(place: Inside) -> Keys:
    return Keys.make(place.folder)


@pytest.mark.parametrize("wrap", servers.WRAPS)
@pytest.mark.parametrize("ip", [4, 6])
@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_every_combination(place: Inside, keys: Keys, transport: str, ip: int, wrap: str) -> None:
    setting = Setting(transport=transport, ip=ip, wrap=wrap, ciphers=":".join(CIPHERS))
    with servers.server(place, keys, setting, users=USERS) as server:
        prove(server, [(cipher, way, "SHA256") for cipher in CIPHERS for way in WAYS])


def test_the_other_ciphers(place: Inside, keys: Keys) -> None:
    with servers.server(place, keys, Setting(ciphers=":".join(MORE_CIPHERS)), users=USERS) as server:
        prove(server, [(cipher, "certificate", "SHA256") for cipher in MORE_CIPHERS])


@pytest.mark.parametrize("digest", ["SHA1", "SHA384", "SHA512"])
def test_digests_of_packets_and_of_tls_auth(place: Inside, keys: Keys, digest: str) -> None:
    setting = Setting(wrap="tls-auth", ciphers="AES-128-CBC", auth=digest)
    with servers.server(place, keys, setting, users=USERS) as server:
        prove(server, [("AES-128-CBC", "password", digest)])


@pytest.mark.parametrize(
    "framing", ["compress stub", "compress stub-v2", "comp-lzo no", "compress lz4-v2", "compress lzo"]
)
def test_framings_for_compression(place: Inside, keys: Keys, framing: str) -> None:
    """The server may compress what it sends."""
    with servers.server(place, keys, Setting(more=(framing, "allow-compression yes")), users=USERS) as server:
        profile = server.profile("framed", framing, identity=keys.client)
        way = ("--traffic", "echo", "--traffic-rate", "50/s", "--traffic-duration", "500ms", "-l", "1000")
        fleet = servers.fleet(place, profile, "-n", "1", *way)
        assert (fleet.code, fleet.states) == (0, {"configured": 1}), fleet.err
        assert fleet.document["metrics"]["lost_ratio"]["value"] == 0


def prove(server: Server, combinations: list[tuple[str, str, str]]) -> None:
    """Fleets of these all at once, and what must be true of each of them."""
    fleets = [start(server, *combination) for combination in combinations]
    seen: set[tuple[str, str]] = set()
    for fleet in fleets:
        while fleet.is_running(0.05):
            seen |= status(server)
    ended, said = [running.finish() for running in fleets], server.log()
    for (cipher, way, _), ends in zip(combinations, ended, strict=True):
        assert (ends.code, ends.states) == (0, {"configured": CLIENTS}), ends.err + ends.out
        assert SETTLED <= ends.count("renegotiated") <= CLIENTS
        assert ends.count("pings_sent") > 0
        names = {f"{way}-{cipher}-{number}" for number in range(SETTLED)}
        assert {(name, cipher) for name in names} <= seen, seen
    clients, renewed = CLIENTS * len(ended), sum(ends.count("renegotiated") for ends in ended)
    told = Counter(re.findall(r"SENT CONTROL|Control Channel: TLSv1.3|CC-EEN exit message received", said))
    assert told["SENT CONTROL"] == clients
    assert told["Control Channel: TLSv1.3"] == clients + renewed
    assert told["CC-EEN exit message received"] == clients


def start(server: Server, cipher: str, way: str, digest: str) -> Running:
    """A fleet that negotiates new keys once; its clients are called WAY-CIPHER-NUMBER."""
    name, more = f"{way}-{cipher}", ("auth-user-pass",) if way == "password" else ()
    profile = server.profile(name, f"data-ciphers {cipher}", f"auth {digest}", *more)
    who: tuple[str | Path, ...] = ("--ca-key", server.keys.folder / "authority.key", "--name-prefix", f"{name}-")
    if way == "password":
        users = profile.with_suffix(".users")
        users.write_text("".join(f"{user}:{servers.PASSWORD}\n" for user in USERS if f"-{cipher}-" in user))
        who = ("--users", users)
    pools = ("--expect-pool", f"{server.network}.0.0/16", "--expect-pool", server.network_v6)
    given = ("--expect-route", "10.250.0.0/16", "--expect-dns", server.gateway)
    return servers.start_fleet(server.place, profile, *WHEN, *who, *pools, *given, keep=False)


def status(server: Server) -> set[tuple[str, str]]:
    """Name and cipher of each client that is connected."""
    rows = server.clients()
    known = [(row["Username"] if row["Username"] != "UNDEF" else row["Common Name"], row) for row in rows]
    return {(name, row["Data Channel Cipher"]) for name, row in known}
