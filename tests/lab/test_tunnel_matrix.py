"""`leadline tunnel` against real OpenVPN servers, in combinations of transport, address family, wrapping, data cipher
and way to say who one is: each value, and with `make test-all` each pair of values and each combination. Each fleet
comes up, is answered inside before and after it negotiates new keys, and leaves; the servers' logs and status tell of
the same clients and their bytes.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import openvpn_servers as servers
import pytest
from openvpn_keys import WRAPS, Keys
from openvpn_servers import Inside, Running, Server, Setting

pytestmark = [pytest.mark.lab, pytest.mark.takes(20)]

AT_ONCE = 4
"""Fleets: more of them only wait for a processor."""
PER_SERVER = 2
"""Clients of each fleet; the first one is settled and has surely come up when the time below begins."""
PACKET, EACH = 500, 10
"""An echo request's bytes, and how many are answered through each tunnel once it has its new keys."""
FAR_MORE = 10_000
"""Bytes: all control packets of a client are a third of that."""
WHEN = ("--ping", "100ms", "--renegotiate-at", "500ms", *servers.echo("5/s", "-l", str(PACKET)))
CIPHERS = ("AES-256-GCM", "AES-128-GCM", "CHACHA20-POLY1305", "AES-256-CBC")
MORE_CIPHERS = ("AES-192-GCM", "AES-128-CBC", "AES-192-CBC")
DIGESTS = ("SHA1", "SHA384", "SHA512")
WAYS = ("certificate", "password")
TRANSPORTS = ("udp", "tcp")
FAMILIES = (4, 6)
USERS = tuple(f"password-{cipher}-{number}" for cipher in (*CIPHERS, *MORE_CIPHERS) for number in range(8))


@dataclass(frozen=True, slots=True)
class Combination:
    """One value of each setting."""

    wrap: str
    cipher: str
    transport: str
    ip: int
    way: str


def selection() -> list[Combination]:
    """Few of all combinations, in which each value of a setting meets each value of every other one."""
    return [
        Combination(wrap, cipher, TRANSPORTS[(w ^ c) & 1], FAMILIES[(w >> 1 ^ c) & 1], WAYS[(w ^ c >> 1) & 1])
        for (w, wrap), (c, cipher) in itertools.product(enumerate(WRAPS), enumerate(CIPHERS))
    ]


def test_selection_has_each_pair_of_values() -> None:
    values = {"wrap": WRAPS, "cipher": CIPHERS, "transport": TRANSPORTS, "ip": FAMILIES, "way": WAYS}
    for (one, of_one), (other, of_other) in itertools.combinations(values.items(), 2):
        met = {(getattr(chosen, one), getattr(chosen, other)) for chosen in selection()}
        assert met == set(itertools.product(of_one, of_other)), (one, other)


def test_each_value_of_a_setting_carries_data(place: Inside, keys: Keys) -> None:
    """One fleet for each wrapping, with a cipher of its own; both transports, both families, both ways."""
    chosen = [selection()[len(CIPHERS) * wrap + cipher] for wrap, cipher in enumerate((0, 1, 3, 2))]
    for name, values in (("wrap", WRAPS), ("cipher", CIPHERS), ("transport", TRANSPORTS), ("ip", FAMILIES)):
        assert {getattr(one, name) for one in chosen} == set(values), name
    assert {one.way for one in chosen} == set(WAYS)
    with ExitStack() as stack:
        settings = [
            Setting(transport=one.transport, ip=one.ip, wrap=one.wrap, ciphers=":".join(CIPHERS)) for one in chosen
        ]
        made = [stack.enter_context(servers.server(place, keys, setting, users=USERS)) for setting in settings]
        prove([Combined([server], one.cipher, one.way) for server, one in zip(made, chosen, strict=True)])


