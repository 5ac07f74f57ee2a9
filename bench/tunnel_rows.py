"""Rows of the OpenVPN fleet beside a real server and OpenVPN's own client: handshakes, memory, lateness, data."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Iterator
from typing import Any

import agent
from programs import GENERATOR_CPU, cpu_until_end, pinned, program
from rows import Bound, Rounds, Row, at_most, bounded, compared
from tunnel_site import INSIDE, Site, openvpn_client, openvpn_site, process_cpu_s

from leadline.analysis.histograms import decode
from leadline.contract.models import (
    Outcome,
    ProfileIdentity,
    TunnelEcho,
    TunnelExpectation,
    TunnelUdp,
    TunnelWorkload,
)

_STORM, _MANY = 1_000, 10_000
_PEERS_CLIENTS = 20
_PACED, _PACED_PPS, _PACED_S = 500, 50.0, 30
_LATE_NS = 1_000_000
_DATAGRAM_BYTES, _DATAGRAMS_PER_S = 1_300, 60_000.0


def storm(rounds: Rounds) -> Iterator[Row]:
    """A thousand clients at once, and what a client costs beside OpenVPN's own."""
    walls, handshakes, busy, memory = [], [], [], []
    for _ in range(rounds.count):
        with openvpn_site() as site:
            before_s = site.server_cpu_s
            done = _fleet(site, _STORM)
            server_s = site.server_cpu_s - before_s
            theirs_s = statistics.mean(_handshake_cpu_s(site) for _ in range(_PEERS_CLIENTS))
        wall_s = _until_configured_s(done.outcome)
        walls.append((wall_s, server_s))
        handshakes.append((done.cpu_s / _STORM * 1e3, theirs_s * 1e3))
        busy.append(_busiest(done.outcome))
        memory.append(_memory_bytes(done.outcome) / _STORM / 1024)
    note = f"the fleet's thread was busy {statistics.median(busy) * 100:.0f} % of its time"
    yield compared(
        f"{_STORM:,} clients at once until all are configured, against the server's own CPU time",
        "s",
        "OpenVPN server",
        walls,
        bound=at_most(1.15),
        note=note,
    )
    yield compared("a handshake, CPU time", "ms", "an openvpn process", handshakes, bound=at_most(0.4))
    each_kb = statistics.median(memory)
    yield bounded("memory per connected client", each_kb, f"{each_kb:.3g} KB", at_most(64, " KB"))


def many(rounds: Rounds) -> Iterator[Row]:
    """Ten thousand clients of one process."""
    del rounds  # Once: memory does not vary from run to run.
    with openvpn_site() as site:
        done = _fleet(
            site, _MANY, arrivals=[{"from_per_s": 400.0, "to_per_s": 400.0, "duration_ms": 25_000}], seconds=90
        )
    configured = done.outcome.counts.get("configured", 0)
    shown = f"{done.peak_bytes / 1e6:.3g} MB with {configured:,} of {_MANY:,} configured"
    bound = Bound("under 1 GB, all configured", lambda value: value < 1e9 and configured == _MANY)
    yield bounded(f"memory of {_MANY:,} clients, the whole agent", done.peak_bytes, shown, bound)


def paced(rounds: Rounds) -> Iterator[Row]:
    """Many clients that each send at a pace."""
    del rounds  # Once: it is long by itself.
    traffic = TunnelEcho(kind="echo", to=INSIDE, rate_pps=_PACED_PPS, packet_bytes=200, duration_ms=_PACED_S * 1000)
    with openvpn_site() as site:
        outcome = _fleet(site, _PACED, traffic=traffic, seconds=_PACED_S + 30).outcome
    late = decode(next(report for report in outcome.histograms if report.metric == "traffic_late").model_dump())
    count = int(late.counts.sum())
    ratio = float(late.counts[late.highs_ns > _LATE_NS].sum()) / count
    shown = f"{ratio * 100:.2g} % of {count:,}"
    bound = Bound("under 0.1 %", lambda value: value < 0.001)
    yield bounded(f"{_PACED} clients, {_PACED_PPS:g} packets/s each: sent more than 1 ms late", ratio, shown, bound)


