"""Real OpenVPN servers on loopback of a jail, each with a TUN device, a pool and a log; for test_tunnel_*.py.

Owns starting them and fleets, and reading what they say: log and status. Says nothing
about what is right: that is the tests'.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import cli_runs as cli
from lab_scripts import JailUser, Program, jail_user
from openvpn_keys import Keys, openvpn

PASSWORD = "correct horse battery"
"""Every user's."""
ROUTE, DNS = ipaddress.ip_network("10.250.0.0/16"), "10.250.0.53"
"""What every server pushes."""
STAY = ("-d", f"{cli.WITHIN_S:g}s")
"""A fleet that pings, or carries more than this, stays until the test has seen enough and ends it."""
INTERRUPTED = 130
"""How it ends then."""
_PATIENCE = ("--first-data", f"{cli.WITHIN_S:g}s")
"""Unless a test says otherwise: however late a tunnel's first answer comes, it is one."""


def echo(rate: str, *more: str) -> tuple[str, ...]:
    """Echo requests through each tunnel for as long as the fleet stays.

    What a server is asked while it does not run waits in its socket, and has room there for 3 s if it is little.
    """
    return ("--traffic", "echo", "--traffic-rate", rate, "--traffic-duration", "1h", *STAY, *more)


# --- Where they run ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Inside:
    """A jail with loopback only; what is started in it ends with it."""

    inmate: int
    rootless: bool
    folder: Path
    servers: int = 0

    def enter(self, command: Sequence[str | Path]) -> list[str]:
        """The command that runs `command` in the jail."""
        user = ["--user", "--preserve-credentials"] if self.rootless else []
        way = ["nsenter", "--target", str(self.inmate), "--net", "--mount", "--pid", *user, "--"]
        return [*way, *map(str, command)]

    def start(self, command: Sequence[str | Path], **keywords: Any) -> subprocess.Popen[bytes]:
        """Start a program in the jail."""
        return subprocess.Popen(self.enter(command), **keywords)


def inner(process: subprocess.Popen[bytes]) -> int:
    """The pid, out here, of a program in a jail: the process that was started is nsenter's."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else process.pid


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Ask a program in a jail to end, as Ctrl-C does."""
    os.kill(inner(process), signal.SIGINT)


@contextmanager
def inside(folder: Path) -> Iterator[Inside]:
    """A jail until the end of the block; skips, with the reason, where this machine allows none."""
    name = "root" if os.geteuid() == 0 else "nobody"
    with jail_user(name) as user:
        program = user.start(
            "made = enter(); subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True);"
            "print_json(rootless=made.rootless); wait()"
        )
        said = program.next_message()
        try:
            yield Inside(program.inmate(), said["rootless"], folder)
        finally:
            _end(user, program)


def _end(user: JailUser, program: Program) -> None:
    program.process.terminate()
    program.finish()
    assert user.left_behind() == []


# --- Servers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """How a server and its clients' profile are set."""

    transport: str = "udp"
    ip: int = 4
    wrap: str = "tls-crypt"
    ciphers: str = "AES-256-GCM:AES-128-GCM:CHACHA20-POLY1305:AES-256-CBC"
    auth: str = "SHA256"
    pool: int | None = None
    """Addresses for clients; plenty unless given."""
    more: tuple[str, ...] = ()
    """Lines of the server's configuration."""


