"""What limited a test, in real runs that were limited on purpose: by the lab's link, and by the rate that was asked.
Each is named in every test of a run, whatever else the machine does."""

from __future__ import annotations

from pathlib import Path

import cli_runs as cli
import pytest

needs_lab = pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-")

PLAN = """
    name: limits
    lab: {link: {rate: 20mbit}}
    sut: {kind: %s}
    repeat: %d
    tests:
      - {name: link, kind: tcp, duration: 1500ms, warmup: 300ms}
      - {name: offered, kind: udp, rate: 2mbit, packet: 1000, duration: 1s}
"""


@needs_lab
@pytest.mark.lab
@pytest.mark.parametrize("repeats", [1, pytest.param(20, marks=pytest.mark.full_matrix)])
@pytest.mark.parametrize("system", ["route", pytest.param("wireguard", marks=pytest.mark.full_matrix)])
def test_a_link_and_an_offered_rate_are_named(tmp_path: Path, repeats: int, system: str) -> None:
    run = cli.run(PLAN % (system, repeats), tmp_path)
    assert run.code == 0, run.err
    for trial in run.report()["trials"]:
        found = {test["test"]: test["limit"]["by"] for test in trial["tests"]}
        assert found == {"link": "link", "offered": "offered rate"}, trial["tests"]
