"""Rows of the OpenVPN fleet beside a real server and OpenVPN's own client: handshakes, memory, lateness, data."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import agent
from programs import GENERATOR_CPU, SERVER_CPU, compiled, cpu_until_end, pinned, program, run, stolen_s
from rows import Bound, Rounds, Row, at_most, below, bounded, compared
from tunnel_site import INSIDE, Site, openvpn_client, openvpn_site, process_cpu_s

from leadline.analysis.histograms import decode
from leadline.contract.models import (
    Outcome,
    ProfileIdentity,
    Target,
    TunnelCounts,
    TunnelEcho,
    TunnelExpectation,
    TunnelUdp,
)

_STORM, _MANY = 1_000, 10_000
_PEERS_CLIENTS = 8
_PACED, _PACED_PPS, _PACED_S = 500, 50.0, 10
_LATE_NS = 1_000_000
# What a packet and its answer take, about: of the fleet's thread, and of the server meanwhile.
_BUSY_NS, _SERVER_BUSY_NS = 20_000, 34_000
_SCHEDULE_S = 5
_DATAGRAM_BYTES, _DATAGRAMS_PER_S = 1_300, 60_000.0

Way = Literal["up", "down"]


def storm(rounds: Rounds) -> Iterator[Row]:
    """A thousand clients at once, and what a client costs beside OpenVPN's own."""
    walls, handshakes, busy, memory = [], [], [], []
    for _ in range(rounds.count):
        with openvpn_site() as site:
            with site.server_watched() as readings:
                done = _fleet(site, _STORM)
            theirs_s = statistics.mean(_handshake_cpu_s(site) for _ in range(_PEERS_CLIENTS))
        began_ns, ended_ns = _storm_ns(done.outcome)
        wall_s = (ended_ns - began_ns) / 1e9
        walls.append((wall_s, _spent_s(readings, began_ns, ended_ns)))
        handshakes.append((done.cpu_s / _STORM * 1e3, theirs_s * 1e3))
        busy.append(_thread_cpu_s(done.outcome) / wall_s)
        memory.append(_memory_bytes(done.outcome) / _STORM / 1024)
    yield compared(
        f"{_STORM:,} clients at once until all are configured, against the server's own CPU time until then",
        "s",
        "OpenVPN server",
        walls,
        bound=at_most(1.15),
    )
    most = max(busy)
    yield bounded(
        "the fleet's thread in that time, all that it ever took counted",
        most,
        f"{most * 100:.0f} % busy at most",
        below(0.9),
    )
    yield compared("a handshake, CPU time", "ms", "an openvpn process from its start", handshakes, bound=at_most(0.4))
    each_kb = statistics.median(memory)
    yield bounded("memory per connected client", each_kb, f"{each_kb:.3g} KB", at_most(64, " KB"))


def many(rounds: Rounds) -> Iterator[Row]:
    """Ten thousand clients of one process."""
    del rounds  # Once: memory does not vary from run to run.
    with openvpn_site() as site:
        done = _fleet(
            site, _MANY, arrivals=[{"from_per_s": 400.0, "to_per_s": 400.0, "duration_ms": 25_000}], seconds=90
        )
    counts = done.outcome.counts
    configured = counts.configured if isinstance(counts, TunnelCounts) else 0
    shown = f"{done.peak_bytes / 1e6:.3g} MB with {configured:,} of {_MANY:,} configured"
    bound = Bound("under 1 GB, all configured", lambda value: value < 1e9 and configured == _MANY)
    yield bounded(f"memory of {_MANY:,} clients, the whole agent", done.peak_bytes, shown, bound)


def paced(rounds: Rounds) -> Iterator[Row]:
    """Many clients that each send at a pace."""
    del rounds  # Once: it is long by itself.
    traffic = TunnelEcho(kind="echo", to=INSIDE, rate_pps=_PACED_PPS, packet_bytes=200, duration_ms=_PACED_S * 1000)
    with openvpn_site() as site:
        before = _schedule_late()
        stolen_before_s = stolen_s(GENERATOR_CPU)
        outcome = _fleet(site, _PACED, traffic=traffic, seconds=_PACED_S + 30).outcome
        stolen = stolen_s(GENERATOR_CPU) - stolen_before_s
        machine = statistics.mean([before, _schedule_late()])
    _storm_ns(outcome)
    late = decode(next(report for report in outcome.histograms if report.metric == "traffic_late").model_dump())
    count = int(late.counts.sum())
    if count != _PACED * _PACED_PPS * _PACED_S:
        raise RuntimeError(f"{count:,} packets were sent where {_PACED * _PACED_PPS * _PACED_S:,.0f} were due")
    ratio = float(late.counts[late.highs_ns > _LATE_NS].sum()) / count
    waited_s = sum(thread.runnable_wait_s or 0.0 for thread in outcome.generator.threads)
    shown = (
        f"{ratio * 100:.2g} % of {count:,} (a thread that does nothing but wake at that pace, before and after: "
        f"{machine * 100:.2g} %; the fleet's waited {waited_s * 1e3:,.0f} ms for its CPU, and that {stolen:.2g} s "
        "for its host)"
    )
    bound = Bound("under 0.1 %", lambda value: value < 0.001)
    yield bounded(f"{_PACED} clients, {_PACED_PPS:g} packets/s each: sent more than 1 ms late", ratio, shown, bound)