@pytest.mark.full_matrix
@pytest.mark.parametrize("wrap", WRAPS)
def test_each_pair_of_settings_carries_data(place: Inside, keys: Keys, wrap: str) -> None:
    chosen = [one for one in selection() if one.wrap == wrap]
    with ExitStack() as stack:
        made = {}
        for transport, ip in {(one.transport, one.ip) for one in chosen}:
            setting = Setting(transport=transport, ip=ip, wrap=wrap, ciphers=":".join(CIPHERS))
            made[transport, ip] = stack.enter_context(servers.server(place, keys, setting, users=USERS))
        prove([Combined([made[one.transport, one.ip]], one.cipher, one.way) for one in chosen])


@pytest.mark.full_matrix
@pytest.mark.parametrize("wrap", WRAPS)
def test_every_combination(place: Inside, keys: Keys, wrap: str) -> None:
    """Each fleet has clients at four servers: UDP and TCP of both families."""
    ciphers = ":".join(CIPHERS)
    with ExitStack() as stack:
        settings = [
            Setting(transport=name, ip=ip, wrap=wrap, ciphers=ciphers) for name in TRANSPORTS for ip in FAMILIES
        ]
        made = [stack.enter_context(servers.server(place, keys, setting, users=USERS)) for setting in settings]
        prove([Combined(made, cipher, way) for cipher in CIPHERS for way in WAYS])


@pytest.mark.full_matrix
def test_the_other_ciphers_and_digests(place: Inside, keys: Keys) -> None:
    """A digest is that of packets and of tls-auth."""
    with ExitStack() as stack:
        setting = Setting(ciphers=":".join(MORE_CIPHERS))
        server = stack.enter_context(servers.server(place, keys, setting, users=USERS))
        fleets = [Combined([server], cipher, "certificate") for cipher in MORE_CIPHERS]
        for digest in DIGESTS:
            setting = Setting(wrap="tls-auth", ciphers="AES-128-CBC", auth=digest)
            server = stack.enter_context(servers.server(place, keys, setting, users=USERS))
            fleets.append(Combined([server], "AES-128-CBC", "password", digest))
        prove(fleets)


@pytest.mark.parametrize(
    "framing",
    [
        "compress lz4-v2",
        *(
            pytest.param(one, marks=pytest.mark.full_matrix)
            for one in ("compress stub", "compress stub-v2", "comp-lzo no", "compress lzo")
        ),
    ],
)
def test_framings_for_compression(place: Inside, keys: Keys, framing: str) -> None:
    """The server may compress what it sends."""
    with servers.server(place, keys, Setting(more=(framing, "allow-compression yes")), users=USERS) as server:
        profile = server.profile("framed", framing, identity=keys.client)
        running = servers.start_fleet(place, profile, "-n", "1", *servers.echo("50/s", "-l", "1000"))
        running.until_carried(20)
        fleet = running.interrupt()
        assert (fleet.code, fleet.states) == (servers.INTERRUPTED, {"configured": 1}), fleet.err


Seen = dict[tuple[int, str], dict[str, str]]
"""What each server's status told of a client last, by the client's name."""


