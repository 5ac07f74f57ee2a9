"""`leadline tunnel` against real OpenVPN servers, in every combination of transport, address family, wrapping, data
cipher and way to say who one is. Each fleet comes up, is answered inside, negotiates new keys once and leaves; the
server's log and status tell of the same clients.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import openvpn_servers as servers
import pytest
from openvpn_servers import Fleet, Inside, Keys, Running, Server, Setting

pytestmark = pytest.mark.lab

CLIENTS, SETTLED = 2, 1
AT_ONCE = 8
"""Fleets: more of them only wait for a processor."""
PER_S, PACKET = 20, 1000
"""Echo requests through each tunnel, per second, and the bytes of each: far more than all control packets together."""
WHEN = (
    *("-n", str(CLIENTS), "--settled", str(SETTLED), "--ping", "100ms", "--renegotiate-at", "1s", "-d", "4s"),
    *("--traffic", "echo", "--traffic-rate", f"{PER_S}/s", "-l", str(PACKET), "--traffic-duration", "3s"),
)
"""The settled ones have come up when this time begins; the last one may come up too late to negotiate new keys."""
CIPHERS = ("AES-256-GCM", "AES-128-GCM", "CHACHA20-POLY1305", "AES-256-CBC")
MORE_CIPHERS = ("AES-192-GCM", "AES-128-CBC", "AES-192-CBC")
DIGESTS = ("SHA1", "SHA384", "SHA512")
WAYS = ("certificate", "password")
USERS = tuple(f"password-{cipher}-{number}" for cipher in (*CIPHERS, *MORE_CIPHERS) for number in range(CLIENTS))


@pytest.mark.parametrize("wrap", servers.WRAPS)
def test_every_combination(place: Inside, keys: Keys, wrap: str) -> None:
    with ExitStack() as stack:
        made = [
            stack.enter_context(servers.server(place, keys, setting, users=USERS))
            for transport in ("udp", "tcp")
            for ip in (4, 6)
            for setting in [Setting(transport=transport, ip=ip, wrap=wrap, ciphers=":".join(CIPHERS))]
        ]
        prove([Combined(server, cipher, way) for cipher in CIPHERS for way in WAYS for server in made])


def test_the_other_ciphers_and_digests(place: Inside, keys: Keys) -> None:
    """A digest is that of packets and of tls-auth."""
    with ExitStack() as stack:
        setting = Setting(ciphers=":".join(MORE_CIPHERS))
        server = stack.enter_context(servers.server(place, keys, setting, users=USERS))
        fleets = [Combined(server, cipher, "certificate") for cipher in MORE_CIPHERS]
        for digest in DIGESTS:
            setting = Setting(wrap="tls-auth", ciphers="AES-128-CBC", auth=digest)
            server = stack.enter_context(servers.server(place, keys, setting, users=USERS))
            fleets.append(Combined(server, "AES-128-CBC", "password", digest))
        prove(fleets)


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


@dataclass(slots=True)
class Combined:
    """A fleet of one combination; its clients are called WAY-CIPHER-NUMBER."""

    server: Server
    cipher: str
    way: str
    digest: str = "SHA256"
    running: Running = field(init=False)

    def start(self) -> None:
        """Start it: it negotiates new keys once, while all of it is answered inside."""
        server, name, more = self.server, f"{self.way}-{self.cipher}", ()
        if self.way == "password":
            more = ("auth-user-pass",)
        profile = server.profile(name, f"data-ciphers {self.cipher}", f"auth {self.digest}", *more)
        who: tuple[str | Path, ...] = ("--ca-key", server.keys.folder / "authority.key", "--name-prefix", f"{name}-")
        if self.way == "password":
            users = profile.with_suffix(".users")
            users.write_text("".join(f"{user}:{servers.PASSWORD}\n" for user in USERS if f"-{self.cipher}-" in user))
            who = ("--users", users)
        pools = ("--expect-pool", f"{server.network}.0.0/16", "--expect-pool", server.network_v6)
        given = ("--expect-route", "10.250.0.0/16", "--expect-dns", server.gateway)
        self.running = servers.start_fleet(server.place, profile, *WHEN, *who, *pools, *given)

    @property
    def names(self) -> set[str]:
        """Of its clients, as the server knows them."""
        return {f"{self.way}-{self.cipher}-{number}" for number in range(CLIENTS)}


Seen = dict[tuple[int, str], dict[str, str]]
"""What each server's status told of a client last, by the client's name."""


def prove(fleets: list[Combined]) -> None:
    """What must be true of each of these, and of what their servers tell."""
    used = {one.server.number: one.server for one in fleets}
    seen: Seen = {}
    waiting, under_way = list(fleets), list[Combined]()
    while waiting or under_way:
        while waiting and len(under_way) < AT_ONCE:
            waiting[0].start()
            under_way.append(waiting.pop(0))
        under_way = [one for one in under_way if one.running.is_running(0.02)]
        for server in used.values():
            rows = [(name_of(row), row) for row in server.clients()]
            seen |= {(server.number, name): row for name, row in rows if name != "UNDEF"}
    renewed = dict.fromkeys(used, 0)
    for one in fleets:
        renewed[one.server.number] += prove_fleet(one, seen)
    for number, server in used.items():
        clients = CLIENTS * sum(one.server is server for one in fleets)
        server.until(server.is_empty)
        told = Counter(re.findall(r"SENT CONTROL|Control Channel: TLSv1.3|CC-EEN exit message received", server.log()))
        assert told["SENT CONTROL"] == clients
        assert told["Control Channel: TLSv1.3"] == clients + renewed[number]
        assert told["CC-EEN exit message received"] == clients


def prove_fleet(one: Combined, seen: Seen) -> int:
    """What must be true of one; how many of its clients negotiated new keys."""
    ends = one.running.finish()
    assert (ends.code, ends.states) == (0, {"configured": CLIENTS}), ends.err + ends.out
    renewed = ends.count("renegotiated")
    assert SETTLED <= renewed <= CLIENTS
    # Both ways, of which many after the last one has its new keys.
    assert ends.count("pings_sent") >= 10 * SETTLED
    assert (ends.count("sent"), ends.count("received"), ends.count("lost")) == (3 * PER_S * CLIENTS,) * 2 + (0,)
    assert ends.count("pings_lost") == 0
    assert answered_after_renewal(ends, renewed) >= 10 * CLIENTS
    # The server read and wrote these packets in the names of these clients.
    rows = {name: seen.get((one.server.number, name), {}) for name in one.names}
    assert {row.get("Data Channel Cipher") for row in rows.values()} == {one.cipher}, rows
    for row in rows.values():
        assert min(int(row["Bytes Received"]), int(row["Bytes Sent"])) >= 10 * PACKET, row
    return renewed


def answered_after_renewal(fleet: Fleet, renewed: int) -> int:
    """Echo requests answered after the last client had its new keys."""
    answered = 0
    for counts in fleet.recorded():
        if renewed <= 0:
            answered += counts["latency"]
        renewed -= counts["renegotiate"]
    return answered


def name_of(row: dict[str, str]) -> str:
    """What a client calls itself."""
    return row["Username"] if row["Username"] != "UNDEF" else row["Common Name"]
