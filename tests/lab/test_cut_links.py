"""Cables that are pulled during a test, with hosts over SSH: the outage is named, and what was measured is kept. The
links go down and come back as counts of packets say, not after times.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest
from separate_hosts import INSIDE, run_three_hosts
from sshd import needs_sshd

from waiting import WITHIN_S

pytestmark = [pytest.mark.lab, pytest.mark.apart, pytest.mark.takes(12)]

PLAN = """
name: cut
hosts: {gateway: ssh://gateway, server: {ssh: server, address: 10.82.0.2}, clients: [ssh://client]}
sut: {kind: given, label: kernel forwarding}
tests: [%s]
"""
# Before `leadline ...`: the host, the interface, the column of /proc/net/dev that is read, the bytes after which the
# interface goes down, and whether it comes back.
CUT = """
host=$1; interface=$2; column=$3; bytes=$4; back=$5; shift 5
on() { nsenter --net=/proc/$(cat "$FOLDER/$host.pid")/ns/net "$@"; }
carried() { on awk -v of="$interface:" -v column="$column" '$1 == of { print $column }' /proc/net/dev; }
"$@" & run=$!
until [ "$(carried)" -gt "$bytes" ]; do kill -0 $run; done
on ip link set "$interface" down
if [ "$back" ]; then
    sleep 0.5
    on ip link set "$interface" up
    on ip route add 10.82.0.0/24 via 10.81.0.1
fi
code=0; wait $run || code=$?; exit $code
"""
RECEIVED, SENT = "2", "10"


def run_cut(folder: Path, test: str, *cut: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """The exit code, the test's result and the answer about its case."""
    done = run_three_hosts(folder, PLAN % test, ["sh", "-ec", CUT, "sh", *cut, str(cli.quick_command)])
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    [trial] = document["trials"]
    assert trial["status"] == "done", trial["error"]
    findings = json.loads((Path(document["folder"]) / "findings.json").read_text())
    return done.returncode, trial["tests"][0], findings["run"]["answers"][0]


def texts(result: dict[str, Any]) -> dict[str, str]:
    return {reason["code"]: reason["text"] for reason in result["validity"]["reasons"]}


@pytest.mark.decided_by("the cable")
def test_cable_that_is_pulled_for_a_time_is_named_with_its_host(tmp_path: Path) -> None:
    # The load has bytes to carry when the link goes down, and goes on when it is back.
    load = "{name: load, kind: tcp, rate: 8mbit, bytes: 2MB, duration: 120s}"
    code, result, answer = run_cut(tmp_path, load, "client", "wan", SENT, "300000", "back")
    text = texts(result)["link-outage"]
    assert text.startswith("the link wan of client1 was out for ") and "its host set it down" in text
    assert "until then it carried" in text
    assert result["metrics"]["throughput_bps"]["value"] > 0
    assert result["limit"]["by"] == "link"
    assert answer["sentence"].startswith("The link wan of client1 was out for ")
    assert "`ethtool` on its host" in answer["next_step"]
    assert code == 0
    journal = next((tmp_path / "runs").glob("*/journal.ndjson")).read_text().splitlines()
    entries = [json.loads(line) for line in journal]
    changes = [
        one["event"] for one in entries if one.get("event", {}).get("type") == "link" and one["host"] == "client1"
    ]
    assert [(change["name"], change["is_up"]) for change in changes][:1] == [("wan", False)]
    assert changes[-1]["has_carrier"] and changes[-1]["t_ns"] > changes[0]["t_ns"]


@pytest.mark.decided_by("the cable")
def test_cable_that_stays_out_fails_the_run_and_keeps_what_was_measured(tmp_path: Path) -> None:
    load = "{name: load, kind: http, connections: 2, rate: 500, duration: 5s, timeout: 500ms}"
    code, result, answer = run_cut(tmp_path, load, "server", "lan", RECEIVED, "50000", "")
    text = texts(result)["link-lost"]
    assert text.startswith("the link lan of server was out from ") and " to its end, for " in text
    assert result["metrics"]["requests"]["value"] > 0
    assert result["limit"]["by"] == "link"
    assert answer["sentence"].startswith("The link lan of server was out from ")
    assert code == 1


@needs_sshd
def test_agent_whose_controller_is_out_of_reach_ends_with_what_it_started_and_undoes_its_changes(
    tmp_path: Path,
) -> None:
    """Nothing is closed: the cable between `ssh` and its server is out, and stays so."""
    (tmp_path / "plan.yaml").write_text("")
    argv = [*INSIDE, sys.executable, str(Path(__file__).with_name("cut_agent.py")), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["processes"], said["ended"], said["is_served"]) == (4, [True] * 4, True)
    assert "10.92.0.0/24 via 10.91.0.1 dev far " in said["changes"]
    assert "ip_forward:1" in said["changes"]
    assert said["has_folder"]
    assert said["refused"] == [
        "far is in 10.91.0.0/24 itself, so its packets to it would go past the gateway",
        "far is commanded from 10.91.0.1, and its route to 10.88.0.0/13 would have to change",
    ]
    assert said["is_undone"]