@dataclass(slots=True)
class Combined:
    """A fleet of one combination, its clients dealt out to servers; they are called WAY-CIPHER-NUMBER."""

    servers: list[Server]
    cipher: str
    way: str
    digest: str = "SHA256"
    running: Running = field(init=False)
    is_ending: bool = False

    @property
    def clients(self) -> int:
        """How many there are."""
        return PER_SERVER * len(self.servers)

    @property
    def name(self) -> str:
        """What its clients' names begin with."""
        return f"{self.way}-{self.cipher}"

    def start(self) -> None:
        """Start it: it negotiates new keys once, while all of it is answered inside."""
        first, *others = self.servers
        more = [f"data-ciphers {self.cipher}", f"auth {self.digest}", *(f"remote {other.remote}" for other in others)]
        profile = first.profile(self.name, *more, "remote-random", *["auth-user-pass"] * (self.way == "password"))
        who: tuple[str | Path, ...] = (
            "--ca-key",
            first.keys.folder / "authority.key",
            "--name-prefix",
            f"{self.name}-",
        )
        if self.way == "password":
            users = profile.with_suffix(".users")
            users.write_text("".join(f"{self.name}-{number}:{servers.PASSWORD}\n" for number in range(self.clients)))
            who = ("--users", users)
        pools = [pool for one in self.servers for pool in (f"{one.network}.0.0/16", one.network_v6)]
        given = [
            *(f"--expect-pool={pool}" for pool in pools),
            f"--expect-route={servers.ROUTE}",
            f"--expect-dns={servers.DNS}",
        ]
        count = ("-n", str(self.clients), "--settled", str(len(self.servers)))
        self.running = servers.start_fleet(first.place, profile, *count, *WHEN, *who, *given)

    def names(self) -> list[tuple[int, str]]:
        """Each client's server, by its number, and name."""
        settled = len(self.servers)
        return [(self.servers[number % settled].number, f"{self.name}-{number}") for number in range(self.clients)]

    def end_if_shown(self, seen: Seen) -> None:
        """Let it leave once it has been answered, both by pings and in its traffic, after the last one has its new
        keys, and its servers have told that they read and wrote these packets in the names of these clients.
        """
        rows = [seen[name] for name in self.names() if name in seen]
        reported = [row for row in rows if min(int(row["Bytes Received"]), int(row["Bytes Sent"])) >= FAR_MORE]
        if self.is_ending or len(reported) < self.clients:
            return
        if self.running.has_carried(EACH, 10 * len(self.servers), renewed=True):
            servers.interrupt(self.running.process)
            self.is_ending = True


def prove(fleets: list[Combined]) -> None:
    """What must be true of each of these, and of what their servers tell."""
    used = {server.number: server for one in fleets for server in one.servers}
    seen = run(fleets, list(used.values()))
    renewed = sum(prove_fleet(one, seen) for one in fleets)
    for server in used.values():
        server.until(server.is_empty)
    logs = "".join(server.log() for server in used.values())
    reported = Counter(re.findall(r"SENT CONTROL|Control Channel: TLSv1.3|CC-EEN exit message received", logs))
    clients = sum(one.clients for one in fleets)
    assert reported["SENT CONTROL"] == clients
    assert reported["Control Channel: TLSv1.3"] == clients + renewed
    assert reported["CC-EEN exit message received"] == clients


def run(fleets: list[Combined], used: list[Server]) -> Seen:
    """All of them to their ends, a few at a time; what the servers' status files told meanwhile."""
    seen: Seen = {}
    waiting, under_way = list(fleets), list[Combined]()
    while waiting or under_way:
        while waiting and len(under_way) < AT_ONCE:
            waiting[0].start()
            under_way.append(waiting.pop(0))
        under_way = [one for one in under_way if one.running.is_running(0.05)]
        seen |= {(server.number, name_of(row)): row for server in used for row in server.clients()}
        for one in under_way:
            one.end_if_shown(seen)
    return seen


def prove_fleet(one: Combined, seen: Seen) -> int:
    """What must be true of one; how many of its clients negotiated new keys."""
    ends, clients, settled = one.running.finish(), one.clients, len(one.servers)
    # Who has not shown everything until the end of its stay was not interrupted.
    assert (ends.code, ends.states) == (servers.INTERRUPTED, {"configured": clients}), ends.err + ends.out
    # Who comes up too late to be asked for new keys is passed over; no settled one is.
    renewed = ends.count("renegotiated")
    assert settled <= renewed == ends.count("renegotiations_asked") == clients - ends.count("actions_skipped")
    assert {seen[name]["Data Channel Cipher"] for name in one.names()} == {one.cipher}
    return renewed


def name_of(row: dict[str, str]) -> str:
    """What a client calls itself."""
    return row["Username"] if row["Username"] != "UNDEF" else row["Common Name"]
