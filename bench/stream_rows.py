"""Rows of TCP streams over a link of their own: throughput and CPU beside iperf3, service demand beside netperf."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

from fetched import iperf3, iperf3_name
from namespaces import GATEWAY, OWN_PORT, inside, own_server, places, served
from programs import GENERATOR_CPU, pinned, program, run
from rows import Bound, Rounds, Row, at_least, at_most, compared

_IPERF3_PORT, _NETPERF_PORT = 5202, 12865
_AT_ONCE = 64
SENDFILE = ("--send", "sendfile", "--receive", "discard", "-l", "256KiB")
BEST = ("--receive", "discard")
"""How ours moves bytes at the least cost; iperf3 does with -Z, and with --skip-rx-copy at a higher one."""
_US_PER_KB = 1.024
"""ns per byte in netperf's unit, µs per 1024 bytes."""


@dataclass(frozen=True, slots=True)
class Stream:
    """What one run of a stream moved, and what it took."""

    gbps: float
    sender_ns: float
    """CPU time of the sending program per byte, ns."""
    receiver_ns: float
    machine_ns: float | None = None
    """CPU time of the whole machine, on which both ends are, per byte, ns."""


def streams(rounds: Rounds) -> Iterator[Row]:
    """One flow up: as both send by default, by sendfile, and as each does best."""
    theirs = [iperf3(), "-s", "-p", str(_IPERF3_PORT), "-B", GATEWAY]
    with places() as (gateway, clients), own_server(gateway), served(gateway, theirs, _IPERF3_PORT):
        plain = [(leadline(clients, rounds.seconds), _iperf3(clients, rounds.seconds)) for _ in range(rounds.count)]
        files = [
            (leadline(clients, rounds.seconds, *SENDFILE), _iperf3(clients, rounds.seconds, "-Z"))
            for _ in range(rounds.count)
        ]
        best = [
            (leadline(clients, rounds.seconds, *BEST), _iperf3(clients, rounds.seconds, "-Z"))
            for _ in range(rounds.count)
        ]
    peer = iperf3_name()
    yield from _beside_iperf3("TCP over a veth, one flow", peer, plain)
    yield from _beside_iperf3("TCP over a veth, one flow, sendfile", f"{peer} -Z", files)
    yield from _beside_iperf3(
        "TCP over a veth, one flow, each at its best", f"{peer} -Z", best, at_least(1.15), at_most(0.8), at_most(0.8)
    )


def _beside_iperf3(what: str, peer: str, pairs: Sequence[tuple[Stream, Stream]], *bounds: Bound) -> Iterator[Row]:
    faster, sender, receiver = bounds or (None, None, None)
    yield compared(f"{what}, throughput", "Gbit/s", peer, [(o.gbps, t.gbps) for o, t in pairs], bound=faster)
    yield compared(f"{what}, sender's CPU", "ns/B", peer, [(o.sender_ns, t.sender_ns) for o, t in pairs], bound=sender)
    yield compared(
        f"{what}, receiver's CPU", "ns/B", peer, [(o.receiver_ns, t.receiver_ns) for o, t in pairs], bound=receiver
    )


def service_demand(rounds: Rounds) -> Iterator[Row]:
    """The machine's CPU time per KiB, as netperf tells it with -c and -C."""
    theirs = [program("netserver"), "-D", "-L", GATEWAY, "-p", str(_NETPERF_PORT)]
    with places() as (gateway, clients), own_server(gateway), served(gateway, theirs, _NETPERF_PORT):
        pairs = [(leadline(clients, rounds.seconds), _netperf(clients, rounds.seconds)) for _ in range(rounds.count)]
    what = "TCP over a veth, one flow"
    yield compared(f"{what}, throughput", "Gbit/s", "netperf TCP_STREAM", [(o.gbps, t.gbps) for o, t in pairs])
    demand = [((o.machine_ns or 0) * _US_PER_KB, (t.machine_ns or 0) * _US_PER_KB) for o, t in pairs]
    yield compared(f"{what}, service demand of the machine", "µs/KiB", "netperf TCP_STREAM -c -C", demand)


def many_clients(rounds: Rounds) -> Iterator[Row]:
    """iperf3's clients at once against one of our servers, each at its rate."""
    refused, spread = 0, []
    with places() as (gateway, clients), own_server(gateway), ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in range(max(1, rounds.count // 2)):
            found = list(pool.map(lambda _: _paced(clients, rounds.seconds), range(_AT_ONCE)))
            served = [one for one in found if one is not None]
            refused += len(found) - len(served)
            spread += [abs(one / median(served) - 1) for one in served]
    holds = refused == 0 and max(spread, default=1) <= 0.1
    ours = f"{refused} refused; at most {max(spread, default=1) * 100:.2g} % from the median"
    yield Row(
        f"{_AT_ONCE} iperf3 clients at once on one port, bytes received of each",
        ours,
        bound="none refused, within 10 %",
        holds=holds,
    )


def leadline(pid: int, seconds: int, *more: str) -> Stream:
    """One flow of ours up, from a namespace."""
    argv = ["leadline", "tcp", GATEWAY, "-p", str(OWN_PORT), "-d", f"{seconds}s", *more, "--json"]
    metrics = json.loads(run(pinned(GENERATOR_CPU, inside(pid, argv))))["metrics"]
    names = ("throughput_bps", "client_cpu_ns_per_byte", "server_cpu_ns_per_byte", "client_machine_cpu_ns_per_byte")
    rate_bps, sender, receiver, machine = (metrics[name]["value"] for name in names)
    return Stream(rate_bps / 1e9, sender, receiver, machine)


def _iperf3(pid: int, seconds: int, *more: str) -> Stream:
    argv = [iperf3(), "-c", GATEWAY, "-p", str(_IPERF3_PORT), "-t", str(seconds), "-J", *more]
    end = json.loads(run(pinned(GENERATOR_CPU, inside(pid, argv))))["end"]
    received, used = end["sum_received"], end["cpu_utilization_percent"]
    ns_per_byte = received["seconds"] * 1e9 / received["bytes"] / 100
    return Stream(
        received["bits_per_second"] / 1e9, used["host_total"] * ns_per_byte, used["remote_total"] * ns_per_byte
    )


def _netperf(pid: int, seconds: int) -> Stream:
    # Throughput in 10^6 bit/s, then the use of both CPUs in percent, then both demands, of which each is the machine's.
    argv = [program("netperf"), "-H", GATEWAY, "-p", str(_NETPERF_PORT), "-l", str(seconds), "-c", "-C", "-P", "0"]
    said = run(pinned(GENERATOR_CPU, inside(pid, [*argv, "-t", "TCP_STREAM", "--", "-m", "131072"]))).split()
    rate_mbps, demand = float(said[4]), float(said[7])
    return Stream(rate_mbps / 1e3, 0, 0, demand / _US_PER_KB)


def _paced(pid: int, seconds: int) -> float | None:
    """Bytes that arrived of one client; None if it was refused."""
    argv = [iperf3(), "-c", GATEWAY, "-p", str(OWN_PORT), "-t", str(seconds), "-b", "20M", "-J"]
    argv = pinned(GENERATOR_CPU, inside(pid, argv))
    said = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60 + seconds)
    document = json.loads(said.stdout)
    return None if "error" in document else float(document["end"]["sum_received"]["bytes"])
