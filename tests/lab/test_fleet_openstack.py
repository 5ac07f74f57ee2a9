"""`leadline fleet` on OpenStack: libcloud's driver over HTTP, and a scripted server with libcloud's documents."""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet_lines import ENVIRONMENT, REASON, SECRET, FleetLines, clean_environment, examples, fleet_lines
from openstack_server import OpenStackServer, openstack_server
from ruamel.yaml import YAML

from waiting import WITHIN_S

pytestmark = [pytest.mark.skipif(not (ENVIRONMENT / "leadline").exists(), reason=REASON), pytest.mark.takes(5)]
UP = ("up", "--provider", "openstack", "--type", "m1.small", "--name", "lab", "--wait", "0s", "--yes", "--count", "3")
DOWN = ("down", "lab", "--provider", "openstack")
LIST = ("list", "--provider", "openstack", "--json")


class Cloud:
    """The server, and `leadline fleet` against it in a folder of the test."""

    def __init__(self, server: OpenStackServer, process: FleetLines, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self._process = process

    def fleet(self, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """Run one command to its end, with changed variables."""
        account = {"OS_AUTH_URL": f"{self.server.url}/identity/v3", "OS_USERNAME": "ada", "OS_PASSWORD": SECRET}
        variables = {**clean_environment(self.folder), **account, "OS_PROJECT_NAME": "lab", **changes}
        (ended,) = self._process.run(self.folder, variables, words)
        return ended


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetLines]:
    with fleet_lines(tmp_path_factory.mktemp("openstack")) as process:
        yield process


@pytest.fixture
def cloud(lines: FleetLines, tmp_path: Path) -> Iterator[Cloud]:
    (fixtures,) = (ENVIRONMENT.parent / "lib").glob("python*/site-packages/libcloud/test/compute/fixtures")
    with openstack_server(fixtures, SECRET) as server:
        yield Cloud(server, lines, tmp_path)


def test_whole_life_of_a_fleet(cloud: Cloud) -> None:
    up = cloud.fleet(*UP)
    assert up.returncode == 0, up.stderr
    assert "price: not known to libcloud's list; ask the provider" in up.stderr
    assert "each halts itself after 1 h; it stays and costs until `leadline fleet down`" in up.stderr
    assert (
        "debian-13-generic-amd64 (image-debian-13-generic-amd64; public image of the cloud), user debian" in up.stderr
    )

    hosts = YAML(typ="safe").load(cloud.folder / "fleet-lab.yaml")["hosts"]
    assert [host["name"] for host in hosts] == ["lead-1", "lead-2", "lead-3"]
    assert all(host["ssh"] == f"debian@{host['address']}" for host in hosts)

    created = [one["server"] for one in cloud.server.sent("POST", "/compute/servers")]
    assert [one["name"] for one in created] == [f"leadline-fleet-lab-{place}" for place in (1, 2, 3)]
    assert all(one["security_groups"] == [{"name": "leadline-fleet-lab"}] for one in created)
    tags = created[1]["metadata"]
    assert (tags["leadline-fleet"], tags["leadline-position"]) == ("lab", "1")
    script = base64.b64decode(created[1]["user_data"]).decode()
    assert tags["leadline-end"] in script and "longest=60\n" in script
    rules = [one["security_group_rule"] for one in cloud.server.sent("POST", "/network/v2.0/security-group-rules")]
    assert [(rule["port_range_min"], rule["remote_ip_prefix"]) for rule in rules] == [(22, "0.0.0.0/0"), (None, None)]
    assert rules[1]["remote_group_id"] == rules[1]["security_group_id"]

    (row,) = json.loads(cloud.fleet(*LIST).stdout)["fleets"]
    assert (row["machines"], row["types"], row["states"]) == (3, ["m1.small"], {"running": 3})
    assert (row["usd_per_hour"], row["usd_so_far"], row["is_expired"]) == (None, None, False)
    down, again = cloud.fleet(*DOWN), cloud.fleet(*DOWN)
    assert (down.returncode, again.returncode) == (0, 0)
    assert down.stderr.endswith("lab: removed 3 machines, 1 security group, 1 key pair\n")
    assert cloud.server.is_empty() and not list((cloud.folder / "data").rglob("key"))


def test_floating_addresses_are_those_for_ssh_and_are_given_back(cloud: Cloud) -> None:
    up = cloud.fleet(*UP, "--floating-network", "public")
    assert up.returncode == 0, up.stderr
    hosts = YAML(typ="safe").load(cloud.folder / "fleet-lab.yaml")["hosts"]
    assert [host["ssh"] for host in hosts] == [f"debian@192.168.3.{place}" for place in (1, 2, 3)]
    assert all(host["address"].startswith("10.1.0.") for host in hosts)
    assert all(one["floating_network_id"] == "outer" for one in cloud.server.floating.values())
    down = cloud.fleet(*DOWN)
    assert down.stderr.endswith("lab: removed 3 machines, 1 security group, 1 key pair, 3 floating IPs\n")
    assert cloud.server.is_empty()


def test_cloud_without_floating_addresses_has_fleets_too(cloud: Cloud) -> None:
    cloud.server.has_floating = False
    assert cloud.fleet(*UP).returncode == 0
    assert cloud.fleet(*DOWN).returncode == 0 and cloud.server.is_empty()


def test_account_that_may_not_ask_is_bad_input_to_a_removal(cloud: Cloud) -> None:
    ended = cloud.fleet(*DOWN, OS_PASSWORD="wrong")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)


