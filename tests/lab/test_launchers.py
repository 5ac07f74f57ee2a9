"""One plan in the lab, and on three hosts over real SSH, `exec:` and a stand-in of kubectl: the same cases and counts,
and nothing is left on any host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest
from separate_hosts import INSIDE
from sshd import needs_sshd

from waiting import WITHIN_S

HERE = Path(__file__).resolve().parent
pytestmark = [
    pytest.mark.lab,
    pytest.mark.apart,
    pytest.mark.takes(20),
    pytest.mark.skipif(os.geteuid() != 0, reason="hosts with networks of their own need root"),
]

PLAN = """
name: everywhere
sut: {kind: %s}
tests:
  - {name: udp, kind: udp, rate: 1mbit, packet: 125, number: 500, duration: 60s}
  - {name: rr, kind: rr, number: 100, duration: 60s}
"""
LAUNCHERS = (pytest.param("ssh", marks=needs_sshd), "exec", "kubectl")


def run(folder: Path, launcher: str | None, system: str = "given, label: forwarding") -> dict[str, Any]:
    (folder / "plan.yaml").write_text(PLAN % system)
    words = [str(cli.quick_command), "run", str(folder / "plan.yaml"), "--json", "--out", str(folder / "runs")]
    if launcher is not None:
        program = [*INSIDE, sys.executable, str(HERE / "three_hosts.py"), launcher, str(folder)]
        words = [*program, *words, "--hosts", "@HOSTS@"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def counts(document: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """What each test counted, and that all of it came through."""
    figures = {summary["test"]: summary["metrics"] for summary in document["summaries"]}
    udp, rr = figures["udp"], figures["rr"]
    return {"udp": (udp["sent"]["value"], udp["received"]["value"]), "rr": (rr["transactions"]["value"], 0)}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_plan_runs_over_each_launcher_and_leaves_nothing(tmp_path: Path, launcher: str) -> None:
    document = run(tmp_path, launcher)
    assert counts(document) == {"udp": (500, 500), "rr": (100, 0)}
    assert json.loads((tmp_path / "left.json").read_text()) == {}
    manifest = json.loads(next((tmp_path / "runs").glob("*/run.json")).read_text())
    assert [host["name"] for host in manifest["plan"]["hosts"]["clients"]] == ["client1"]


@needs_sshd
@pytest.mark.full_matrix
@pytest.mark.parametrize(("cut_s", "is_lost"), [(3, False), (12, True), (60, True)])
@pytest.mark.decided_by("how long the cable is out")
def test_cut_network_is_survived_or_named(tmp_path: Path, cut_s: int, is_lost: bool) -> None:
    """Ten seconds without a heartbeat are a loss; the agent ends after twenty, and leaves nothing."""
    (tmp_path / "plan.yaml").write_text(
        "name: cut\nsut: {kind: given, label: forwarding}\ntests: [{name: rr, kind: rr, rate: 20/s, duration: 25s}]\n"
    )
    program = [*INSIDE, sys.executable, str(HERE / "three_hosts.py"), "ssh", str(tmp_path)]
    words = [str(cli.quick_command), "run", str(tmp_path / "plan.yaml"), "--json", "--out", str(tmp_path / "runs")]
    done = subprocess.run(
        [*program, *words, "--hosts", "@HOSTS@"],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env={**os.environ, "CUT_S": str(cut_s)},
    )
    [trial] = json.loads(done.stdout)["trials"]
    assert (done.returncode, trial["status"]) == ((1, "failed") if is_lost else (0, "done")), done.stderr
    if is_lost:
        assert "the agent on client1 is lost: no heartbeat for 10 s" in trial["error"]
        assert "client1 has been silent for 4 s" in done.stderr
    assert json.loads((tmp_path / "left.json").read_text()) == {}


@needs_sshd
def test_doctor_shows_hosts_side_by_side(tmp_path: Path) -> None:
    program = [*INSIDE, sys.executable, str(HERE / "three_hosts.py"), "ssh", str(tmp_path)]
    words = [*program, str(cli.quick_command), "doctor", "--json", "--hosts", "@HOSTS@"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["hosts"]
    assert [(host["name"], host["reachable"]) for host in found] == [
        ("gateway", True),
        ("server", True),
        ("client1", True),
    ]
    assert all(host["clock_bound_us"] == 0 and host["same_kernel"] for host in found)
    assert all({check["what"] for check in host["checks"]} >= {"synchronised clock", "io_uring"} for host in found)
    assert json.loads((tmp_path / "left.json").read_text()) == {}
