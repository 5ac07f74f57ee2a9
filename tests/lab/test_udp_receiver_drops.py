"""The UDP receiver beside the kernel's own counters: what the socket had no room for is lost, to the datagram.

A network namespace of its own holds both ends and nothing else, so that /proc/net/snmp counts this flow alone. The
server is stopped (SIGSTOP) in the middle of the flow until its socket has overflowed.
"""

from __future__ import annotations

import json
import subprocess
import sys

import cli_runs as cli
import pytest

from leadline.agents import binary
from waiting import WITHIN_S

pytestmark = [pytest.mark.agent, pytest.mark.takes(8)]

SENT = 2000
# Datagrams of 32,000 bytes: a socket's buffer holds a few hundred of them.
PROGRAM = r"""
import json, signal, subprocess, sys, time

AGENT, LEADLINE, NUMBER = sys.argv[1:]


def counters():
    with open("/proc/net/snmp") as lines:
        names, values = [line.split()[1:] for line in lines if line.startswith("Udp:")]
    return dict(zip(names, map(int, values)))


def until(reached):
    # Whether it was so before the load had sent everything.
    while not reached(counters()):
        if counters()["OutDatagrams"] - before["OutDatagrams"] >= int(NUMBER):
            return False
        time.sleep(0.005)
    return True


def overflown():
    # Whether the socket overflowed in a load; one is over before where this program stalls for all of it.
    began = until(lambda now: now["InDatagrams"] - before["InDatagrams"] >= 50)
    server.send_signal(signal.SIGSTOP)
    found = began and until(lambda now: now["RcvbufErrors"] - before["RcvbufErrors"] >= 50)
    server.send_signal(signal.SIGCONT)
    return found


subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
server = subprocess.Popen([AGENT, "serve", "--bind", "127.0.0.1", "--no-http"], stdout=subprocess.PIPE)
try:
    server.stdout.readline()
    way = ["-n", NUMBER, "--rate", "128mbit", "-l", "32000", "-d", "60s", "--json"]
    has_overflown = False
    while not has_overflown:
        before = counters()
        load = subprocess.Popen([LEADLINE, "udp", "127.0.0.1", *way], stdout=subprocess.PIPE)
        has_overflown = overflown()
        found = json.loads(load.communicate()[0])
    kernel = {name: count - before[name] for name, count in counters().items()}
    print(json.dumps({"kernel": kernel, "found": found}))
finally:
    server.kill()
"""


@pytest.mark.machine_rules
def test_what_the_socket_dropped_is_the_receivers_loss() -> None:
    inside = cli.own_network()
    if inside is None or not cli.LEADLINE.exists():
        pytest.skip("no network namespace can be made here, or the leadline command is not installed")
    agent = binary.agent_binary()
    command = [*inside, sys.executable, "-c", PROGRAM, str(agent), str(cli.LEADLINE), str(SENT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    kernel, metrics = outcome["kernel"], outcome["found"]["metrics"]
    sent, received, lost = (metrics[name]["value"] for name in ("sent", "received", "lost"))
    # What is sent besides introduces the flow, in both directions, and all of it arrives.
    assert (sent, kernel["OutDatagrams"] - sent) == (SENT, kernel["InDatagrams"] - received)
    assert (lost, received) == (kernel["RcvbufErrors"], SENT - kernel["RcvbufErrors"])
    assert lost >= 50
    assert (kernel["InErrors"], kernel["SndbufErrors"]) == (kernel["RcvbufErrors"], 0)
    reasons = {reason["code"]: reason["text"] for reason in outcome["found"]["validity"]["reasons"]}
    assert f"{lost:,.0f} datagrams arrived and were dropped by the socket" in reasons["receiver-socket-drops"]