def data(rounds: Rounds) -> Iterator[Row]:
    """Datagrams through one tunnel, to the same server behind the same gateway."""
    pairs = []
    with openvpn_site() as site:
        argv = [*site.gateway_end, *pinned(0, ["leadline-agent", "serve", "--bind", INSIDE, "--port", "5201"])]
        serving = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(rounds.count):
                pairs.append((_fleet_ns_per_byte(site, rounds.seconds), _client_ns_per_byte(site, rounds.seconds)))
        finally:
            serving.terminate()
            serving.wait()
    yield compared(
        f"data through one tunnel, {_DATAGRAM_BYTES} B datagrams, client's CPU time",
        "ns/B",
        "the openvpn client",
        pairs,
        bound=at_most(0.5),
        note="the fleet's includes making the load, openvpn's does not",
    )


def _fleet(site: Site, clients: int, **more: Any) -> agent.Load:
    """A fleet of so many clients, all at once unless told otherwise."""
    seconds = more.pop("seconds", 60)
    workload = TunnelWorkload(
        kind="tunnel",
        profile=site.profile(),
        clients=clients,
        threads=1,
        identities=ProfileIdentity(**{"from": "profile"}),
        users=[],
        bind=[],
        arrivals=more.pop("arrivals", []),
        settled=0,
        duration_ms=seconds * 1000,
        attempt_ms=60_000,
        retries=0,
        expect=TunnelExpectation(pools=["10.8.0.0/16"], routes=[], dns=[], options=[]),
        first_data_ms=30_000,
        actions=[],
        interval_ms=1000,
        **more,
    )
    return agent.run(workload, site.client_end)


def _until_configured_s(outcome: Outcome) -> float:
    assert outcome.tunnel is not None
    rows = outcome.tunnel.clients
    lost = [row.cause for row in rows if row.configured_ns is None]
    if lost:
        raise RuntimeError(f"{len(lost)} of {len(rows)} clients are not configured, the first one: {lost[0]}")
    began_ns = min(row.due_ns for row in rows)
    return (max(row.due_ns + (row.configured_ns or 0) for row in rows) - began_ns) / 1e9


def _busiest(outcome: Outcome) -> float:
    threads = outcome.generator.threads
    return max((thread.user_s + thread.system_s) / thread.wall_s for thread in threads)


def _memory_bytes(outcome: Outcome) -> int:
    assert outcome.tunnel is not None
    if outcome.tunnel.memory_bytes is None:
        raise RuntimeError("the fleet does not know its memory")
    return outcome.tunnel.memory_bytes


def _handshake_cpu_s(site: Site) -> float:
    """CPU time of an openvpn process that connects and leaves; it has no TUN device to make."""
    profile = site.folder / "once.ovpn"
    profile.write_text(site.profile("connect-retry-max 1"))
    argv = [program("openvpn"), "--config", str(profile), "--dev", "null", "--ifconfig-noexec", "--verb", "1"]
    process = subprocess.Popen(
        [*site.client_end, *pinned(GENERATOR_CPU, argv)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "Initialization Sequence Completed" in line:
            process.terminate()
    process.stdout.close()
    return cpu_until_end(process)


def _fleet_ns_per_byte(site: Site, seconds: int) -> float:
    traffic = TunnelUdp(
        kind="udp",
        host=INSIDE,
        port=5201,
        direction="up",
        rate_pps=_DATAGRAMS_PER_S,
        datagram_bytes=_DATAGRAM_BYTES,
        duration_ms=seconds * 1000,
    )
    done = _fleet(site, 1, traffic=traffic, seconds=seconds + 20)
    return done.cpu_s * 1e9 / _received_bytes(done.outcome)


def _client_ns_per_byte(site: Site, seconds: int) -> float:
    with openvpn_client(site) as pid:
        before_s = process_cpu_s(pid)
        outcome = agent.run(
            agent.datagrams(INSIDE, 5201, seconds, _DATAGRAM_BYTES, _DATAGRAMS_PER_S), site.client_end
        ).outcome
        spent_s = process_cpu_s(pid) - before_s
    return spent_s * 1e9 / _received_bytes(outcome)


def _received_bytes(outcome: Outcome) -> int:
    received = sum(flow.received_bytes or 0 for flow in outcome.flows)
    if received == 0:
        raise RuntimeError(f"nothing came through the tunnel: {outcome.errors}")
    return received
