"""Hosts that a plan gives by address: local ones, and one that is reached over SSH by the system's own client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest
from separate_hosts import INSIDE, run_three_hosts
from sshd import needs_sshd

from waiting import WITHIN_S

HERE = Path(__file__).resolve().parent

pytestmark = [pytest.mark.lab, pytest.mark.apart, pytest.mark.takes(20)]

PLAN = """
name: given
topology: remote-access
hosts: {{gateway: local, server: {server}, clients: [local, local]}}
sut: {{kind: given, label: loopback of this machine}}
tests:
  - {{name: udp, kind: udp, rate: 4mbit, number: 300, duration: 60s}}
  - {{name: http, kind: http, connections: 2, number: 100, duration: 60s}}
"""


def run(folder: Path, server: str, before: list[str]) -> subprocess.CompletedProcess[str]:
    plan = folder / "plan.yaml"
    plan.write_text(PLAN.format(server=server))
    argv = [*INSIDE, *before, str(cli.quick_command), "run", str(plan), "--json", "--out", str(folder / "runs")]
    return subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False)


def behind_ssh(folder: Path) -> list[str]:
    return [sys.executable, str(HERE / "behind_ssh.py"), str(folder)]


def assert_measured(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {test["status"] for trial in document["trials"] for test in trial["tests"]} == {"done"}
    figures = {summary["test"]: summary["metrics"] for summary in document["summaries"]}
    assert figures["udp"]["sent"]["value"] == 600
    assert figures["http"]["requests"]["value"] == 200
    assert {trial["sut_version"] for trial in document["trials"]} == {"loopback of this machine"}
    assert {summary["parameters"]["sut"] for summary in document["summaries"]} == {"loopback of this machine"}
    # On one machine nothing can tell what went through the gateway, so nothing is said to have.
    reasons = {reason["code"] for summary in document["summaries"] for reason in summary["validity"]["reasons"]}
    assert "gateway-counters-unknown" in reasons
    assert "gateway-not-crossed" not in reasons


@pytest.mark.decided_by("the bytes that the gateway's interfaces counted")
def test_local_hosts_are_measured_as_they_are(tmp_path: Path) -> None:
    assert_measured(run(tmp_path, "local", []))


@pytest.mark.decided_by("the bytes that the gateway's interfaces counted")
@needs_sshd
def test_a_host_behind_ssh_is_commanded_over_it(tmp_path: Path) -> None:
    assert_measured(run(tmp_path, '"@SSH@"', behind_ssh(tmp_path)))


@needs_sshd
def test_a_system_of_ones_own_acts_on_hosts_through_their_agents(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    wanted = PLAN.format(server='"@SSH@"').replace(
        "{kind: given, label: loopback of this machine}", "{kind: forwarder}"
    )
    plan.write_text(wanted)
    program = [sys.executable, str(HERE / "own_given_system.py")]
    argv = [*INSIDE, *behind_ssh(tmp_path), *program, "run", str(plan), "--json", "--out", str(tmp_path / "runs")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    [trial] = json.loads(done.stdout)["trials"]
    assert trial["sut_version"] == "server says: hello; forwarding 0 -> 1"
    [left] = [line for line in done.stderr.splitlines() if line.startswith("left: ")]
    assert left == "left: forwarding 0, folders []"


# Its server's log is in the trial's folder on the server's host.
IPERF3 = """#!/bin/sh
case "$1" in
    --version) echo "iperf 3.99" ;;
    -s) echo "Server listening on 5301"; exec sleep 60 ;;
    *) echo '{"end": {"sum_received": {"bits_per_second": 1000000, "seconds": 1}}}' ;;
