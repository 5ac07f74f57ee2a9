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
    while not reached(counters()) and counters()["OutDatagrams"] < int(NUMBER):
        time.sleep(0.005)


subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
server = subprocess.Popen([AGENT, "serve", "--bind", "127.0.0.1", "--no-http"], stdout=subprocess.PIPE)
try:
    server.stdout.readline()
    way = ["-n", NUMBER, "--rate", "128mbit", "-l", "32000", "-d", "60s", "--json"]
    load = subprocess.Popen([LEADLINE, "udp", "127.0.0.1", *way], stdout=subprocess.PIPE)
    until(lambda now: now["InDatagrams"] >= 50)
    server.send_signal(signal.SIGSTOP)
    until(lambda now: now["RcvbufErrors"] >= 50)
    server.send_signal(signal.SIGCONT)
    found = json.loads(load.communicate()[0])
    print(json.dumps({"kernel": counters(), "found": found}))
finally:
    server.kill()
"""


def test_what_the_socket_dropped_is_the_receivers_loss() -> None:
    inside = cli.own_network()
    if inside is None or not cli.LEADLINE.exists():
        pytest.skip("no network namespace can be made here, or the leadline command is not installed")
    agent = cli.LEADLINE.with_name("leadline-agent")
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
