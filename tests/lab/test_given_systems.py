"""Systems under test come up on given hosts as in the lab, and the hosts are afterwards what they were before: routes,
settings, interfaces, files, processes. The hosts share no files with the controller.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest
from separate_hosts import INSIDE

from waiting import WITHIN_S

pytestmark = [pytest.mark.lab, pytest.mark.apart, pytest.mark.takes(8)]

PROGRAM = Path(__file__).with_name("given_hosts_program.py")
DAEMONS = f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"

SERVER = "server: {ssh: server, address: 10.82.0.2}, clients: [ssh://client1]"
HOSTS = {
    "remote-access": f"hosts: {{gateway: ssh://gateway, {SERVER}}}",
    "site-to-site": f"hosts: {{gateway-a: ssh://gateway-a, gateway-b: ssh://gateway-b, {SERVER}}}",
}
TRANSACTIONS = "{name: load, kind: rr, number: 200, duration: 60s, timeout: 60s}"
ENDLESS = "{name: load, kind: rr, duration: 10m}"
REQUESTS = "{name: load, kind: http, path: /welcome, connections: 2, number: 200, duration: 60s}"
NGINX = """{kind: stack, check: /welcome, tiers: [{name: front, kind: haproxy}, {name: web, kind: command,
  argv: [nginx, -p, "{{folder}}", -c, "{{folder}}/nginx.conf"],
  files: {nginx.conf: "daemon off; master_process off; pid {{folder}}/nginx.pid; error_log stderr; events { }
    http { access_log off; server { listen {{address}}:{{port}}; location /welcome { return 200 hello; } } }"}}]}"""


def needs(*names: str) -> pytest.MarkDecorator:
    missing = [name for name in names if shutil.which(name, path=DAEMONS) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{' and '.join(missing)} missing")


def plan_of(topology: str, sut: str, test: str, hosts: str | None = None) -> str:
    where = HOSTS[topology] if hosts is None else hosts
    return f"name: given\ntopology: {topology}\n{where}\nsut: {sut}\ntests: [{test}]\n"


def run_given(folder: Path, topology: str, plan: str, **spec: Any) -> dict[str, Any]:
    """What the program saw; fails if the hosts are not what they were."""
    # A signal has to meet the controller itself.
    command = cli.LEADLINE if "event" in spec else cli.quick_command
    whole = {"topology": topology, "command": [str(command)], "plan": plan, **spec}
    argv = [*INSIDE, sys.executable, str(PROGRAM), json.dumps(whole), str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["processes"] == [], said["stderr"]
    assert said["after"] == said["before"], said["stderr"]
    return said


def run_in_lab(folder: Path, plan: str) -> dict[str, Any]:
    (folder / "lab.yaml").write_text(plan)
    argv = [str(cli.quick_command), "run", str(folder / "lab.yaml"), "--json", "--out", str(folder / "lab-runs")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))


def outline(document: dict[str, Any]) -> list[Any]:
    """What does not depend on speed: cases, clients, and what the tests counted."""
    trials = [
        (
            *(trial[key] for key in ("case", "status", "error", "sut", "sut_version", "parameters")),
            {key: trial["bring_up"][key] for key in ("connected", "partial", "failed")},
        )
        for trial in document["trials"]
    ]
    counts = [
        {name: summary["metrics"][name]["value"] for name in ("transactions", "requests") if name in summary["metrics"]}
        for summary in document["summaries"]
    ]
    return [*trials, *counts]


full = pytest.mark.full_matrix
SYSTEMS = [
    pytest.param("remote-access", "{kind: route}", TRANSACTIONS, marks=full),
    pytest.param("site-to-site", "{kind: route}", TRANSACTIONS, marks=full),
    pytest.param("remote-access", "{kind: wireguard}", TRANSACTIONS),
    pytest.param("site-to-site", "{kind: wireguard}", TRANSACTIONS, marks=full),
    pytest.param(
        "remote-access",
        "{kind: wireguard, implementation: wireguard-go}",
        TRANSACTIONS,
        marks=[full, needs("wireguard-go", "wg")],
    ),
    pytest.param("remote-access", "{kind: openvpn}", TRANSACTIONS, marks=[full, needs("openvpn")]),
    pytest.param(
        "site-to-site", "{kind: openvpn, control: tls-crypt-v2, transport: tcp}", TRANSACTIONS, marks=needs("openvpn")
    ),
    pytest.param(
        "remote-access",
        "{kind: openvpn, control: tls-auth, topology: net30}",
        TRANSACTIONS,
        marks=[full, needs("openvpn")],
    ),
    pytest.param("remote-access", NGINX, REQUESTS, marks=[full, needs("nginx", "haproxy")]),
]


@pytest.mark.parametrize(("topology", "sut", "test"), SYSTEMS)
def test_system_comes_up_on_given_hosts_as_in_the_lab(tmp_path: Path, topology: str, sut: str, test: str) -> None:
    said = run_given(tmp_path, topology, plan_of(topology, sut, test))
    assert said["code"] == 0, said["stdout"] or said["stderr"]
    given = outline(json.loads(said["stdout"]))
    assert given == outline(run_in_lab(tmp_path, plan_of(topology, sut, test, hosts="")))
    assert [trial[1] for trial in given[:-1]] == ["done"]
    assert list(given[-1].values()) == [200]
    findings = json.loads((Path(json.loads(said["stdout"])["folder"]) / "findings.json").read_text())
    assert [trial["on_given_hosts"] for trial in findings["run"]["trials"]] == [False], "its version is no label"


@pytest.mark.parametrize(
    ("event", "sut", "code"),
    [
        pytest.param("kill", "{kind: wireguard}", -9),
        pytest.param("kill", "{kind: openvpn}", -9, marks=[full, needs("openvpn")]),
        pytest.param("interrupt", "{kind: openvpn}", 130, marks=[full, needs("openvpn")]),
        pytest.param("kill-agent", "{kind: wireguard}", 1, marks=full),
    ],
)
def test_hosts_are_what_they_were_after_an_end_in_the_middle(tmp_path: Path, event: str, sut: str, code: int) -> None:
    said = run_given(tmp_path, "remote-access", plan_of("remote-access", sut, ENDLESS), event=event)
    assert said["code"] == code, said["stderr"]
    for host, expected in {"gateway": "ipv4/ip_forward:1", "server": "10.83.0.0/16 via 10.82.0.7 dev lan "}.items():
        assert expected in said["changed"][host], "the system was up"
    assert any(line.startswith("10.82.0.0/24 ") for line in said["changed"]["client1"])
    if event == "kill-agent":
        [trial] = json.loads(said["stdout"])["trials"]
        assert trial["error"].startswith("the agent on gateway (ssh://gateway) is lost")


OTHER_WAYS = {
    # A route to the server's network of its own, with a metric, beside which OpenVPN adds none.
    "client1": "ip route add 10.82.0.0/24 via 10.81.0.1 metric 50 && ip route add 10.82.0.0/24 via 10.90.0.2 metric 60",
    # Forwarding on one interface alone, and no redirects: the kernel changes both with ip_forward.
    "gateway": "cd /proc/sys/net/ipv4/conf && echo 1 >wan/forwarding && echo 0 >all/accept_redirects",
    "server": "ip route add default via 10.90.0.1",
}


@needs("openvpn")
@full
def test_earlier_routes_and_settings_come_back(tmp_path: Path) -> None:
    plan = plan_of("remote-access", "{kind: openvpn}", TRANSACTIONS)
    said = run_given(tmp_path, "remote-access", plan, prepare=OTHER_WAYS)
    assert said["code"] == 0, said["stdout"] or said["stderr"]
    assert "ipv4/conf/wan/forwarding:1" in said["before"]["gateway"]
    assert "ipv4/ip_forward:0" in said["before"]["gateway"]


DUAL_STACK = {
    "client1": "ip addr add fd81::2/64 dev wan nodad",
    "gateway": "ip addr add fd81::1/64 dev wan nodad && ip addr add fd82::7/64 dev lan nodad",
    "server": "ip addr add fd82::2/64 dev lan nodad",
}


@needs("openvpn")
@full
def test_both_ip_versions_are_used_where_the_server_has_both(tmp_path: Path) -> None:
    hosts = HOSTS["remote-access"].replace("address: 10.82.0.2", "address: [10.82.0.2, 'fd82::2']")
    load = TRANSACTIONS.replace("kind: rr,", "kind: rr, ip: 6,")
    plan = plan_of("remote-access", "{kind: openvpn, ip: 6}", load, hosts=hosts)
    said = run_given(tmp_path, "remote-access", plan, prepare=DUAL_STACK)
    assert said["code"] == 0, said["stdout"] or said["stderr"]
    [summary] = json.loads(said["stdout"])["summaries"]
    assert summary["metrics"]["transactions"]["value"] == 200


# The process of an agent that has changes to undo: it ends some time after a run has looked for such processes.
OTHER_RUN = """
(until grep -qs "[o]wn=.(readlink /proc/self" /proc/[0-9]*/cmdline; do sleep 0.01; done |
    /tmp/cache/leadline/agents/*/leadline-agent undo) >/dev/null 2>&1 &
"""


@full
def test_run_waits_until_an_earlier_one_has_put_its_hosts_back(tmp_path: Path) -> None:
    plan = plan_of("remote-access", "{kind: route}", TRANSACTIONS)
    said = run_given(tmp_path, "remote-access", plan, prepare={"client1": OTHER_RUN})
    assert said["code"] == 0, said["stdout"] or said["stderr"]
    [journal] = (tmp_path / "runs").glob("*/journal.ndjson")
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    events = [entry["event"] for entry in entries if entry.get("host") == "client1" and "event" in entry]
    first_change = next(index for index, event in enumerate(events) if event.get("task", "").startswith("undo-"))
    looked = [event["line"] for event in events[:first_change] if event["type"] == "output"]
    assert any(line.isdecimal() for line in looked), "it has seen the other process"


@full
@pytest.mark.parametrize(
    ("sut", "prepare", "wanted"),
    [
        (
            "{kind: openvpn, binary: no-openvpn}",
            {},
            "no-openvpn is not installed or not executable on gateway; install OpenVPN (apt-get install openvpn)",
        ),
        (
            "{kind: route}",
            {"client1": "ip addr add 10.82.0.9/24 dev mgmt"},
            "client1 is itself in the server's network 10.82.0.0/24, by its address 10.82.0.9",
        ),
        (
            "{kind: wireguard}",
            {"gateway": "ip addr add 10.90.0.3/24 dev wan", "client1": "ip link set mgmt up"},
            "gateway and client1 share 10.81.0.0/24 and 10.90.0.0/24, and the plan does not say which is measured; "
            "add hosts.gateway.address",
        ),
    ],
    ids=["program", "flat", "two-networks"],
)
def test_what_is_missing_is_said_in_a_line(tmp_path: Path, sut: str, prepare: dict[str, str], wanted: str) -> None:
    plan = plan_of("remote-access", sut, TRANSACTIONS)
    said = run_given(tmp_path, "remote-access", plan, prepare=prepare)
    [trial] = json.loads(said["stdout"])["trials"]
    assert trial["status"] == "failed"
    assert wanted in trial["error"]
    assert "\n" not in trial["error"]


def test_this_machine_is_changed_only_where_the_plan_allows_it(tmp_path: Path) -> None:
    hosts = HOSTS["remote-access"].replace("ssh://gateway", "local")
    (tmp_path / "plan.yaml").write_text(plan_of("remote-access", "{kind: route}", TRANSACTIONS, hosts=hosts))
    argv = [str(cli.quick_command), "run", str(tmp_path / "plan.yaml")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip().endswith(
        "plan.yaml:3: hosts: gateway is this machine, whose routes and settings route would change; "
        "write change_local: true in hosts to allow that, or name another host"
    )
