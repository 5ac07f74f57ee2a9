"""`leadline fleet` on AWS with real parts: libcloud over HTTP, and moto's server in the place of EC2. Whatever happens
on the way, nothing is left there that is not a fleet's, and no message has a secret.

Both are in an environment of their own, which `make test` installs. No machine of moto's exists: nothing waits for SSH.
"""

from __future__ import annotations

import base64
import json
import os
import pty
import re
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from fleet_lines import ENVIRONMENT, REASON, SECRET, FleetLines, clean_environment, examples, fleet_lines
from ruamel.yaml import YAML

from waiting import WITHIN_S, until

HERE = Path(__file__).parent
pytestmark = [pytest.mark.skipif(not (ENVIRONMENT / "leadline").exists(), reason=REASON), pytest.mark.takes(12)]
UP = ("up", "--provider", "aws", "--type", "m7i.large", "--name", "lab", "--wait", "0s", "--yes")
NOTHING: dict[str, list[str]] = {"machines": [], "groups": [], "keys": []}
DEBIAN = "136693071363"


def image(number: int, name: str, architecture: str, date: str, owner: str = DEBIAN) -> dict[str, object]:
    fixed = {"state": "available", "public": True, "root_device_type": "ebs", "root_device_name": "/dev/xvda"}
    kind = {"image_type": "machine", "virtualization_type": "hvm", "hypervisor": "xen", "image_location": "x"}
    own = {"ami_id": f"ami-{number:017x}", "owner_id": owner, "name": name, "architecture": architecture}
    return {**fixed, **kind, **own, "creation_date": f"{date}T00:00:00.000Z", "description": name}


IMAGES = [
    image(1, "debian-12-amd64-20261101-2000", "x86_64", "2026-11-01"),
    image(2, "debian-13-amd64-20260901-2000", "x86_64", "2026-09-01"),
    image(3, "debian-13-amd64-20261001-2000", "x86_64", "2026-10-01"),
    image(4, "debian-13-arm64-20261001-2000", "arm64", "2026-10-01"),
    image(5, "debian-13-amd64-20261102-2000", "x86_64", "2026-11-02", owner="123456789012"),
    image(6, "golden", "x86_64", "2026-10-01", owner="123456789012"),
]