@dataclass(slots=True)
class Server:
    """A server that runs."""

    setting: Setting
    keys: Keys
    folder: Path
    number: int
    place: Inside
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def address(self) -> str:
        """Where it listens."""
        return "127.0.0.1" if self.setting.ip == 4 else "::1"

    @property
    def port(self) -> int:
        """Its port, which nothing else in the jail uses."""
        return 1200 + self.number

    @property
    def remote(self) -> str:
        """What a profile calls it."""
        proto = f"{self.setting.transport}{self.setting.ip}"
        return f"{self.address} {self.port} {proto}{'-client' if self.setting.transport == 'tcp' else ''}"

    @property
    def network(self) -> str:
        """What its clients' addresses are of; the first is its own."""
        return f"10.{90 + self.number}"

    @property
    def network_v6(self) -> str:
        """The same of IPv6, as CIDR."""
        return f"fd00:{90 + self.number:x}::/64"

    @property
    def gateway(self) -> str:
        """Its own address inside."""
        return f"{self.network}.0.1"

    @property
    def users(self) -> Path:
        """Lines of user:password."""
        return self.folder / "users"

    def profile(self, name: str, *lines: str, wrap: str | None = None, identity: Path | None = None) -> Path:
        """Write a client's profile with more `lines`; without an identity it has a password only."""
        setting = self.setting
        pair = [f"cert {identity}", f"key {identity.with_suffix('.key')}"] if identity is not None else []
        text = [
            "client",
            "dev tun",
            "nobind",
            f"remote {self.remote}",
            "remote-cert-tls server",
            f"ca {self.keys.folder}/authority.crt",
            f"auth {setting.auth}",
            *self.keys.wrap(setting.wrap if wrap is None else wrap, server=False),
            *pair,
            *lines,
        ]
        path = self.folder / f"{name}.ovpn"
        path.write_text("\n".join(text) + "\n")
        return path

    def log(self) -> str:
        """All that it has said."""
        return (self.folder / "log").read_text(errors="replace")

    def said(self, pattern: str) -> list[str]:
        """Lines of the log in which the pattern is found."""
        return [line for line in self.log().splitlines() if re.search(pattern, line)]

    def clients(self) -> list[dict[str, str]]:
        """The clients that it had a second ago, by what it calls the columns.

        From the file that it writes, as its management interface goes deaf over TCP: 2.6 loses that socket's events.
        """
        lines = [line.split(",") for line in str(self.until(self._status)).splitlines()]
        [head] = [line[2:] for line in lines if line[:2] == ["HEADER", "CLIENT_LIST"]]
        return [dict(zip(head, line[1:], strict=True)) for line in lines if line[0] == "CLIENT_LIST"]

    def listed(self, count: int) -> list[dict[str, str]]:
        """The clients, once it knows this number by name. Before it has seen a certificate, none has one."""

        def all_named() -> list[dict[str, str]] | None:
            rows = [row for row in self.clients() if row["Common Name"] != "UNDEF"]
            return rows if len(rows) == count else None

        return list(self.until(all_named))

    def is_empty(self) -> bool:
        """Whether it has no client any more."""
        return not self.clients()

    def _status(self) -> str | None:
        """Its status file; None while that is being written."""
        text = (self.folder / "status").read_text(errors="replace")
        return text if text.endswith("END\n") else None

    def until(self, happened: Callable[[], Any]) -> Any:
        """What `happened` gives, as soon as it gives something."""
        deadline = time.monotonic() + cli.WITHIN_S
        while not (found := happened()):
            assert self.process.poll() is None and time.monotonic() < deadline, self.log()[-3000:]
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=0.02)
        return found

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """It does nothing within the block: SIGSTOP."""
        pid = inner(self.process)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)
            # nsenter stops itself with its child.
            self.process.send_signal(signal.SIGCONT)

    def _config(self) -> list[str]:
        setting = self.setting
        server_proto = f"{setting.transport}{setting.ip}{'-server' if setting.transport == 'tcp' else ''}"
        return [
            "dev tun",
            f"proto {server_proto}",
            f"local {self.address}",
            f"port {self.port}",
            *self._addressing(),
            f"ca {self.keys.folder}/authority.crt",
            f"cert {self.keys.server}",
            f"key {self.keys.server.with_suffix('.key')}",
            "dh none",
            *self.keys.wrap(setting.wrap, server=True),
            f"data-ciphers {setting.ciphers}",
            f"auth {setting.auth}",
            f'push "route {ROUTE.network_address} {ROUTE.netmask}"',
            f'push "dhcp-option DNS {DNS}"',
            "disable-dco",
            "keepalive 10 60",
            "connect-freq-initial 100000 10",
            # What comes while it does not run has room.
            "rcvbuf 4194304",
            f"status {self.folder}/status 1",
            "status-version 2",
            "verb 4",
            *setting.more,
        ]

    def _addressing(self) -> list[str]:
        if self.setting.pool is None:
            return [
                "topology subnet",
                f"server {self.network}.0.0 255.255.0.0",
                f"server-ipv6 {self.network_v6}",
            ]
        mask = "255.255.0.0"
        return [
            "mode server",
            "tls-server",
            "topology subnet",
            'push "topology subnet"',
            f"ifconfig {self.gateway} {mask}",
            f"ifconfig-pool {self.network}.1.1 {self.network}.1.{self.setting.pool} {mask}",
            f'push "route-gateway {self.gateway}"',
        ]

    def start(self) -> None:
        """Start it and wait until it listens."""
        config = self.folder / "server.conf"
        config.write_text("\n".join(self._config()) + "\n")
        with (self.folder / "log").open("wb") as log:
            self.process = self.place.start(
                [openvpn(), "--config", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.until(lambda: "Initialization Sequence Completed" in self.log())
        self.until((self.folder / "status").exists)

    def end(self) -> None:
        """End it, unless it has ended."""
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.kill(inner(self.process), signal.SIGTERM)
        try:
            self.process.wait(cli.WITHIN_S)
        finally:
            self.process.kill()


def passwords(folder: Path, users: Sequence[str]) -> tuple[str, ...]:
    """Options by which a server accepts any client with a certificate, or one of these users with the password."""
    script, known = folder / "verify", folder / "users"
    known.write_text("".join(f"{user}:{PASSWORD}\n" for user in users))
    script.write_text(
        '#!/bin/sh\n{ read -r user; read -r password; } < "$1"\n'
        'if [ -z "$user" ]; then test -n "$X509_0_CN"; exit; fi\n'
        # The shell's own means alone: a program's command line would tell the password.
        f'while read -r line; do if [ "$line" = "$user:$password" ]; then exit 0; fi; done < "{known}"\nexit 1\n'
    )
    script.chmod(0o755)
    return (
        "script-security 2",
        f'auth-user-pass-verify "{script}" via-file',
        "auth-user-pass-optional",
        "verify-client-cert optional",
        "duplicate-cn",
    )


@contextmanager
def server(place: Inside, keys: Keys, setting: Setting, *, users: Sequence[str] = ()) -> Iterator[Server]:
    """A server until the end of the block. Clients need a certificate, or with `users` that or one of their names."""
    number, place.servers = place.servers, place.servers + 1
    folder = place.folder / f"server{number}"
    folder.mkdir()
    if users:
        setting = replace(setting, more=(*setting.more, *passwords(folder, users)))
    made = Server(setting, keys, folder, number, place)
    try:
        made.start()
        yield made
    finally:
        made.end()


# --- Fleets -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fleet:
    """What `leadline tunnel` said and left."""

    code: int
    out: str
    err: str
    folder: Path
    """Of its run."""

    @property
    def document(self) -> dict[str, Any]:
        """Its stdout, which must be a result."""
        assert self.out, self.err
        document: dict[str, Any] = json.loads(self.out)
        assert document["schema"] == "leadline.result/1", self.out + self.err
        return document

    def count(self, metric: str) -> int:
        """A count that is known."""
        value = self.document["metrics"][metric]["value"]
        assert value is not None and value == int(value), metric
        return int(value)

    @property
    def states(self) -> dict[str, int]:
        """Clients by their end state."""
        return {name: count for name in ("configured", "partial", "failed") if (count := self.count(name))}

    def causes(self, state: str) -> dict[str, int]:
        """Clients of an end state by its cause."""
        return dict(Counter(row["cause"] for row in self.rows if row["state"] == state))

    @property
    def limits(self) -> dict[str, int]:
        """Clients whose ends look like a limit of the server, by its name."""
        return {one["name"]: one["clients"] for one in self.document["fleet"]["overload"]}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One for each client, out of the journal."""
        return list(self.outcome["tunnel"]["clients"])

    @property
    def outcome(self) -> dict[str, Any]:
        """What its agent said at the end, out of the journal."""
        [outcome] = self.outcomes()
        return outcome

    def outcomes(self) -> list[dict[str, Any]]:
        """The same of each fleet, where there were several."""
        return [dict(outcome) for event in self._events() if (outcome := event.get("outcome"))]

    @property
    def unsent(self) -> int:
        """What was due inside and never left: who is kept from its CPU at the end does not send it later."""
        return int(self.outcome["counts"]["unsent"])

    def recorded(self) -> Iterator[Counter[str]]:
        """How many values of what were recorded, of one moment after another."""
        for event in self._events():
            begun = event.get("histograms") or (event.get("outcome") or {}).get("histograms") or ()
            yield Counter({one["metric"]: one["count"] for one in begun})

    def _events(self) -> Iterator[dict[str, Any]]:
        """What its agent said, out of the journal."""
        with (self.folder / "journal.ndjson").open() as journal:
            yield from ((json.loads(line).get("event") or {}) for line in journal)


@dataclass(frozen=True, slots=True)
class Moment:
    """How a fleet stood while it ran, as its agent told."""

    counts: Counter[str]
    """What is not told is none."""
    echoes: dict[int, tuple[int, int]]
    """Of each client's traffic: packets that it has sent, and answers."""

    @property
    def has_renewed(self) -> bool:
        """Whether each client began to negotiate new keys or was skipped, and all that began have them."""
        asked = self.counts["renegotiations_asked"]
        return self._have_had_their_turn(asked) and asked == self.counts["renegotiated"]

    @property
    def has_returned(self) -> bool:
        """Whether each client began to reconnect or was skipped, and all of them were connected."""
        return self._have_had_their_turn(self.counts["reconnects_begun"]) and self.counts["configured"] == self._clients

    def _have_had_their_turn(self, begun: int) -> bool:
        return begun > 0 and begun + self.counts["actions_skipped"] == self._clients

    @property
    def _clients(self) -> int:
        return sum(self.counts[state] for state in ("configured", "partial", "failed", "waiting", "connecting"))


@dataclass(slots=True)
class Running:
    """`leadline tunnel` on its way."""

    process: subprocess.Popen[bytes]
    printed: tuple[IO[bytes], IO[bytes]]
    """Files with its stdout and stderr: pipes that are read at its end alone would fill up, and it would wait."""
    folder: Path
    """Of runs; `others` were there before."""
    others: set[Path]
    _moments: list[Moment] = field(default_factory=list)
    _read: int = 0

    def is_running(self, pause_s: float) -> bool:
        """Whether it is still running after at most this time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(pause_s)
        return self.process.returncode is None

    def moments(self) -> list[Moment]:
        """All reports so far, the last one last."""
        for folder in self._own():
            with contextlib.suppress(FileNotFoundError), (folder / "journal.ndjson").open("rb") as journal:
                journal.seek(self._read)
                # What follows the last line's end is half written.
                whole, end, _ = journal.read().rpartition(b"\n")
                self._read += len(whole + end)
                self._moments += filter(None, map(moment_of, whole.splitlines()))
        return self._moments

    def standing(self) -> Counter[str]:
        """The last reported state of its clients; empty before the first report."""
        moments = self.moments()
        return moments[-1].counts if moments else Counter()

    def has_carried(self, each: int, pings: int = 0, *, renewed: bool = False) -> bool:
        """Whether each client got answers to this number of echo requests, and all together to this number of pings,
        with not one under way or lost at some moment after that; `renewed`: since they had their new keys.
        """
        moments = self.moments()
        if renewed:
            moments = list(itertools.dropwhile(lambda one: not one.has_renewed, moments))
        if not moments:
            return False
        before = {client: received if renewed else 0 for client, (_, received) in moments[0].echoes.items()}
        pinged = any(one.counts["pings_sent"] == one.counts["pings_answered"] >= pings for one in moments)
        return pinged and all(
            any(one.echoes[client][0] == one.echoes[client][1] >= count + each for one in moments)
            for client, count in before.items()
        )

    def until(self, happened: Callable[[], bool]) -> None:
        """Returns as soon as that is so."""
        while not happened():
            assert self.is_running(0.1), self.finish().err

    def until_carried(self, each: int, pings: int = 0, *, renewed: bool = False) -> None:
        """Waits until it `has_carried` these numbers."""
        self.until(lambda: self.has_carried(each, pings, renewed=renewed))

    def until_stand(self, **counts: int) -> None:
        """Returns as soon as that many of its clients stand so."""
        self.until(lambda: counts.items() <= self.standing().items())

    def interrupt_once(self, **counts: int) -> Fleet:
        """Its end, asked for with SIGINT as soon as that many of its clients stand so."""
        self.until_stand(**counts)
        return self.interrupt()

    def interrupt(self) -> Fleet:
        """Its end, asked for with SIGINT."""
        interrupt(self.process)
        return self.finish()

    def finish(self) -> Fleet:
        """Its end."""
        # A search for the rate that chokes a server may take minutes.
        code = self.process.wait(timeout=5 * cli.WITHIN_S)
        for one in self.printed:
            one.seek(0)
        out, err = (one.read().decode() for one in self.printed)
        return Fleet(code, out, err, next(self._own(), self.folder))

    def _own(self) -> Iterator[Path]:
        return (folder for folder in runs_in(self.folder) if folder not in self.others)


def runs_in(folder: Path) -> list[Path]:
    """The runs' folders in this one, which need not be there yet."""
    return sorted(folder.iterdir()) if folder.is_dir() else []


def moment_of(line: bytes) -> Moment | None:
    """What a line of a journal tells of one."""
    event = json.loads(line).get("event") or {}
    if not (standing := event.get("standing")):
        return None
    return Moment(
        Counter(standing["counts"]),
        {row["flow"]: (row["sent_units"], row["received_units"]) for row in event["flows"]},
    )


def start_fleet(
    place: Inside, profile: Path, *arguments: str | Path, as_json: bool = True, temporary: Path | None = None
) -> Running:
    """Start `leadline tunnel` in the jail, with a folder for what it leaves."""
    out = profile.with_suffix(".runs")
    others = set(runs_in(out))
    form = ("--json",) if as_json else ()
    out_file, err_file = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - closed with `Running`
    environment = {**os.environ, **({"TMPDIR": str(temporary)} if temporary else {})}
    command = [cli.quick_command, "tunnel", profile, *form, "--out", out, *_PATIENCE, *arguments]
    started = place.start(command, stdout=out_file, stderr=err_file, stdin=subprocess.DEVNULL, env=environment)
    return Running(started, (out_file, err_file), out, others)


def fleet(place: Inside, profile: Path, *arguments: str | Path, as_json: bool = True) -> Fleet:
    """`leadline tunnel` in the jail, to its end."""
    return start_fleet(place, profile, *arguments, as_json=as_json).finish()


def issued(server: Server) -> tuple[str | Path, ...]:
    """Each client has a certificate of its own."""
    return ("--ca-key", server.keys.folder / "authority.key")