def data(rounds: Rounds) -> Iterator[Row]:
    """Datagrams through one tunnel, to the same server behind the same gateway, and from it."""
    pairs: dict[Way, list[tuple[float, float]]] = {"up": [], "down": []}
    with openvpn_site() as site, _served_inside(site):
        for _ in range(rounds.count):
            for way, found in pairs.items():
                found.append(
                    (_fleet_ns_per_byte(site, way, rounds.seconds), _client_ns_per_byte(site, way, rounds.seconds))
                )
    for way, found in pairs.items():
        yield compared(
            f"data {way} through one tunnel, {_DATAGRAM_BYTES} B datagrams, client's CPU time",
            "ns/B",
            "the openvpn client",
            found,
            bound=at_most(0.5),
            note="the fleet's includes the load's own, openvpn's does not",
        )


def own_costs(seconds: int) -> tuple[float, float, float]:
    """CPU time of ours alone: of a handshake, ms; of a byte up and of a byte down through one tunnel, ns."""
    with openvpn_site() as site, _served_inside(site):
        handshake_ms = _fleet(site, _STORM).cpu_s / _STORM * 1e3
        return handshake_ms, _fleet_ns_per_byte(site, "up", seconds), _fleet_ns_per_byte(site, "down", seconds)


@contextmanager
def _served_inside(site: Site) -> Iterator[None]:
    """Our server behind the gateway."""
    argv = [*site.gateway_end, *pinned(SERVER_CPU, ["leadline-agent", "serve", "--bind", INSIDE, "--port", "5201"])]
    serving = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        serving.terminate()
        serving.wait()


def _schedule_late() -> float:
    """The share of due instants that a bare schedule comes to too late on the generators' CPU: `wake.c`, compiled.
    Another one is as busy as the server, on its CPU: what a host takes of a machine depends on what it does.
    """
    with compiled("wake.c") as built:

        def schedule(cpu: int, busy_ns: int) -> list[str]:
            return pinned(cpu, [built, f"{_PACED * _PACED_PPS:.0f}", str(_SCHEDULE_S), str(busy_ns), str(_LATE_NS)])

        with subprocess.Popen(schedule(SERVER_CPU, _SERVER_BUSY_NS), stdout=subprocess.DEVNULL):
            return float(run(schedule(GENERATOR_CPU, _BUSY_NS)))


def _fleet(site: Site, clients: int, **more: Any) -> agent.Load:
    """A fleet of this many clients, all at once by default."""
    workload = agent.fleet(
        ProfileIdentity.model_validate({"from": "profile"}),
        clients=clients,
        duration_ms=more.pop("seconds", 60) * 1000,
        expect=TunnelExpectation(pools=["10.8.0.0/16"], routes=[], dns=[], options=[]),
        profile=site.profile(),
        **more,
    )
    return agent.run(workload, site.client_end)


def _storm_ns(outcome: Outcome) -> tuple[int, int]:
    """From when the first client was due to when the last was configured, ns of the monotonic clock; all have to be."""
    assert outcome.tunnel is not None
    rows = outcome.tunnel.clients
    lost = [row.cause for row in rows if row.configured_ns is None]
    if lost:
        raise RuntimeError(f"{len(lost)} of {len(rows)} clients are not configured, the first one: {lost[0]}")
    return min(row.due_ns for row in rows), max(row.due_ns + (row.configured_ns or 0) for row in rows)


def _spent_s(readings: Sequence[tuple[int, float]], began_ns: int, ended_ns: int) -> float:
    """CPU time between two instants, each taken from the reading next after it."""
    before, after = (next(spent_s for t_ns, spent_s in readings if t_ns >= at_ns) for at_ns in (began_ns, ended_ns))
    return after - before


def _thread_cpu_s(outcome: Outcome) -> float:
    return sum(thread.user_s + thread.system_s for thread in outcome.generator.threads)


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


def _fleet_ns_per_byte(site: Site, way: Way, seconds: int) -> float:
    traffic = TunnelUdp(
        kind="udp",
        host=INSIDE,
        port=5201,
        direction=way,
        rate_pps=_DATAGRAMS_PER_S,
        datagram_bytes=_DATAGRAM_BYTES,
        duration_ms=seconds * 1000,
    )
    done = _fleet(site, 1, traffic=traffic, seconds=seconds + 20)
    return done.cpu_s * 1e9 / _received_bytes(done.outcome)


def _client_ns_per_byte(site: Site, way: Way, seconds: int) -> float:
    with openvpn_client(site) as pid:
        before_s = process_cpu_s(pid)
        outcome = agent.run(
            agent.datagrams(Target(host=INSIDE, port=5201), seconds, _DATAGRAM_BYTES, _DATAGRAMS_PER_S, way),
            site.client_end,
        ).outcome
        spent_s = process_cpu_s(pid) - before_s
    return spent_s * 1e9 / _received_bytes(outcome)


def _received_bytes(outcome: Outcome) -> int:
    received = sum(flow.received_bytes or 0 for flow in outcome.flows)
    if received == 0:
        raise RuntimeError(f"nothing came through the tunnel: {outcome.errors}")
    return received
