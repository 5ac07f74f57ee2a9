"""Cross-checks with the real wrk, ab, h2load and iperf3: of a plan's tests in a lab, and of single commands."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import cli_runs as cli
import pytest

from in_process import leadline
from waiting import free_port

pytestmark = [
    pytest.mark.lab,
    pytest.mark.takes(14),
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
    pytest.mark.skipif(not (shutil.which("wrk") and shutil.which("iperf3")), reason="wrk or iperf3 is not installed"),
]

TOOLS_ON_HTTP = [
    pytest.param(
        name,
        marks=[
            pytest.mark.skipif(not shutil.which(name), reason=f"{name} is not installed"),
            *([] if name == "wrk" else [pytest.mark.full_matrix]),
        ],
    )
    for name in ("wrk", "ab", "h2load")
]
LENGTH = ("-d", "3s")
"""Longer than any process stalls: each tool has answers."""
PLAN = """\
name: crossed
sut: {{kind: route}}
lab: {{link: {{rate: 100mbit}}}}
repeat: {repeats}
tests:
  - {{name: h, kind: http, connections: 4, size: 100KiB, duration: 1500ms, warmup: 500ms, cross_check: wrk}}
  - {{name: t, kind: tcp, direction: down, duration: 1500ms, warmup: 500ms, cross_check: iperf3}}
  - {{name: u, kind: udp, rate: 20mbit, duration: 1500ms, cross_check: iperf3}}
"""


@pytest.mark.exclusive
@pytest.mark.parametrize("repeats", [1, pytest.param(2, marks=pytest.mark.full_matrix)])
def test_second_tools_measure_the_same_load_in_the_same_place(tmp_path: Path, repeats: int) -> None:
    """The link limits two tests and the offered rate the third: each tool has to come out near the known figure."""
    run = cli.run(PLAN.format(repeats=repeats), tmp_path)
    assert run.code == 0, run.err
    found = {one["test"]: one for one in run.report()["cross_checks"]}
    assert {test: one["tool"] for test, one in found.items()} == {"h": "wrk", "t": "iperf3", "u": "iperf3"}
    for test, least, most in (("h", 90, 130), ("t", 85e6, 105e6), ("u", 19.5e6, 20.5e6)):
        one = found[test]
        assert one["versions"], one
        assert least <= one["other"][0] <= most, one
        assert least <= one["own"][0] <= most, one
        if repeats == 1:
            assert one["agreement"] == "cannot tell", "one repeat has no interval"
        elif one["repeats"] == 2:  # none was disturbed by other work
            assert 0.9 < one["ratio"]["value"] < 1.1, one
            assert one["agreement"] in ("agree", "cannot tell") or one["ratio"]["low"] > 0.9, one
    assert "Cross-check" in run.out


def checked(*arguments: str, call: Callable[..., CompletedProcess[str]] = cli.call, **variables: str) -> dict[str, Any]:
    """The cross-check in a command's document, and the command's own figure beside it."""
    done = call(*arguments, "--json", variables=variables)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    found: dict[str, Any] = document["cross_check"]
    assert found["own"][0] == pytest.approx(document["metrics"][found["metric"]]["value"], rel=0.05)
    return found


@pytest.mark.parametrize("tool", TOOLS_ON_HTTP)
@pytest.mark.decided_by("the number of repeats: one has no interval")
def test_command_is_repeated_with_another_http_client(tool: str) -> None:
    with cli.serve("--delay", "5ms") as server:
        url = f"http://127.0.0.1:{server.http_port}/"
        found = checked("http", url, "-c", "4", *LENGTH, "--no-calibrate", "--cross-check", tool)
    assert found["tool"] == tool and found["versions"] and found["other"][0] > 100, found
    assert found["agreement"] == "cannot tell", "one repeat has no interval"


@pytest.mark.exclusive
def test_command_is_repeated_with_iperf3_until_the_figure_is_known() -> None:
    with cli.serve() as server:
        where = ("127.0.0.1", "-p", str(server.port), "-d", "1s", "--rate", "5mbit")
        found = checked("udp", *where, "--cross-check", "iperf3", "--width", "50%", "--most-repeats", "5")
    assert found["repeats"] >= 3 or found["troubles"], found
    if found["repeats"] >= 3:
        assert found["other"][0] == pytest.approx(5e6, rel=0.05)
        assert found["agreement"] in ("agree", "cannot tell"), found


def test_tool_that_is_missing_or_fails_leaves_the_result_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """wrk is not in PATH; iperf3's server finds its port taken."""
    port = free_port()
    monkeypatch.setattr("leadline.trial.second_tools.FIRST_PORT", port)
    taken_port = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    with cli.serve("--delay", "5ms") as server, taken_port:
        url = f"http://127.0.0.1:{server.http_port}/"
        options = ("-c", "2", *LENGTH, "--no-calibrate", "--cross-check", "wrk")
        missing = checked("http", url, *options, call=leadline, PATH=str(tmp_path))
        where = ("127.0.0.1", "-p", str(server.port), "--rate", "20mbit", *LENGTH)
        taken = checked("tcp", *where, "--cross-check", "iperf3", call=leadline)
        shown = leadline("tcp", *where, "--cross-check", "iperf3")
    # Beside other work it is a trouble, too, that Leadline's own figure is disturbed.
    assert "wrk is not installed or not executable" in missing["troubles"] and missing["other"][0] is None
    [trouble] = [one for one in taken["troubles"] if "iperf3" in one]
    assert taken["other"][0] is None
    assert shown.returncode == 0 and "Cross-check" in shown.stdout
    assert trouble[:30] in " ".join(shown.stdout.split())
