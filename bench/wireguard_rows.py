"""Rows of the WireGuard fleet at Leadline's own gateway: the memory of a client, and of ten thousand."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import agent
from namespaces import GATEWAY, inside, linked, namespace
from programs import SERVER_CPU, PeerMissing, pinned
from rows import Bound, Rounds, Row, at_most, bounded

from leadline.contract.models import TunnelCounts, TunnelExpectation, TunnelFile, WireguardFiles
from leadline.kinds.tunnel import wg_quick
from leadline.sut.wireguard import PORT, READY, KeyPair

_CLIENTS = 10_000
_PER_S = 400.0
_POOL = "10.83.0.0/16"


def memory(rounds: Rounds) -> Iterator[Row]:
    """Ten thousand peers of one process, and what each of them takes."""
    del rounds  # Once: memory does not vary from run to run.
    done = _fleet(_CLIENTS)
    counts = done.outcome.counts
    configured = counts.configured if isinstance(counts, TunnelCounts) else 0
    shown = f"{done.peak_bytes / 1e6:.3g} MB with {configured:,} of {_CLIENTS:,} configured"
    bound = Bound("at most 120 MB, all configured", lambda value: value <= 120e6 and configured == _CLIENTS)
    yield bounded(f"memory of {_CLIENTS:,} WireGuard clients, the whole agent", done.peak_bytes, shown, bound)
    assert done.outcome.tunnel is not None
    if done.outcome.tunnel.memory_bytes is None:
        raise RuntimeError("the fleet does not know its memory")
    each_kb = done.outcome.tunnel.memory_bytes / _CLIENTS / 1024
    yield bounded("memory per connected WireGuard client", each_kb, f"{each_kb:.3g} KB", at_most(8, " KB"))


def _fleet(clients: int) -> agent.Load:
    """A fleet of this many clients that arrive as fast as the gateway lets them without cookies."""
    with _site(clients) as (files, client_end):
        stage = agent.arrivals(clients, _PER_S)
        workload = agent.fleet(
            WireguardFiles(files=files),
            clients=clients,
            duration_ms=stage.duration_ms + 60_000,
            expect=TunnelExpectation(pools=[_POOL], routes=[], dns=[], options=[]),
            arrivals=[stage],
        )
        return agent.run(workload, client_end)


@contextmanager
def _site(clients: int) -> Iterator[tuple[list[TunnelFile], list[str]]]:
    """A gateway that knows these clients; gives their files, and what a command on their host begins with.

    Raises:
        PeerMissing: this is not root.
    """
    if os.geteuid() != 0:
        raise PeerMissing("namespaces and a TUN device need root")
    own, first = KeyPair.generate(), KeyPair.generate()
    text = (
        f"[Interface]\nPrivateKey = {first.private}\nAddress = 10.83.0.2/16\n"
        f"[Peer]\nPublicKey = {own.public}\nEndpoint = {GATEWAY}:{PORT}\nAllowedIPs = {_POOL}\n"
    )
    made = list(wg_quick.make_clients(text, clients))
    peers = [
        {
            "public_key": client.public_key,
            "endpoint": None,
            "allowed_ips": [str(client.addresses[0].ip)],
            "keepalive_s": None,
        }
        for client, _ in made
    ]
    config = {
        "interface": "wg0",
        "mtu": 1420,
        "private_key": own.private,
        "listen_port": PORT,
        "listen_address": GATEWAY,
        "addresses": ["10.83.0.1/16"],
        "peers": peers,
    }
    with tempfile.TemporaryDirectory() as name, namespace() as gateway, namespace() as hosts:
        linked(gateway, hosts)
        file = Path(name) / "gateway.json"
        file.write_text(json.dumps(config))
        file.chmod(0o600)
        argv = inside(gateway, pinned(SERVER_CPU, ["leadline-agent", "wireguard", str(file)]))
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            try:
                if not any(READY in line for line in process.stdout):
                    raise RuntimeError(f"{argv!r} did not come up")
                files = [TunnelFile(name=f"client {number}", text=text) for number, (_, text) in enumerate(made)]
                yield files, inside(hosts, [])
            finally:
                process.terminate()
