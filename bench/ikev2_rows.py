"""Rows of IKEv2 fleets at strongSwan: what a tunnel costs the fleet, beside what strongSwan's own load-tester was
measured to take, and the memory of a client.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import agent
from namespaces import GATEWAY, inside, linked, namespace
from programs import SERVER_CPU, PeerMissing, pinned, run
from rows import Rounds, Row, at_most, bounded

from leadline.contract.models import Ikev2Connections, TunnelCounts, TunnelExpectation
from leadline.sut.strongswan import log
from leadline.sut.strongswan.config import daemon_argv, daemon_config
from leadline.sut.strongswan.parameters import StrongswanSut

_CLIENTS = 500
_PER_S = 40.0
"""What charon sets up on one CPU without being behind."""
_ECHO = "10.30.0.1"
_KEY = "a key of the bench"
_PROPOSALS = "proposals = aes128gcm16-prfsha256-x25519"
_CHILD = "esp_proposals = aes128gcm16-x25519"
_GATEWAY = f"""connections {{ all {{ version = 2
  pools = all
  {_PROPOSALS}
  local {{ auth = psk
    id = gateway.bench }}
  remote {{ auth = psk }}
  children {{ net {{ local_ts = 10.30.0.0/16
    {_CHILD} }} }} }} }}
pools {{ all {{ addrs = 10.20.0.0/16 }} }}
secrets {{ ike-all {{ secret = "{_KEY}" }} }}
"""
_CLIENT = f"""connections {{ home {{ version = 2
  remote_addrs = {GATEWAY}
  vips = 0.0.0.0
  {_PROPOSALS}
  local {{ auth = psk
    id = client{{n}}@bench }}
  remote {{ auth = psk
    id = gateway.bench }}
  children {{ net {{ remote_ts = 10.30.0.0/16
    {_CHILD} }} }} }} }}
secrets {{ ike-all {{ secret = "{_KEY}" }} }}
"""


def arrivals(rounds: Rounds) -> Iterator[Row]:
    """Clients that arrive in turn: CPU time of the fleet for each tunnel, with its echo, and memory of a client."""
    del rounds  # Once: charon takes most of the time.
    done = _fleet(_CLIENTS)
    counts = done.outcome.counts
    configured = counts.configured if isinstance(counts, TunnelCounts) else 0
    if configured != _CLIENTS or done.outcome.tunnel is None or done.outcome.tunnel.memory_bytes is None:
        raise RuntimeError(f"{configured:,} of {_CLIENTS:,} clients are configured")
    threads = done.outcome.generator.threads
    each_ms = 1000 * sum(thread.user_s + thread.system_s for thread in threads) / configured
    what = "IKEv2 tunnel set up and verified: CPU of the load's threads (load-tester: 2.0 to 2.5 ms)"
    yield bounded(what, each_ms, f"{each_ms:.3g} ms", at_most(0.25, " ms"))
    each_kb = done.outcome.tunnel.memory_bytes / _CLIENTS / 1024
    yield bounded("memory per connected IKEv2 client", each_kb, f"{each_kb:.3g} KB", at_most(16, " KB"))


def _fleet(clients: int) -> agent.Load:
    stage = agent.arrivals(clients, _PER_S)
    workload = agent.fleet(
        Ikev2Connections(connection=None, files=[]),
        clients=clients,
        duration_ms=stage.duration_ms + 30_000,
        expect=TunnelExpectation(pools=["10.20.0.0/16"], routes=[], dns=[], options=[], echo=_ECHO),
        profile=_CLIENT,
        arrivals=[stage],
        attempt_ms=90_000,
    )
    with _site() as client_end:
        return agent.run(workload, client_end)


@contextmanager
def _site() -> Iterator[list[str]]:
    """charon in a namespace of its own; gives what a command on the clients' host begins with.

    Raises:
        PeerMissing: this is not root, or strongSwan is not installed.
    """
    path = f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"
    daemon, swanctl, env = (shutil.which(name, path=path) for name in ("charon-systemd", "swanctl", "env"))
    if os.geteuid() != 0 or daemon is None or swanctl is None or env is None:
        raise PeerMissing("strongSwan (charon-systemd, swanctl) and namespaces need root and an installation")
    with tempfile.TemporaryDirectory() as name, namespace() as gateway, namespace() as hosts:
        linked(gateway, hosts)
        run(inside(gateway, ["ip", "address", "add", f"{_ECHO}/32", "dev", "lo"]))
        folder = Path(name)
        settings = StrongswanSut(dos_protection=False, ikesa_table_size=4096)
        text = daemon_config(settings, "libipsec", swanctl=swanctl, connects=False)
        (folder / "strongswan.conf").write_text(text)
        (folder / "swanctl.conf").write_text(_GATEWAY)
        argv = inside(gateway, pinned(SERVER_CPU, list(daemon_argv(daemon, env, folder))))
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            try:
                if not any(log.READY in line for line in process.stdout):
                    raise RuntimeError(f"{argv!r} did not come up")
                # charon would wait for a reader of its log.
                with _reader(process.stdout):
                    yield inside(hosts, [])
            finally:
                process.terminate()


@contextmanager
def _reader(log_output: IO[str]) -> Iterator[None]:
    """A process that reads a daemon's log, and ends with this."""
    with subprocess.Popen(["cat"], stdin=log_output, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()
