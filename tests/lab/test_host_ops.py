"""What a system under test does on a lab's host changes that host, and no other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import WITHIN_S

pytestmark = pytest.mark.lab

PROGRAM = Path(__file__).with_name("host_ops_program.py")


def test_changes_and_readings_are_of_the_host_itself() -> None:
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert said[0] == {"forwarding": ["1", "0"]}
    assert [str(one["refused"]).partition(";")[0] for one in said[1:4]] == [
        "kernel/hostname is not a setting of a host's network",
        "net/../kernel/hostname is not a setting of a host's network",
        "/proc/sys/net/ipv4/no_such_setting cannot be set to x: No such file or directory",
    ]
    assert said[4]["routes"][:4] == ["10.82.0.0/24", "via", "10.81.0.1", "dev"]
    assert said[5] == {"routes": []}
    assert said[6] == {"interfaces": [["lan", "lo", "wan"], ["lo", "wan"]]}
