"""Operations on a given host go through its agent alone, and `close` puts the host back as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from waiting import WITHIN_S

pytestmark = pytest.mark.lab

PROGRAM = Path(__file__).with_name("remote_ops_program.py")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    argv = [sys.executable, str(PROGRAM), str(tmp_path_factory.mktemp("remote") / "trial")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_operations_through_an_agent(said: list[dict[str, Any]]) -> None:
    results = {key: value for line in said if "refused" not in line for key, value in line.items()}
    assert results["written"] == [True, "600"]
    assert results["replaced"] == [True, "640"]
    assert (results["folder"], results["lines"], results["absent"]) == ("700", ["second"], [])
    assert (results["status"], results["output"], results["killed"]) == (3, "out\n", -9)
    assert results["found"] == [True, False, False, True]
    assert results["agent"] is True
    assert results["forwarding"] == ["1", "0"], "the host's own setting changes, and no other's"
    assert [route.split()[0] for route in results["routes"]] == ["10.98.0.0/24", "10.99.0.0/24"]
    assert results["log"] == ["up"]
    assert results["closed"][:2] == ["0", False]
    assert results["closed"][2].split() == ["10.99.0.0/24", "via", "10.81.0.2", "dev", "wan"], (
        "the earlier route is back"
    )


def test_what_a_host_refuses_is_said_in_a_line(said: list[dict[str, Any]]) -> None:
    refused = [(line["refused"], line["message"]) for line in said if "refused" in line]
    wanted = [
        ("SutFailed", "absent on gateway cannot be read: no such file"),
        ("MissingBinary", "no-such-program is not installed or not executable on gateway"),
        ("SutFailed", "sleep 60 on gateway did not end in 0.2 s"),
        ("LabError", "kernel/hostname is not a setting of a host's network"),
        ("LabError", "net/../kernel/hostname is not a setting of a host's network"),
        ("LabError", "net/ipv4/no_such_setting on gateway cannot be set to x"),
        ("LabError", "gateway is in 10.82.0.0/24 itself"),
        ("LabError", "gateway is in 10.82.0.0/24 itself"),
        ("LabError", "route 10.97.0.0/24 via 192.0.2.1 on gateway"),
        ("LabError", "10.97.0.0/33 is not a network"),
    ]
    assert [
        (kind, text in message and "\n" not in message)
        for (kind, message), (_, text) in zip(refused, wanted, strict=True)
    ] == [(kind, True) for kind, _ in wanted]
