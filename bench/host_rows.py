"""Rows of hosts: the observer's cost, the lab's link, and what a command takes beyond its test."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import agent
from fetched import iperf3, iperf3_name
from programs import free_port, run, server
from rows import Bound, Rounds, Row, at_most, bounded

_COMMAND_S = 2


def observing(rounds: Rounds) -> Iterator[Row]:
    """What watching a host costs it."""
    share = statistics.median(agent.observer_share() for _ in range(max(1, rounds.count // 2)))
    bound = Bound("under 1 %", lambda value: value < 0.01)
    yield bounded("observing one host 10 times a second", share, f"{share * 100:.2g} % of a core", bound)


def link(rounds: Rounds) -> Iterator[Row]:
    """TCP goodput through a link of the lab, over what headers leave of its rate."""
    share = statistics.median(_goodput_share() for _ in range(max(1, rounds.count // 2)))
    yield Row(
        "TCP goodput of a link of 100 Mbit/s against what its headers leave",
        f"{share:.4f}",
        "1448/1514 of the rate",
        share,
        bound="0.99 to 1.01",
        holds=abs(share - 1) <= 0.01,
    )


def command(rounds: Rounds) -> Iterator[Row]:
    """What a whole command takes beyond the length of its test, which this machine's loopback carries."""
    port = free_port()
    ours, theirs = ["leadline", "tcp", "-d", f"{_COMMAND_S}s"], [iperf3(), "-c", "127.0.0.1", "-p", str(port)]
    # iperf3's server has begun before; ours begins and ends with the command.
    with server([iperf3(), "-s", "-B", "127.0.0.1", "-p", str(port)], port):
        _beyond_s(ours)  # the files that it reads are in memory from now on
        pairs = [(_beyond_s(ours), _beyond_s([*theirs, "-t", str(_COMMAND_S)])) for _ in range(rounds.count)]
    beyond_s, their_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    bound = at_most(0.5, " s")
    yield Row(
        f"time of a whole TCP command beyond its {_COMMAND_S} s",
        f"{beyond_s:.3g} s",
        f"{iperf3_name()}: {their_s:.3g} s",
        bound=bound.says,
        holds=bound.holds(beyond_s),
    )


def _beyond_s(argv: Sequence[str]) -> float:
    begin_s = time.monotonic()
    run(argv)
    return time.monotonic() - begin_s - _COMMAND_S


def _goodput_share() -> float:
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.yaml"
        plan.write_text(
            "name: shaped\ntopology: remote-access\nlab: {link: {rate: 100mbit}}\nsut: {kind: route}\n"
            "tests:\n  - {name: tcp, kind: tcp, duration: 5s, warmup: 1s}\n"
        )
        document = json.loads(run(["leadline", "run", str(plan), "--json", "--out", folder]))
    goodput_bps = document["summaries"][0]["metrics"]["throughput_bps"]["value"]
    return float(goodput_bps) / (100e6 * 1448 / 1514)
