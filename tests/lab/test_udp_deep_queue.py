"""The UDP receiver behind a queue that holds what is sent for longer than a receiver waits in silence: late, not lost.

A network namespace of its own has a loopback interface that lets out 200 kbit/s (tbf), in both directions and for the
session's messages as well. Nothing is dropped: the queue has room for all.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import cli_runs as cli
import pytest

from leadline.agents import binary
from waiting import WITHIN_S

pytestmark = [
    pytest.mark.agent,
    pytest.mark.takes(10),
    pytest.mark.skipif(shutil.which("tc") is None, reason="tc is not installed"),
]

DURATION = "500ms"
# A datagram of 100 bytes has 142 on the wire, and 1,250 are sent: the last one arrives 6.5 s after the sender's end.
PROGRAM = r"""
import json, subprocess, sys

AGENT, LEADLINE, DURATION = sys.argv[1:]
subprocess.run(["ip", "link", "set", "lo", "mtu", "1500", "up"], check=True)
shaper = ["tbf", "rate", "200kbit", "burst", "4kb", "limit", "4mb"]
if subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", *shaper]).returncode:
    sys.exit(77)
server = subprocess.Popen([AGENT, "serve", "--bind", "127.0.0.1", "--no-http"], stdout=subprocess.PIPE)
try:
    server.stdout.readline()
    way = ["--rate", "2mbit", "-l", "100", "-d", DURATION, "--json"]
    done = subprocess.run([LEADLINE, "udp", "127.0.0.1", *way], stdout=subprocess.PIPE)
    queue = json.loads(subprocess.check_output(["tc", "-s", "-j", "qdisc", "show", "dev", "lo"]))
    print(json.dumps({"drops": queue[0]["drops"], "found": json.loads(done.stdout)}))
finally:
    server.kill()
"""


def test_what_a_deep_queue_holds_at_the_end_is_late_and_not_lost() -> None:
    inside = cli.own_network()
    if inside is None or not cli.LEADLINE.exists():
        pytest.skip("no network namespace can be made here, or the leadline command is not installed")
    command = [*inside, sys.executable, "-c", PROGRAM, str(binary.agent_binary()), str(cli.LEADLINE), DURATION]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    if done.returncode == 77:
        pytest.skip("this kernel has no tbf")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    figures = {name: metric["value"] for name, metric in outcome["found"]["metrics"].items()}
    assert outcome["drops"] == 0
    assert (figures["received"], figures["lost"]) == (figures["sent"], 0)
    assert (figures["outstanding"], figures["loss_bursts"], figures["lost_ratio"]) == (0, 0, 0)