esac
"""


def test_a_cross_check_leaves_no_folder_on_the_server(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "iperf3"
    program.parent.mkdir()
    program.write_text(IPERF3)
    program.chmod(0o755)
    (tmp_path / "plan.yaml").write_text(
        "name: crossed\n"
        "hosts: {gateway: local, server: local, clients: [local]}\n"
        "sut: {kind: forwarder}\n"
        "tests: [{name: t, kind: tcp, rate: 1mbit, duration: 500ms, cross_check: iperf3}]\n"
    )
    argv = [*INSIDE, sys.executable, str(HERE / "own_given_system.py"), "run", str(tmp_path / "plan.yaml"), "--json"]
    done = subprocess.run(
        [*argv, "--out", str(tmp_path / "runs")],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    [journal] = (tmp_path / "runs").glob("*/journal.ndjson")
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    [crossed] = [record for record in records if record.get("record") == "cross-check"]
    assert (crossed["version"], crossed["value"], crossed["error"]) == ("3.99", 1e6, None)
    [left] = [line for line in done.stderr.splitlines() if line.startswith("left: ")]
    assert left == "left: forwarding 0, folders []"


def test_a_local_server_is_no_use_to_clients_elsewhere(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN.format(server="local").replace("[local, local]", "['ssh://nobody@127.0.0.9:1']"))
    done = subprocess.run(
        [str(cli.quick_command), "run", str(plan)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "plan.yaml:4: " in done.stderr
    assert "cannot reach a server that is only called 'local'" in done.stderr


@needs_sshd
def test_a_host_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, '"ssh://nobody@127.0.0.9:1"', behind_ssh(tmp_path))
    assert done.returncode == 1
    error = json.loads(done.stdout)["trials"][0]["error"]
    assert "the agent on server (ssh://nobody@127.0.0.9:1) is lost" in error
    assert "127.0.0.9" in error


SEPARATE = """
name: separate
hosts: {{gateway: {gateway}, server: {{ssh: server, address: {server}}}, clients: [ssh://client]}}
sut: {{kind: given, label: kernel forwarding}}
tests:
  - {{name: udp, kind: udp, rate: 4mbit, number: 300, duration: 60s}}
  - {{name: rr, kind: rr, number: 200, duration: 60s, timeout: 60s}}
  - {{name: http, kind: http, connections: 2, number: 100, duration: 60s}}
"""


def run_separate(folder: Path, server: str, gateway: str = "ssh://gateway") -> dict[str, Any]:
    done = run_three_hosts(folder, SEPARATE.format(server=server, gateway=gateway), [str(cli.quick_command)])
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))


def reasons_of(document: dict[str, Any]) -> dict[str, set[str]]:
    """Codes of the reasons, by test."""
    return {
        summary["test"]: {reason["code"] for reason in summary["validity"]["reasons"]}
        for summary in document["summaries"]
    }


@pytest.mark.decided_by("the bytes that the gateway's interfaces counted")
def test_payload_that_crosses_the_given_gateway_is_seen_on_its_interfaces(tmp_path: Path) -> None:
    document = run_separate(tmp_path, "10.82.0.2")
    assert [trial["status"] for trial in document["trials"]] == ["done"], document["trials"][0]["error"]
    found = reasons_of(document)
    assert set(found) == {"udp", "rr", "http"}
    assert not any(code.startswith("gateway-") for codes in found.values() for code in codes)


@pytest.mark.decided_by("the bytes that the gateway's interfaces counted")
def test_payload_that_goes_past_the_given_gateway_is_incomplete(tmp_path: Path) -> None:
    document = run_separate(tmp_path, "10.90.0.2")
    assert [trial["status"] for trial in document["trials"]] == ["done"], document["trials"][0]["error"]
    for summary in document["summaries"]:
        assert summary["validity"]["verdict"] == "incomplete", summary
    assert all("gateway-not-crossed" in codes for codes in reasons_of(document).values())


def test_a_host_without_the_address_that_the_plan_gives_it_is_named(tmp_path: Path) -> None:
    document = run_separate(tmp_path, "10.82.0.2", "{ssh: gateway, address: 10.81.0.9}")
    [trial] = document["trials"]
    assert trial["status"] == "failed"
    assert "gateway has no address 10.81.0.9" in trial["error"]
    assert "10.81.0.1" in trial["error"]


@needs_sshd
def test_a_host_name_that_no_resolver_takes_fails_its_trial_by_name(tmp_path: Path) -> None:
    done = run(tmp_path, f"ssh://{'x' * 64}", behind_ssh(tmp_path))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout)
    assert (document["status"], document["trials"][0]["status"]) == ("failed", "failed")
    assert "the agent on server (ssh://xxx" in document["trials"][0]["error"]
