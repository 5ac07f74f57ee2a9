"""Rows of UDP over a link of its own, beside iperf3: datagrams per second and core, and how evenly a rate is kept.

Each end has one CPU, so what a pair of ends carries per second is what it carries per core. iperf3 has `--gsro` from
3.20 on.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fetched import iperf3, iperf3_name
from namespaces import GATEWAY, OWN_PORT, inside, own_server, places, served
from programs import GENERATOR_CPU, SERVER_CPU, compiled, first_group, pinned, run
from rows import Bound, Rounds, Row, at_least, at_most, bounded, compared, failed

_PEER_PORT = 5203
_LARGE, _SMALL = 1400, 64
# iperf3's batches have 65,507 bytes, and the kernel takes 128 datagrams at once: it sends nothing smaller by --gsro.
_SMALLEST_OF_GSRO = 512
_PACED_BPS = (100_000_000, 1_000_000_000)


@dataclass(frozen=True, slots=True)
class _Ends:
    """The namespaces of the link, each held by a process, with both servers in the first."""

    gateway: int
    clients: int

    def iperf3(self, seconds: int, *options: str) -> dict[str, dict[str, float]]:
        """The end of iperf3's document."""
        argv = [iperf3(), "-c", GATEWAY, "-p", str(_PEER_PORT), "-u", "-t", str(seconds), *options, "-J"]
        return dict(json.loads(run(pinned(GENERATOR_CPU, inside(self.clients, argv))))["end"])


def datagrams(rounds: Rounds) -> Iterator[Row]:
    """Datagrams as fast as one core sends and one core receives them."""
    peer, gsro = iperf3_name(), ("--gsro",)
    comparisons: list[tuple[str, int, Sequence[str], float]] = [(peer, _SMALL, (), 4.0)]
    if "--gsro" in run([iperf3(), "--help"]):
        lengths = ((_LARGE, 1.1), (_SMALL, 1.2), (_SMALLEST_OF_GSRO, 1.2))
        comparisons += [(f"{peer} --gsro", length, gsro, least) for length, least in lengths]
    pairs: list[list[tuple[float, float]]] = [[] for _ in comparisons]
    with _ends() as ends:
        for _ in range(rounds.count):
            ours = {
                length: received(ends.clients, rounds.seconds, length) for length in {one[1] for one in comparisons}
            }
            for found, (_, length, options, _) in zip(pairs, comparisons, strict=True):
                found.append((ours[length], _theirs_received(ends, rounds.seconds, length, options)))
    for found, (name, length, _, least) in zip(pairs, comparisons, strict=True):
        what, bound = f"UDP, {length} B, received per core", at_least(least)
        if all(theirs for _, theirs in found):
            yield compared(what, "kpackets/s", name, found, bound=bound)
        else:
            ours_kpps = statistics.median(ours for ours, _ in found)
            # Nothing to compare with: the bound is neither held nor missed.
            yield Row(what, f"{ours_kpps:.4g} kpackets/s", f"{name}: none arrives", bound=bound.says)
    if len(comparisons) == 1:
        yield failed(f"UDP beside {peer} --gsro", "this iperf3 has no such mode; 3.20 is the first with it")


def received(pid: int, seconds: int, length: int) -> float:
    """Thousands of datagrams of ours that arrive per second, from a namespace."""
    return leadline(pid, seconds, "-l", str(length), "--warmup", "0s")["packets_per_s"] / 1e3


def leadline(pid: int, seconds: int, *options: str) -> dict[str, float]:
    """The figures of `leadline udp` in a namespace."""
    argv = ["leadline", "udp", GATEWAY, "--port", str(OWN_PORT), "-d", f"{seconds}s", *options, "--json"]
    metrics = json.loads(run(pinned(GENERATOR_CPU, inside(pid, argv))))["metrics"]
    return {name: metric["value"] for name, metric in metrics.items()}


def _theirs_received(ends: _Ends, seconds: int, length: int, options: Sequence[str]) -> float:
    end = ends.iperf3(seconds, "-b", "0", "-l", str(length), *options)
    total = end.get("sum_received", end["sum"])
    return (total["packets"] - total["lost_packets"]) / total["seconds"] / 1e3


def paced(rounds: Rounds) -> Iterator[Row]:
    """What a rate's datagrams look like on the link: their number, and the most of them in any millisecond."""
    with compiled("bursts.c") as bursts, _ends() as ends:
        for rate_bps in _PACED_BPS:
            pairs = [_paced_round(ends, bursts, rounds.seconds, rate_bps) for _ in range(rounds.count)]
            yield from _paced_rows(rate_bps, pairs)


def _paced_round(ends: _Ends, bursts: str, seconds: int, rate_bps: int) -> tuple[_Seen, _Seen]:
    length, rate = str(_LARGE), str(rate_bps)
    return (
        _watched(ends, bursts, lambda: leadline(ends.clients, seconds, "-l", length, "--rate", rate)),
        _watched(ends, bursts, lambda: ends.iperf3(seconds, "-l", length, "-b", rate)),
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """The datagrams of one run on the link."""

    rate_pps: float
    most: int
    """In any millisecond."""


def _watched(ends: _Ends, bursts: str, generate: Callable[[], object]) -> _Seen:
    """Run a generator while the receiving end's link is watched."""
    argv = inside(ends.gateway, [bursts, "bench0", str(_LARGE)])
    with subprocess.Popen(pinned(SERVER_CPU, argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        watch.stdout.readline()
        generate()
        said, _ = watch.communicate("\n")
    count, most = int(first_group(r"(\d+) datagrams", said)), int(first_group(r"most (\d+)", said))
    return _Seen((count - 1) / float(first_group(r"in ([\d.]+) s", said)), most)


def _paced_rows(rate_bps: int, pairs: Sequence[tuple[_Seen, _Seen]]) -> Iterator[Row]:
    due_pps = rate_bps / 8 / _LARGE
    error = statistics.median(abs(ours.rate_pps / due_pps - 1) for ours, _ in pairs)
    name = f"UDP at {rate_bps // 1_000_000} Mbit/s"
    yield bounded(f"{name}, error of the rate", error, f"{error * 100:.3g} %", Bound("at most 0.1 %", _is_exact))
    # A perfect pace has this many in a millisecond: the burst is what exceeds it.
    even = due_pps / 1000
    bursts = [(max(0.0, ours.most - even) + 1, max(0.0, theirs.most - even) + 1) for ours, theirs in pairs]
    what = f"{name}, datagrams above the rate in the worst millisecond, plus one"
    yield compared(what, "", iperf3_name(), bursts, bound=at_most(0.25))


def _is_exact(error: float) -> bool:
    return error <= 0.001


@contextmanager
def _ends() -> Iterator[_Ends]:
    theirs = [iperf3(), "-s", "-B", GATEWAY, "-p", str(_PEER_PORT)]
    with places() as (gateway, clients), own_server(gateway), served(gateway, theirs, _PEER_PORT):
        yield _Ends(gateway, clients)
