"""Hosts whose clocks are ahead and drift, by the agent's own hook: the truth lies within what is published of each."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest
from separate_hosts import INSIDE

from waiting import WITHIN_S

pytestmark = [pytest.mark.lab, pytest.mark.apart, pytest.mark.takes(12)]

DRIFTS_PPM = {"server": 0, "client1": 100, "client2": -300}
AHEAD_NS = {"server": 5 * 10**9, "client1": -(2 * 10**9), "client2": 10**12}
PLAN = """
name: shifted
hosts:
  gateway: local
  server: {{exec: "{server}", address: 127.0.0.1}}
  clients: [{{exec: "{client1}"}}, {{exec: "{client2}"}}]
sut: {{kind: given, label: loopback}}
tests:
  - {{name: rr, kind: rr, rate: 100/s, duration: 6s}}
"""


def shifted(host: str) -> str:
    return f"env LEADLINE_CLOCK_SHIFT={AHEAD_NS[host]},{DRIFTS_PPM[host] * 1000}"


@pytest.mark.decided_by("the clocks' shifts")
def test_offset_and_drift_are_within_their_bounds_and_hosts_begin_at_one_instant(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN.format(**{host: shifted(host) for host in DRIFTS_PPM}))
    argv = [*INSIDE, str(cli.quick_command), "run", str(plan), "--json", "--out", str(tmp_path / "runs")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode in (0, 4), done.stderr
    [trial] = json.loads(done.stdout)["trials"]
    [test] = trial["tests"]
    clocks: dict[str, dict[str, Any]] = {clock["host"]: clock for clock in test["clocks"]}
    assert set(clocks) == set(DRIFTS_PPM), "the gateway reads this machine's clock"
    for host, clock in clocks.items():
        assert clock["comparisons"] >= 3, "before, during and after"
        assert abs(clock["drift_ppm"] - DRIFTS_PPM[host]) <= clock["drift_bound_ppm"] + 1
        # It has drifted since the agent started, at most a minute ago.
        moved_us = abs(DRIFTS_PPM[host]) * WITHIN_S
        assert abs(clock["offset_us"] - AHEAD_NS[host] / 1000) <= clock["bound_us"] + moved_us
    # Both received one instant, each by its own clock: neither began before it.
    for host in ("client1", "client2"):
        assert clocks[host]["start_late_us"] >= -clocks[host]["start_bound_us"]
    journal = next((tmp_path / "runs").glob("*/journal.ndjson")).read_text()
    starts = [json.loads(line)["event"] for line in journal.splitlines() if '"type":"started"' in line]
    assert len(starts) == 2
