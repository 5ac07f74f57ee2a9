"""Real OpenVPN servers on loopback of a jail, each with a TUN device, a pool and a log; for test_tunnel_*.py.

Owns starting them, the keys, and reading what they say: log and status. Says nothing
about what is right: that is the tests'.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from lab_scripts import Person, Program, able_person

PASSWORD = "correct horse battery"
"""Every user's."""
ROUTE, DNS = ipaddress.ip_network("10.250.0.0/16"), "10.250.0.53"
"""What every server pushes."""
WRAPS = ("none", "tls-auth", "tls-crypt", "tls-crypt-v2")
_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
_CLIENT_DIRECTION, _SERVER_DIRECTION = 1, 0


def openvpn() -> str:
    """The daemon's path; the test is skipped where it is not installed."""
    path = shutil.which("openvpn", path=f"{os.environ['PATH']}:{cli.SYSTEM_FOLDERS}")
    if path is None:
        pytest.skip("openvpn is not installed (package openvpn)")
    return path


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
    with able_person(name) as person:
        program = person.start(
            "made = enter(); subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True);"
            "say(rootless=made.rootless); wait()"
        )
        said = program.hear()
        try:
            yield Inside(program.inmate(), said["rootless"], folder)
        finally:
            _end(person, program)


def _end(person: Person, program: Program) -> None:
    program.process.terminate()
    program.finish()
    assert person.left_behind() == []


# --- Keys -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Authority:
    """Certificates of ECDSA P-256, good for a day unless asked otherwise, as PEM files in a folder."""

    folder: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, folder: Path, name: str = "authority") -> Authority:
        """A new one; NAME.crt and NAME.key."""
        key = ec.generate_private_key(ec.SECP256R1())
        # Each is another one by its name, too.
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} {secrets.token_hex(4)}")])
        builder = _builder(subject, subject, key, _now())
        certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
            key, hashes.SHA256()
        )
        _write(folder / name, certificate, key)
        return cls(folder, certificate, key)

    def issue(self, name: str, *, server: bool = False, expired: bool = False) -> Path:
        """NAME.crt and NAME.key; the path of the former."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        # A year ago, it was good for the two days around.
        when = _now() - datetime.timedelta(days=365 if expired else 0)
        builder = _builder(subject, self.certificate.subject, key, when)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        # OpenVPN's `remote-cert-tls` insists on there being one.
        signs = dict.fromkeys(_USAGES, False) | {"digital_signature": True}
        builder = builder.add_extension(x509.KeyUsage(**signs), critical=True)
        return _write(self.folder / name, builder.sign(self.key, hashes.SHA256()), key)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    day = datetime.timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - day).not_valid_after(now + day)


def _write(path: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Path:
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.with_suffix(".key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    path.with_suffix(".crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return path.with_suffix(".crt")


@dataclass(frozen=True, slots=True)
class Keys:
    """What all servers of a module share; made once."""

    folder: Path
    authority: Authority
    server: Path
    client: Path

    @classmethod
    def make(cls, folder: Path) -> Keys:
        """Certificates, and keys for each kind of wrapping."""
        authority = Authority.make(folder)
        _genkey("secret", folder / "static.key")
        _genkey("tls-crypt-v2-server", folder / "v2-server.key")
        _genkey("tls-crypt-v2-client", folder / "v2-client.key", "--tls-crypt-v2", folder / "v2-server.key")
        return cls(folder, authority, authority.issue("server", server=True), authority.issue("client"))

    def wrap(self, kind: str, *, server: bool) -> list[str]:
        """The line of a configuration for one end."""
        match kind:
            case "none":
                return []
            case "tls-auth":
                return [f"tls-auth {self.folder}/static.key {_SERVER_DIRECTION if server else _CLIENT_DIRECTION}"]
            case "tls-crypt":
                return [f"tls-crypt {self.folder}/static.key"]
            case _:
                return [f"tls-crypt-v2 {self.folder}/v2-{'server' if server else 'client'}.key"]


def _genkey(kind: str, path: Path, *more: str | Path) -> None:
    command = [openvpn(), *map(str, more), "--genkey", kind, str(path)]
    subprocess.run(command, check=True, capture_output=True)


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
        """Its port, nobody else's in the jail."""
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
        """As soon as it knows so many clients by their names: these. Before it has seen a certificate, none has one."""

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
    """Lines by which a server takes whoever has a certificate, or is one of these users and says the password."""
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
            told = event.get("histograms") or (event.get("outcome") or {}).get("histograms") or ()
            yield Counter({one["metric"]: one["count"] for one in told})

    def _events(self) -> Iterator[dict[str, Any]]:
        """What its agent said, out of the journal."""
        with (self.folder / "journal.ndjson").open() as journal:
            yield from ((json.loads(line).get("event") or {}) for line in journal)


@dataclass(slots=True)
class Running:
    """`leadline tunnel` on its way."""

    process: subprocess.Popen[bytes]
    folder: Path

    def is_running(self, pause_s: float) -> bool:
        """Whether it still is, after so long at most."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(pause_s)
        return self.process.returncode is None

    def standing(self) -> dict[str, int]:
        """How its clients stood last; empty before that is told."""
        counts: dict[str, int] = {}
        for path in self.folder.glob("*/journal.ndjson"):
            # What follows the last line's end is half written.
            for line in path.read_bytes().split(b"\n")[:-1]:
                if standing := (json.loads(line).get("event") or {}).get("standing"):
                    counts = standing["counts"]
        return counts

    def until_stand(self, **counts: int) -> None:
        """Returns as soon as that many of its clients stand so."""
        while not counts.items() <= self.standing().items():
            assert self.is_running(0.1), self.finish().err

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
        out, err = self.process.communicate(timeout=5 * cli.WITHIN_S)
        folders = sorted(self.folder.iterdir()) if self.folder.is_dir() else []
        return Fleet(self.process.returncode, out.decode(), err.decode(), folders[-1] if folders else self.folder)


def start_fleet(
    place: Inside, profile: Path, *arguments: str | Path, as_json: bool = True, temporary: Path | None = None
) -> Running:
    """Start `leadline tunnel` in the jail, with a folder for what it leaves."""
    out = profile.with_suffix(".runs")
    form = ("--json",) if as_json else ()
    pipe, variables = subprocess.PIPE, {"TMPDIR": str(temporary)} if temporary else {}
    command = [cli.LEADLINE, "tunnel", profile, *form, "--out", out, *arguments]
    started = place.start(command, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, env={**os.environ, **variables})
    return Running(started, out)


def fleet(place: Inside, profile: Path, *arguments: str | Path, as_json: bool = True) -> Fleet:
    """`leadline tunnel` in the jail, to its end."""
    return start_fleet(place, profile, *arguments, as_json=as_json).finish()


def issued(server: Server) -> tuple[str | Path, ...]:
    """Each client has a certificate of its own."""
    return ("--ca-key", server.keys.folder / "authority.key")
