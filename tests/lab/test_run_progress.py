"""What a run shows on stderr before it has ended: the headline of each test when its trial ends."""

from __future__ import annotations

import re
from pathlib import Path

import cli_runs as cli

PLAN = """\
name: shown
sut: {kind: route}
axes: {packet: [200, 400]}
tests:
  - {name: bulk, kind: tcp, duration: 1500ms, rate: 10mbit}
  - {name: datagrams, kind: udp, duration: 1500ms, rate: 1mbit, packet: "{packet}"}
"""


def test_each_trial_is_followed_by_the_headlines_of_its_tests(tmp_path: Path) -> None:
    cli.skip_unless_possible()
    run = cli.run(PLAN, tmp_path)
    assert run.code == 0, run.err
    shown = [line.split()[0] for line in run.err.splitlines() if not line.startswith("leadline:")]
    assert shown == ["[1/2]", "bulk", "datagrams", "[2/2]", "bulk", "datagrams"], run.err
    figures = [line for line in run.err.splitlines() if line.startswith("  datagrams  ")]
    # Beside other work some are lost, and the figure may be a bound.
    assert all(re.search(r" [\d.]+ [kM]bit/s  lost (?:[≤≥] )?[\d.]+ %, jitter ", line) for line in figures), run.err
