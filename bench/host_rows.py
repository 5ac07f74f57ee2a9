"""Rows of hosts: the observer's cost, and the lab's link."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import agent
from programs import run
from rows import Bound, Rounds, Row, bounded


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
