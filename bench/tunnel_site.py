"""A VPN server and its clients for the tunnel rows: two network namespaces with a link between them, on this machine.

Owns the real OpenVPN server in one of them. Needs root.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from namespaces import GATEWAY, inside, linked, namespace
from programs import GENERATOR_CPU, SERVER_CPU, PeerMissing, pinned, program, run

from leadline.sut.pki import Pki, issue

INSIDE = "10.8.0.1"
_PORT = 1194
_WATCH_S = 0.01


@dataclass(frozen=True, slots=True)
class Site:
    """Where the server runs, and where clients do."""

    folder: Path
    pki: Pki
    server_pid: int
    gateway_end: Sequence[str]
    """What a command that runs beside the server begins with."""
    client_end: Sequence[str]
    """What a command that runs on the other end of the link begins with."""

    @contextmanager
    def server_watched(self) -> Iterator[list[tuple[int, float]]]:
        """Instants of the monotonic clock, ns, with the CPU time that the server's process had taken by then, s.

        The list is whole once the context is left."""
        found = [(time.monotonic_ns(), process_cpu_s(self.server_pid))]
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_WATCH_S):
                found.append((time.monotonic_ns(), process_cpu_s(self.server_pid)))

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            yield found
        finally:
            over.set()
            watching.join()

    def profile(self, *more: str) -> str:
        """A client's `.ovpn`, everything in it."""
        own = self.pki.clients["client"]
        inline = {
            "ca": self.pki.authority,
            "cert": own.certificate,
            "key": own.key,
            "tls-crypt": self.folder / "wrap.key",
        }
        blocks = [f"<{name}>\n{path.read_text()}</{name}>" for name, path in inline.items()]
        lines = ["client", "dev tun", f"remote {GATEWAY} {_PORT} udp", "nobind", "remote-cert-tls server", *more]
        return "\n".join([*lines, *blocks, ""])


@contextmanager
def openvpn_site(*more: str) -> Iterator[Site]:
    """An OpenVPN server with certificates on P-256 and tls-crypt, its guards against storms off; `more` of its options.

    Raises:
        PeerMissing: OpenVPN is not installed, or this is not root.
    """
    openvpn = program("openvpn")
    if os.geteuid() != 0:
        raise PeerMissing("namespaces and a TUN device need root")
    with tempfile.TemporaryDirectory() as name, namespace() as gateway, namespace() as clients:
        folder = Path(name)
        linked(gateway, clients)
        pki = issue(folder / "pki", "server", ["client"], now=datetime.datetime.now(datetime.UTC))
        run([openvpn, "--genkey", "secret", str(folder / "wrap.key")])
        log = folder / "server.log"
        argv = [
            *[openvpn, "--dev", "tun", "--server", "10.8.0.0", "255.255.0.0", "--topology", "subnet"],
            *["--local", GATEWAY, "--port", str(_PORT), "--ca", str(pki.authority), "--dh", "none"],
            *["--cert", str(pki.server.certificate), "--key", str(pki.server.key), "--verb", "1"],
            *["--tls-crypt", str(folder / "wrap.key"), "--max-clients", "20000", "--duplicate-cn"],
            *["--connect-freq-initial", "1000000", "1", "--rcvbuf", "4194304", "--sndbuf", "4194304"],
            *["--cipher", "AES-256-GCM", "--log", str(log), *more],
        ]
        process = subprocess.Popen(inside(gateway, pinned(SERVER_CPU, argv)), stdout=subprocess.DEVNULL)
        try:
            _await_line(log, "Initialization Sequence Completed", process)
            yield Site(folder, pki, process.pid, inside(gateway, []), inside(clients, []))
        finally:
            process.terminate()
            process.wait()


@contextmanager
def openvpn_client(site: Site, *more: str) -> Iterator[int]:
    """The peer's own client, connected, with its TUN device; gives its process id."""
    profile, log = site.folder / "client.ovpn", site.folder / "client.log"
    profile.write_text(site.profile(*more))
    log.unlink(missing_ok=True)
    argv = [*site.client_end, *pinned(GENERATOR_CPU, [program("openvpn"), "--config", str(profile), "--log", str(log)])]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    try:
        _await_line(log, "Initialization Sequence Completed", process)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def process_cpu_s(pid: int) -> float:
    """CPU time of a process of one thread so far, user and system, to the ns and not to a tick."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _await_line(log: Path, line: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while not (log.exists() and line in log.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace")[-500:] if log.exists() else ""
            raise RuntimeError(f"{process.args!r} did not come up: {said}")
        # Its log is a file, which nothing announces.
        time.sleep(0.01)