class Cloud:
    """The server, and `leadline fleet` against it in a folder of the test."""

    def __init__(self, url: str, process: FleetLines) -> None:
        self._url = url
        self._process = process
        self.folder = Path()

    def control(self, name: str, **words: str) -> Any:
        with urlopen(f"{self._url}/control/{name}?{urlencode(words)}", timeout=WITHIN_S) as answer:
            return json.load(answer)

    def sent(self, action: str) -> list[dict[str, str]]:
        """The parameters of all requests of an action."""
        return [one for one in self.control("requests") if one.get("Action") == action]

    def variables(self, **more: str) -> dict[str, str]:
        aws = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
        return {**clean_environment(self.folder), **aws, "AWS_ENDPOINT_URL_EC2": self._url, **more}

    def fleet(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run one command to its end, with further variables."""
        (ended,) = self._process.run(self.folder, self.variables(**more), words)
        return ended

    def started(self, *words: str) -> subprocess.Popen[str]:
        """Start one command in a process of its own, whose machines do not run yet."""
        self.control("hold", state="pending")
        argv = [str(ENVIRONMENT / "leadline"), "fleet", *words]
        process = subprocess.Popen(
            argv, cwd=self.folder, env=self.variables(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        until(lambda: self.sent("RunInstances") or process.poll() is not None)
        return process

    def left(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = self.control("left")
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    folder = tmp_path_factory.mktemp("ec2")
    images = folder / "images.json"
    images.write_text(json.dumps(IMAGES))
    argv = [ENVIRONMENT / "python", HERE / "ec2_server.py", images]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        with fleet_lines(folder) as lines:
            yield Cloud(process.stdout.readline().strip(), lines)
        process.stdin.close()


@pytest.fixture
def cloud(server: Cloud, tmp_path: Path) -> Cloud:
    server.folder = tmp_path
    server.control("reset")
    return server


def test_whole_life_of_a_fleet(cloud: Cloud) -> None:
    up = cloud.fleet(*UP, "--count", "5", "--ttl", "2h", "--from", "198.51.100.0/24", "--json")
    assert up.returncode == 0, up.stderr
    assert "0.1008 USD/h each, 0.50 USD/h together, 1.01 USD until the end" in up.stderr
    assert "debian-13-amd64-20261001-2000" in up.stderr and "SSH is open to 198.51.100.0/24" in up.stderr
    document = json.loads(up.stdout)
    assert document["price"]["usd_until_end"] == pytest.approx(1.008)

    hosts = YAML(typ="safe").load(cloud.folder / "fleet-lab.yaml")["hosts"]
    assert [host["name"] for host in hosts] == [f"lead-{place}" for place in range(1, 6)]
    assert [host["ssh"] for host in hosts] == [machine["ssh"] for machine in document["machines"]]
    assert all(re.fullmatch(r"admin@[\d.]+", host["ssh"]) and host["address"].startswith("172.") for host in hosts)
    key = Path(document["key"])
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and stat.S_IMODE(key.parent.stat().st_mode) == 0o700

    (run,) = cloud.sent("RunInstances")
    assert (run["MinCount"], run["MaxCount"], run["ImageId"]) == ("5", "5", IMAGES[2]["ami_id"])
    assert run["InstanceInitiatedShutdownBehavior"] == "terminate"
    tags = {run[f"TagSpecification.1.Tag.{n}.Key"]: run[f"TagSpecification.1.Tag.{n}.Value"] for n in (1, 2, 3)}
    assert tags == {"Name": "leadline-fleet-lab", "leadline-fleet": "lab", "leadline-end": document["end"]}
    script = base64.b64decode(run["UserData"]).decode()
    assert script.startswith("#!/bin/sh\n") and document["end"] in script and "longest=120\n" in script
    rules = [one for one in cloud.control("requests") if one.get("Action") == "AuthorizeSecurityGroupIngress"]
    assert [rule.get("IpPermissions.1.IpRanges.1.CidrIp") for rule in rules] == ["198.51.100.0/24", None]
    assert rules[1]["IpPermissions.1.Groups.1.GroupId"] == rules[1]["GroupId"]

    listed = cloud.fleet("list", "--provider", "aws")
    assert re.search(r"^lab +5 +m7i\.large +5 running +\d min +(2 h|1 h 59 min) +0\.0\d USD", listed.stdout, re.M)
    (row,) = json.loads(cloud.fleet("list", "--provider", "aws", "--json").stdout)["fleets"]
    assert (row["machines"], row["is_expired"], row["usd_per_hour"]) == (5, False, pytest.approx(0.504))

    down = cloud.fleet("down", "lab", "--provider", "aws")
    assert (down.returncode, cloud.left()) == (0, NOTHING)
    assert down.stderr.splitlines()[-1] == "leadline: lab: removed 5 machines, 1 security group, 1 key pair"
    assert not key.parent.exists()


def test_expired_fleets_are_found_and_removed_and_others_stay(cloud: Cloud) -> None:
    for name in ("old", "new"):
        assert cloud.fleet(*UP[:6], name, *UP[7:], "--count", "1").returncode == 0
    cloud.control("end", fleet="old")
    down = ("down", "--provider", "aws", "--all-expired")
    assert (
        "expired: leadline fleet down --all-expired --provider aws" in cloud.fleet("list", "--provider", "aws").stderr
    )
    assert cloud.fleet(*down).returncode == 0
    again = cloud.fleet(*down, "--json")
    assert (again.returncode, json.loads(again.stdout)["fleets"]) == (0, [])
    assert len(cloud.left()["machines"]) == 1 and cloud.left()["keys"] == ["leadline-fleet-new"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            {"action": "RunInstances", "code": "InsufficientInstanceCapacity", "message": "We have none."},
            "refused to create the machines: InsufficientInstanceCapacity: We have none.",
        ),
        ({"action": "RunInstances"}, "cannot be reached to create the machines: "),
        (
            {
                "action": "AuthorizeSecurityGroupIngress",
                "code": "RulesPerSecurityGroupLimitExceeded",
                "message": "Too many.",
            },
            "refused to create the security group: RulesPerSecurityGroupLimitExceeded: Too many.",
        ),
        (
            {"action": "DescribeInstances", "code": "InvalidParameterValue", "message": "Oops.", "skip": "2"},
            "refused to list the machines: InvalidParameterValue: Oops.",
        ),
    ],
)
def test_failure_half_way_leaves_nothing(fault: dict[str, str], message: str, cloud: Cloud) -> None:
    cloud.control("fault", **fault)
    ended = cloud.fleet(*UP, "--count", "3")
    assert ended.returncode == (2 if "Invalid" in message else 1), ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("leadline: aws in us-east-1 ") and message in last
    assert cloud.left() == NOTHING
    assert not (cloud.folder / "fleet-lab.yaml").exists() and not list((cloud.folder / "data").rglob("key"))


def test_interrupt_while_machines_start_leaves_nothing(cloud: Cloud) -> None:
    process = cloud.started(*UP, "--count", "3")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 130, err
    assert "ending; what was created is removed" in err and cloud.left() == NOTHING


def test_second_interrupt_leaves_the_machines_until_their_end(cloud: Cloud) -> None:
    process = cloud.started(*UP, "--count", "3")
    assert process.stderr is not None
    # The next list of machines never comes.
    cloud.control("fault", action="DescribeInstances", hang="yes")
    process.send_signal(signal.SIGINT)
    while "ending; what was created is removed" not in process.stderr.readline():
        assert process.poll() is None
    until(lambda: cloud.control("hung"))
    process.send_signal(signal.SIGINT)
    err = process.stderr.read()
    assert process.wait(WITHIN_S) == 130, err
    assert err.splitlines()[-1] == "leadline: what is left: leadline fleet down lab --provider aws --region us-east-1"
    assert len(cloud.left()["machines"]) == 3


def test_what_a_killed_command_left_is_removed_from_any_computer(cloud: Cloud) -> None:
    process = cloud.started(*UP, "--count", "3")
    process.kill()
    process.communicate(timeout=WITHIN_S)
    assert len(cloud.left()["machines"]) == 3 and "leadline-end" in str(cloud.sent("RunInstances"))
    shutil.rmtree(cloud.folder / "data")
    down = ("down", "lab", "--provider", "aws")
    removed, again = cloud.fleet(*down), cloud.fleet(*down)
    assert (removed.returncode, again.returncode, cloud.left()) == (0, 0, NOTHING)
    assert again.stderr == "leadline: lab: aws in us-east-1 has nothing of it\n"


def test_what_cannot_be_removed_is_named(cloud: Cloud) -> None:
    assert cloud.fleet(*UP, "--count", "1").returncode == 0
    cloud.control("fault", action="DeleteKeyPair", code="UnauthorizedOperation", message="Not allowed.", status="403")
    ended = cloud.fleet("down", "lab", "--provider", "aws", "--json")
    assert ended.returncode == 1
    (fleet,) = json.loads(ended.stdout)["fleets"]
    assert (fleet["machines"], fleet["security_groups"], fleet["key_pairs"]) == (1, 1, 0)
    assert (
        "not removed: the key pair leadline-fleet-lab (aws in us-east-1 refused to remove the key pair" in ended.stderr
    )


def test_the_price_is_shown_before_the_question_and_no_is_no(cloud: Cloud) -> None:
    user, terminal = pty.openpty()
    argv = [str(ENVIRONMENT / "leadline"), "fleet", *UP[:-1], "--count", "2"]
    with subprocess.Popen(
        argv, cwd=cloud.folder, env=cloud.variables(), stdin=terminal, stderr=terminal, stdout=subprocess.DEVNULL
    ) as process:
        os.close(terminal)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(user, 4096)
        assert b"0.20 USD/h together" in shown
        os.write(user, b"n\n")
        assert process.wait(WITHIN_S) == 130
    os.close(user)
    assert cloud.left() == NOTHING and cloud.sent("RunInstances") == []


def test_spot_machines_of_another_architecture_and_an_own_key(cloud: Cloud) -> None:
    words = ("up", "--provider", "aws", "--type", "c7g.large", "--name", "arm", "--wait", "0s", "--yes", "--count", "1")
    done, taken = cloud.fleet(*words, "--spot", "--json"), cloud.fleet(*words, "--spot")
    assert done.returncode == 0, done.stderr
    assert "spot machines of type c7g.large (aarch64)" in done.stderr and "price: at most " in done.stderr
    (run,) = cloud.sent("RunInstances")
    assert (run["InstanceMarketOptions.MarketType"], run["ImageId"]) == ("spot", IMAGES[3]["ami_id"])
    assert taken.returncode == 2 and "--name: there is a fleet arm already; choose another --name" in taken.stderr


NO_ACCOUNT = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
REFUSED: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "no credentials": ((), NO_ACCOUNT, "aws: there are no credentials; set AWS_ACCESS_KEY_ID"),
    "no region": ((), {"AWS_REGION": ""}, "aws: no region is set; name it with --region"),
    "region": (
        ("--region", "eu-centrl-1"),
        {},
        "aws: eu-centrl-1 is no region that libcloud knows; did you mean eu-central-1?",
    ),
    "type": (("--type", "m7i.lage"), {}, "--type: aws in us-east-1 has no m7i.lage; did you mean m7i.large?"),
    "architecture": (("--arch", "aarch64"), {}, "--arch: m7i.large is x86_64; leave --arch out, or change --type"),
    "image": (("--image", "ami-1"), {}, "refused to describe the image: InvalidAMIID"),
    "image's user": (
        ("--image", f"ami-{6:017x}"),
        {},
        "the user of the image golden is not known; name it with --user",
    ),
    "image's architecture": (("--image", f"ami-{4:017x}"), {}, "is for arm64, and m7i.large is x86_64"),
    "subnet": (("--subnet", "subnet-1"), {}, "refused to find the subnet: InvalidSubnetID.NotFound"),
    "count": (("--network", "vpc-1"), {}, "no zone of the subnets of aws in us-east-1 has m7i.large"),
    "key": (("--key", "mine"), {}, "--key: aws in us-east-1 has no key pair mine; leave --key out"),
    "fleet's key": (("--key", "leadline-fleet-x"), {}, "--key: leadline-fleet-x is a fleet's own"),
    "floating network": (("--floating-network", "x"), {}, "--floating-network: aws gives public addresses by itself"),
    "ttl": (("--ttl", "1s"), {}, "--ttl: 1s is not in its limits; 10 min to 168 h"),
    "from": (("--from", "here"), {}, "--from: Expected 4 octets in 'here'; write an IPv4 network"),
    "name": (("--name", "My fleet"), {}, "'My fleet' cannot be the name of a fleet"),
    "endpoint": ((), {"AWS_ENDPOINT_URL_EC2": "http://127.0.0.1/ec2"}, "http://127.0.0.1/ec2 cannot be an endpoint"),
    "out": (("--out", "/proc/none"), {}, "--out /proc/none: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_said_in_one_line_before_anything_is_created(name: str, cloud: Cloud) -> None:
    words, variables, message = REFUSED[name]
    ended = cloud.fleet(*UP, "--count", "2", *words, **variables)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended.stderr
    assert message in ended.stderr
    assert cloud.left() == NOTHING and cloud.sent("ImportKeyPair") == []


def test_without_a_terminal_nothing_is_created_without_yes(cloud: Cloud) -> None:
    ended = cloud.fleet(*UP[:-1], "--count", "2")
    assert ended.returncode == 2
    assert ended.stderr.endswith("asks before it creates machines, and there is no terminal; add --yes\n")
    assert cloud.control("requests") == []


def test_provider_that_cannot_be_reached_is_a_failure(cloud: Cloud) -> None:
    ended = cloud.fleet("list", "--provider", "aws", AWS_ENDPOINT_URL_EC2="http://127.0.0.1:9")
    assert ended.returncode == 1
    assert (
        ended.stderr == "leadline: aws in us-east-1 cannot be reached to list the security groups: Connection refused\n"
    )


def test_examples_in_the_help_run(cloud: Cloud) -> None:
    lines = examples("aws")
    assert {words[0] for words in lines} == {"up", "list", "down"}
    for words in lines:
        ended = cloud.fleet(*words)
        assert ended.returncode == 0, ended.stderr
    assert len(cloud.left()["machines"]) == 52
