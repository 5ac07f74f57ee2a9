"""Hosts that a plan gives by address: local ones, and one that is reached over SSH by the system's own client."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from unhurried import WITHIN_S

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
# A network of its own, where nobody else has the ports.
NAMESPACE = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
INSIDE = [*NAMESPACE, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]

pytestmark = pytest.mark.lab

PLAN = """
name: given
topology: remote-access
hosts: {{gateway: local, server: {server}, clients: [local, local]}}
sut: {{kind: route}}
tests:
  - {{name: udp, kind: udp, rate: 4mbit, number: 300, duration: 60s}}
  - {{name: http, kind: http, connections: 2, number: 100, duration: 60s}}
"""


def run(folder: Path, server: str, before: list[str]) -> subprocess.CompletedProcess[str]:
    plan = folder / "plan.yaml"
    plan.write_text(PLAN.format(server=server))
    argv = [*INSIDE, *before, str(BIN / "leadline"), "run", str(plan), "--json", "--out", str(folder / "runs")]
    return subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False)


def behind_ssh(folder: Path) -> list[str]:
    if shutil.which("ssh") is None:
        pytest.skip("there is no ssh client here")
    return [sys.executable, str(HERE / "behind_ssh.py"), str(folder)]


def assert_measured(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {test["status"] for trial in document["trials"] for test in trial["tests"]} == {"done"}
    figures = {summary["test"]: summary["metrics"] for summary in document["summaries"]}
    assert figures["udp"]["sent"]["value"] == 600
    assert figures["http"]["requests"]["value"] == 200


def test_local_hosts_are_measured_as_they_are(tmp_path: Path) -> None:
    assert_measured(run(tmp_path, "local", []))


def test_a_host_behind_ssh_is_commanded_over_it(tmp_path: Path) -> None:
    assert_measured(run(tmp_path, '"@SSH@"', behind_ssh(tmp_path)))


def test_a_local_server_is_no_use_to_clients_elsewhere(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN.format(server="local").replace("[local, local]", "['ssh://nobody@127.0.0.9:1']"))
    done = subprocess.run(
        [str(BIN / "leadline"), "run", str(plan)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "plan.yaml:4: " in done.stderr
    assert "cannot reach a server that is only called 'local'" in done.stderr


def test_a_host_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, '"ssh://nobody@127.0.0.9:1"', behind_ssh(tmp_path))
    assert done.returncode == 1
    error = json.loads(done.stdout)["trials"][0]["error"]
    assert "the agent on server is lost" in error
    assert "127.0.0.9" in error
