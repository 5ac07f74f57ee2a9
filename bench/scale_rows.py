"""Rows of many agents in one run: how far apart they begin, and how long the whole takes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from programs import program
from rows import Rounds, Row, at_most, bounded

_SECONDS = 5
_PLAN = """
name: many
hosts:
  gateway: local
  server: {{exec: env, address: 127.0.0.1}}
  clients: [{clients}]
sut: {{kind: given, label: loopback}}
observe: {{period: 1s}}
tests: [{{name: rr, kind: rr, rate: 5/s, duration: {seconds}s, interval: 1s}}]
"""


@dataclass(frozen=True, slots=True)
class _Run:
    """What one run of many agents took."""

    wall_s: float
    starts_us: list[float]
    """Of each agent's first flow, from the first one's."""


def agents(_rounds: Rounds) -> Iterator[Row]:
    """Agents on this machine, each started as on a host of its own."""
    starting = _measure(100)
    p99_us = sorted(starting.starts_us)[round(0.99 * (len(starting.starts_us) - 1))]
    yield bounded("start skew of 100 local agents, p99", p99_us, f"{p99_us:.0f} µs", at_most(1000, " µs"))
    whole = _measure(150)
    what = f"150 agents started, one test of {_SECONDS} s, collected and analysed"
    yield bounded(what, whole.wall_s, f"{whole.wall_s:.1f} s", at_most(12, " s"))


def _measure(clients: int) -> _Run:
    with tempfile.TemporaryDirectory() as folder:
        plan, runs = Path(folder) / "plan.yaml", Path(folder) / "runs"
        plan.write_text(_PLAN.format(clients=", ".join(['"exec:env"'] * clients), seconds=_SECONDS))
        began_s = time.monotonic()
        done = subprocess.run(
            [program("leadline"), "run", str(plan), "--json", "--out", str(runs)],
            capture_output=True,
            text=True,
            check=False,
        )
        wall_s = time.monotonic() - began_s
        if done.returncode not in (0, 4):
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        (journal,) = runs.glob("*/journal.ndjson")
        starts_ns = sorted(_starts_ns(journal))
    if len(starts_ns) != clients:
        raise RuntimeError(f"{len(starts_ns)} of {clients} agents began")
    return _Run(wall_s, [(ns - starts_ns[0]) / 1000 for ns in starts_ns])


def _starts_ns(journal: Path) -> Iterator[int]:
    """When each agent's first flow began: they share this machine's clock."""
    with journal.open() as lines:
        for line in lines:
            if '"type":"finished"' in line:
                outcome: dict[str, Any] = json.loads(line)["event"]["outcome"]
                starts = [flow["start_ns"] for flow in outcome["flows"] if flow.get("start_ns") is not None]
                if starts:
                    yield min(starts)


if __name__ == "__main__":
    from rows import line

    for row in agents(Rounds(1, 1)):
        sys.stdout.write(f"{line(row)}\n")
