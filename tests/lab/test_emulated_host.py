"""A plan whose server and one client are of another architecture: each host gets the agent that runs on it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import cli_runs as cli
import pytest
from separate_hosts import INSIDE

from emulated_host import ARCHITECTURE, make_emulated_host
from leadline.agents import agent_binary
from waiting import WITHIN_S

pytestmark = [pytest.mark.lab, pytest.mark.full_matrix, pytest.mark.takes(25)]

PLAN = """
name: architectures
topology: remote-access
hosts:
  gateway: local
  server: {{exec: {command}, address: 127.0.0.1}}
  clients: [local, {{exec: {command}, address: 127.0.0.1}}]
sut: {{kind: given, label: loopback of this machine}}
tests:
  - {{name: udp, kind: udp, rate: 1mbit, number: 100, duration: 60s}}
  - {{name: rr, kind: rr, number: 100, duration: 60s}}
  - {{name: http, kind: http, connections: 2, number: 50, duration: 60s}}
"""


def test_hosts_of_two_architectures_are_measured_together(tmp_path: Path) -> None:
    host = make_emulated_host(tmp_path / "host")
    agents = tmp_path / "agents"
    agents.mkdir()
    (agents / "leadline-agent").symlink_to(agent_binary())
    (agents / f"leadline-agent-{ARCHITECTURE}").symlink_to(host.agent)
    (tmp_path / "plan.yaml").write_text(PLAN.format(command=host.command))
    argv = [*INSIDE, "env", f"LEADLINE_AGENT={agents}/leadline-agent", str(cli.quick_command), "run"]
    argv += [str(tmp_path / "plan.yaml"), "--json", "--out", str(tmp_path / "runs")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    assert {test["status"] for trial in document["trials"] for test in trial["tests"]} == {"done"}
    figures = {summary["test"]: summary["metrics"] for summary in document["summaries"]}
    assert figures["udp"]["sent"]["value"] == 200
    assert figures["rr"]["transactions"]["value"] == 200
    assert figures["http"]["requests"]["value"] == 100
    [run] = (tmp_path / "runs").iterdir()
    facts = json.loads((run / "run.json").read_text())["hosts"]
    found = {name: fact["architecture"] for name, fact in facts.items()}
    assert found == {"gateway": "x86_64", "server": ARCHITECTURE, "client1": "x86_64", "client2": ARCHITECTURE}
