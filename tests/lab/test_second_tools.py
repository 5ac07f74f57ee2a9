"""Cross-checks in a lab: the real wrk and iperf3 repeat the loads of a plan."""

from __future__ import annotations

import shutil
from pathlib import Path

import cli_runs as cli
import pytest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.exclusive,
    pytest.mark.takes(75),
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
    pytest.mark.skipif(not (shutil.which("wrk") and shutil.which("iperf3")), reason="wrk or iperf3 is not installed"),
]

PLAN = """\
name: crossed
sut: {kind: route}
lab: {link: {rate: 100mbit}}
repeat: 3
tests:
  - {name: h, kind: http, connections: 4, size: 100KiB, duration: 3s, warmup: 500ms, cross_check: wrk}
  - {name: t, kind: tcp, direction: down, duration: 3s, warmup: 500ms, cross_check: iperf3}
  - {name: u, kind: udp, rate: 20mbit, duration: 3s, cross_check: iperf3}
"""


def test_second_tools_measure_the_same_load_in_the_same_place(tmp_path: Path) -> None:
    """The link limits two tests and the offered rate the third: each tool has to come out near the known figure."""
    run = cli.run(PLAN, tmp_path)
    assert run.code == 0, run.err
    found = {one["test"]: one for one in run.report()["cross_checks"]}
    assert {test: one["tool"] for test, one in found.items()} == {"h": "wrk", "t": "iperf3", "u": "iperf3"}
    for test, least, most in (("h", 90, 130), ("t", 85e6, 105e6), ("u", 19.5e6, 20.5e6)):
        one = found[test]
        assert one["versions"], one
        assert least <= one["other"][0] <= most, one
        assert least <= one["own"][0] <= most, one
        if one["repeats"] == 3:  # none was disturbed by other work
            assert 0.9 < one["ratio"]["value"] < 1.1, one
            assert one["agreement"] in ("agree", "cannot tell") or one["ratio"]["low"] > 0.9, one
    assert "Cross-check" in run.out
