"""Hosts that are lost before and during a test, or refuse: each is named, and a run goes on as far as it may."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest
from separate_hosts import INSIDE
from sshd import PORT, Keys, needs_sshd

from waiting import WITHIN_S

pytestmark = [pytest.mark.lab, pytest.mark.apart, pytest.mark.takes(25)]

# Its agent is gone as soon as the load runs.
DIES = """#!/bin/sh
"$@" | while read -r line; do
    printf '%s\\n' "$line"
    case $line in *'"type":"progress"'*) exit 0 ;; esac
done
"""
REFUSES = "#!/bin/sh\necho 'no such pod: lead-7' >&2\nexit 7\n"
OTHER = """#!/bin/sh
uname() { echo riscv64; }
[ "$1" = sh ] && { shift 2; eval "$(printf '%s' "uname() { echo riscv64; }; $1")"; exit; }
exec "$@"
"""
PLAN = """
name: lossy
hosts:
  gateway: local
  server: {{exec: env, address: 127.0.0.1}}
  clients: [{clients}]
sut: {{kind: given, label: loopback}}
tests:
  - {{name: one, kind: udp, rate: 100kbit, packet: 125, number: 200, duration: 60s}}
  - {{name: two, kind: udp, rate: 100kbit, packet: 125, number: 50, duration: 60s}}
"""


def run(folder: Path, clients: list[str], *options: str, **variables: str) -> tuple[int, dict[str, Any], str]:
    """Run the plan with these clients, whose commands are files of the folder; `env` changes nothing."""
    for name, script in {"dies": DIES, "refuses": REFUSES, "other": OTHER}.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    hosts = [f'"exec:{folder / name if name in ("dies", "refuses", "other") else name}"' for name in clients]
    (folder / "plan.yaml").write_text(PLAN.format(clients=", ".join(hosts)))
    argv = [*INSIDE, str(cli.quick_command), "run", str(folder / "plan.yaml"), "--json", "--out", str(folder / "runs")]
    done = subprocess.run(
        [*argv, *options],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), **variables},
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def sent(test: dict[str, Any]) -> float:
    return float(test["metrics"]["sent"]["value"])


def reasons(test: dict[str, Any]) -> dict[str, str]:
    return {reason["code"]: reason["text"] for reason in test["validity"]["reasons"]}


@pytest.mark.decided_by("the process that ends")
def test_a_run_goes_on_without_a_host_that_it_may_lose_and_says_so(tmp_path: Path) -> None:
    code, document, err = run(tmp_path, ["env", "dies", "env", "env"], "--tolerate", "25%")
    assert code == 0, err
    [trial] = document["trials"]
    one, two = trial["tests"]
    assert trial["status"] == "done"
    for test in (one, two):
        assert test["validity"]["verdict"] == "incomplete"
        text = reasons(test)["hosts-lost"]
        assert text.startswith("3 client hosts, 1 fewer than planned: the agent on client2 (exec:"), text
    assert (sent(one), sent(two)) == (600, 150)
    assert "the agent on client2" in err and "the trial goes on without it" in err


@pytest.mark.decided_by("the process that ends")
def test_without_tolerance_a_lost_host_fails_its_trial_by_name(tmp_path: Path) -> None:
    code, document, _ = run(tmp_path, ["env", "dies"])
    [trial] = document["trials"]
    assert (code, trial["status"]) == (1, "failed")
    assert "the agent on client2 (exec:" in trial["error"] and "is lost" in trial["error"]


@pytest.mark.decided_by("the hosts that refuse")
def test_hosts_that_refuse_are_left_out_up_to_the_share(tmp_path: Path) -> None:
    clients = ["env", "refuses", "env", "refuses", "env"]
    code, document, err = run(tmp_path, clients, "--tolerate", "40%")
    assert code == 0, err
    one, two = document["trials"][0]["tests"]
    assert (sent(one), sent(two)) == (600, 150)
    assert "3 client hosts, 2 fewer than planned" in reasons(one)["hosts-lost"]
    assert "no such pod: lead-7" in reasons(one)["hosts-lost"]
    code, document, _ = run(tmp_path, clients, "--tolerate", "20%")
    [trial] = document["trials"]
    assert (code, trial["status"]) == (1, "failed")
    assert "no such pod: lead-7" in trial["error"]


def test_a_host_of_another_architecture_is_named(tmp_path: Path) -> None:
    code, document, _ = run(tmp_path, ["env", "other"])
    assert code == 1
    assert "the agent on client2 (exec:" in document["trials"][0]["error"]
    assert "it is riscv64, and here is no agent for that" in document["trials"][0]["error"]


@needs_sshd
def test_a_changed_host_key_is_named(tmp_path: Path) -> None:
    """The server has another key than the one that the user's client knows."""
    keys = Keys.make(tmp_path)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(tmp_path / "older")], check=True)
    folder = keys.write_client()
    (tmp_path / "known").write_text(f"* {(tmp_path / 'older.pub').read_text()}")
    place = tmp_path / "network"
    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", f"ip link set lo up && touch {place} && exec sleep 600"]
    ) as held:
        try:
            while not place.exists():
                assert held.poll() is None
            inside = ["nsenter", f"--net=/proc/{held.pid}/ns/net"]
            server = keys.start_server("127.0.0.1", *inside)
            plan = PLAN.format(clients=f"ssh://root@127.0.0.1:{PORT}").replace("{exec: env,", "{ssh: local,")
            (tmp_path / "plan.yaml").write_text(plan)
            argv = [*inside, str(cli.quick_command), "run", str(tmp_path / "plan.yaml"), "--json"]
            done = subprocess.run(
                [*argv, "--out", str(tmp_path / "runs")],
                capture_output=True,
                text=True,
                timeout=WITHIN_S,
                check=False,
                env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
            )
            server.terminate()
            server.wait()
        finally:
            held.terminate()
    assert done.returncode == 1, done.stderr
    error = json.loads(done.stdout)["trials"][0]["error"]
    assert f"the agent on client1 (ssh://root@127.0.0.1:{PORT}) is lost" in error
    assert "Host key verification failed" in error
