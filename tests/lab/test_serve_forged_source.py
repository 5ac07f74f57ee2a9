"""`serve` and packets whose source address is forged, in a network namespace of its own.

Nothing of a session reaches an address that has not shown to receive there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest

from leadline.agents import binary
from waiting import WITHIN_S

PROGRAM = str(Path(__file__).with_name("forged_source.py"))


def outcome(work: dict[str, Any]) -> dict[str, Any]:
    """Packets by the host that received them."""
    inside = cli.own_network()
    if inside is None or not cli.LEADLINE.exists():
        pytest.skip("no network namespace can be made here, or the leadline command is not installed")
    agent = binary.agent_binary()
    command = [*inside, sys.executable, PROGRAM, str(agent), json.dumps(work)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "work",
    [
        {"work": "udp", "datagram_bytes": 1400, "rate_pps": 1000.0, "number": None},
        {"work": "rr", "protocol": "udp", "request_bytes": 40, "response_bytes": 60_000},
    ],
    ids=["udp", "rr"],
)
def test_nothing_reaches_a_forged_source(work: dict[str, Any]) -> None:
    found = outcome(work)
    assert found["victim"] == 0
    assert found["others"] == []
    # The session's own address with another port is asked for its nonce, and gets no more than was sent in its name.
    assert found["near"] <= found["near_asked"]
    assert found["own"] > 200 * 1000
