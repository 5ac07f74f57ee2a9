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
from openvpn_servers import Fleet, Inside, Keys, Running, Server, Setting

pytestmark = pytest.mark.lab

CLIENTS = 2
CIPHERS = ("AES-256-GCM", "CHACHA20-POLY1305", "AES-256-CBC")
MORE_CIPHERS = ("AES-128-GCM", "AES-192-GCM", "AES-128-CBC", "AES-192-CBC")
WAYS = ("certificate", "password")
USERS = ("anna", "bert")


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
    """The server compresses where it may; echo requests of one letter give it reason to."""
    with servers.server(place, keys, Setting(more=(framing, "allow-compression yes")), users=USERS) as server:
        profile = server.profile("framed", framing, identity=keys.client)
        way = ("--traffic", "echo", "--traffic-rate", "50/s", "--traffic-duration", "500ms", "-l", "1000")
        fleet = servers.fleet(place, profile, "-n", "1", *way)
        assert (fleet.code, fleet.states) == (0, {"configured": 1}), fleet.err
        assert fleet.document["metrics"]["lost_ratio"]["value"] == 0


def prove(server: Server, combinations: list[tuple[str, str, str]]) -> None:
    """Fleets of these all at once, and what must be true of each of them."""
    fleets = [start(server, *combination) for combination in combinations]
    seen: set[tuple[str, str, str]] = set()
    for fleet in fleets:
        # Clients that have left stay in the status for as long as the server's farewell takes.
        while fleet.is_running(0.05):
            seen |= status(server)
    seen |= status(server)
    pushed, said = 0, server.log()
    for (cipher, _, _), running in zip(combinations, fleets, strict=True):
        fleet = running.finish()
        agrees(server, fleet, cipher, said, seen)
        pushed += CLIENTS
    told = Counter(re.findall(r"SENT CONTROL|TLS: soft reset|CC-EEN exit message received", said))
    assert told["SENT CONTROL"] == pushed
    assert told["TLS: soft reset"] == pushed
    assert told["CC-EEN exit message received"] == pushed


def start(server: Server, cipher: str, way: str, digest: str) -> Running:
    """A fleet that negotiates new keys once."""
    profile = server.profile(f"{way}-{cipher}", f"data-ciphers {cipher}", f"auth {digest}", *extras(way))
    who: tuple[str | Path, ...] = ("--ca-key", server.keys.folder / "authority.key", "--name-prefix", f"{cipher}-")
    if way == "password":
        who = ("--users", users(server))
    pools = ("--expect-pool", f"{server.network}.0.0/16", "--expect-pool", server.network_v6)
    more = ("--expect-route", "10.250.0.0/16", "--expect-dns", server.gateway, "--renegotiate-at", "1s")
    return servers.start_fleet(server.place, profile, "-n", str(CLIENTS), *who, *pools, *more)


def extras(way: str) -> tuple[str, ...]:
    return ("auth-user-pass",) if way == "password" else ()


def users(server: Server) -> Path:
    file = server.folder / "given-users"
    file.write_text("".join(f"{user}:{servers.PASSWORD}\n" for user in USERS))
    return file


def status(server: Server) -> set[tuple[str, str, str]]:
    """Address inside, peer-id and cipher of each client that is connected."""
    return {(row["Virtual Address"], row["Peer ID"], row["Data Channel Cipher"]) for row in server.clients()}


def agrees(server: Server, fleet: Fleet, cipher: str, said: str, seen: set[tuple[str, str, str]]) -> None:
    """The fleet's own word, and the server's."""
    assert (fleet.code, fleet.states) == (0, {"configured": CLIENTS}), fleet.err + fleet.out
    assert fleet.document["fleet"]["ciphers"] == {cipher: CLIENTS}
    assert fleet.count("renegotiated") == CLIENTS
    for row in fleet.rows:
        [address] = [text for text in row["addresses"] if ":" not in text]
        assert address.startswith(f"{server.network}.")
        assert f"pool returned IPv4={address}, IPv6={row['addresses'][-1]}" in said
        assert (address, str(row["peer_id"]), cipher) in seen