@pytest.mark.lab
def test_machines_are_waited_for_and_logged_in_to_with_the_generated_key(tmp_path: Path) -> None:
    """In a network of its own, where port 22 is free."""
    program = [sys.executable, str(Path(__file__).with_name("fleet_ssh_program.py")), str(tmp_path)]
    line = f"ip link set lo up && exec {shlex.join(program)}"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", line], capture_output=True, text=True,
        timeout=WITHIN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["up"]["code"] == 0, found["up"]["err"]
    assert [line for line in found["up"]["err"].splitlines() if "SSH answers" in line] == [
        f"leadline: lead-{place}: SSH answers ({place} of 3)" for place in (1, 2, 3)
    ]
    assert found["by_name"]["out"] == "uptime on 127.0.1.2\n", found["by_name"]["err"]
    assert found["by_address"]["out"] == "uptime on 127.0.1.3\n", found["by_address"]["err"]
    assert found["down"]["code"] == 0 and found["is_empty"]


def test_machines_that_have_halted_stay_until_they_are_removed(cloud: Cloud) -> None:
    assert cloud.fleet(*UP).returncode == 0
    for server in cloud.server.servers.values():
        server["status"] = "SHUTOFF"
        server["metadata"]["leadline-end"] = "2026-01-01T00:00:00Z"
    for group in cloud.server.groups.values():
        group["description"] = "leadline-end=2026-01-01T00:00:00Z"
    (row,) = json.loads(cloud.fleet(*LIST).stdout)["fleets"]
    assert (row["states"], row["is_expired"], row["ttl_left_s"]) == ({"halted": 3}, True, 0)
    assert cloud.fleet("down", "--provider", "openstack", "--all-expired").returncode == 0
    assert cloud.server.is_empty()


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/compute/servers", 403, "Quota exceeded for instances"),
        ("/network/v2.0/security-group-rules", 409, "Quota exceeded for rules"),
        ("/compute/os-keypairs", 403, "Quota exceeded, too many key pairs."),
    ],
)
def test_refusal_half_way_leaves_nothing(path: str, status: int, message: str, cloud: Cloud) -> None:
    cloud.server.faults["POST", path] = status, {"forbidden": {"code": status, "message": message}}
    ended = cloud.fleet(*UP)
    assert ended.returncode == 1 and message in ended.stderr.splitlines()[-1]
    assert cloud.server.is_empty() and not (cloud.folder / "fleet-lab.yaml").exists()


def test_machine_that_no_host_takes_fails_the_fleet_by_name(cloud: Cloud) -> None:
    cloud.server.builds = False
    ended = cloud.fleet(*UP)
    assert ended.returncode == 1 and cloud.server.is_empty()
    last = "leadline: lead-1 (server-2) did not start, and is failed: No valid host was found."
    assert ended.stderr.splitlines()[-1] == last


REFUSED = {
    "--type m1.smal": "--type: openstack has no m1.smal; did you mean m1.small?",
    "--image debian-15": "--image: openstack has no debian-15; did you mean debian-1",
    "--network nett1": "--network: openstack has no network nett1; did you mean net1?",
    "--key mine": "--key: openstack has no key pair mine; there are none",
    "--spot": "--spot: openstack has no spot machines; leave it out",
    "--subnet x": "--subnet: openstack connects machines to networks; name it with --network",
    "--floating-network publik": "--floating-network: openstack has no network publik; did you mean public?",
    "--region elsewhere": "openstack has no region elsewhere; there is regionOne",
    "OS_PASSWORD=wrong": "openstack refuses the credentials: ",
    "OS_AUTH_URL=": "openstack: there are no credentials: OS_* variables have no auth_url",
}


@pytest.mark.parametrize("change", REFUSED)
def test_what_is_wrong_is_said_in_one_line(change: str, cloud: Cloud) -> None:
    if change.startswith("OS_"):
        name, _, value = change.partition("=")
        ended = cloud.fleet(*UP, **{name: value})
    else:
        ended = cloud.fleet(*UP, *change.split())
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended.stderr
    assert REFUSED[change] in ended.stderr
    assert cloud.server.is_empty()


def test_examples_in_the_help_run(cloud: Cloud) -> None:
    lines = examples("openstack")
    assert {words[0] for words in lines} == {"up", "down"}
    for words in lines:
        ended = cloud.fleet(*words)
        assert ended.returncode == 0, ended.stderr
    assert cloud.server.is_empty()
