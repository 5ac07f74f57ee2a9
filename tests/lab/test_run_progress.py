"""What a run shows on stderr before it has ended: a line with the figures of each trial when it ends."""

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


def test_each_trial_has_one_line_with_the_figures_of_its_tests(tmp_path: Path) -> None:
    cli.skip_unless_possible()
    run = cli.run(PLAN, tmp_path)
    assert run.code == 0, run.err
    lines = [line for line in run.err.splitlines() if not line.startswith("leadline:")]
    assert [line.split()[0] for line in lines] == ["[1/2]", "[2/2]"], run.err
    # Beside other work some are lost, and the figure may be a bound.
    figure = r"(?:[≤≥] )?[\d.]+ [kM]bit/s"
    assert all(re.search(rf"  bulk {figure}, datagrams {figure}$", line) for line in lines), run.err
