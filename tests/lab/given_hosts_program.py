"""Runs a plan on given hosts, which are network namespaces with files of their own, and compares their states before
and afterwards: given_hosts_program.py SPEC FOLDER, in a network of its own. Prints what it saw as JSON.

A helper of test_given_systems.py. SPEC is JSON: `topology`, `command` (what `leadline` is), `plan`; `prepare`, shell
commands by host, which come first; and `event`, which happens once the system is up: `kill` (the controller, by
SIGKILL), `interrupt` (by SIGINT), `kill-agent` (the gateway's) or nothing. The hosts are named as in a lab. No host
forwards, and none has a route beyond its own networks.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from leadline.agents import agent_binary
from leadline.agents.binary import AGENT_NAME

CABLES = {
    "remote-access": (
        ("client1", "10.81.0.2", "gateway", "10.81.0.1", "wan"),
        ("gateway", "10.82.0.7", "server", "10.82.0.2", "lan"),
        # A network for management, past the gateway.
        ("client1", "10.90.0.1", "server", "10.90.0.2", "mgmt"),
    ),
    "site-to-site": (
        ("client1", "10.84.0.2", "gateway-a", "10.84.0.9", "near"),
        ("gateway-a", "10.81.0.2", "gateway-b", "10.81.0.1", "wan"),
        ("gateway-b", "10.82.0.7", "server", "10.82.0.2", "lan"),
        ("client1", "10.90.0.1", "server", "10.90.0.2", "mgmt"),
    ),
}
# The agent's copy is all that is in a host's /tmp.
HOST = """
mount --make-rprivate / && mount -t tmpfs none "$1" && mkdir -p "$1/${3%/*}" && : > "$1/$3" || exit 1
mount --bind "$2" "$1/$3" && mount --rbind "$1" /tmp || exit 1
echo ready
exec sleep 1000
"""
SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
pid=$(cat "$FOLDER/$2.pid")
exec env XDG_CACHE_HOME=/tmp/cache nsenter --net=/proc/$pid/ns/net --mount=/proc/$pid/ns/mnt sh -c "$3"
"""
STATE = """
ip -o link | cut -d: -f2
{ ip -o -4 route; ip -o -6 route | grep -v ^fe80; } | sed 's/ linkdown//'
cd /proc/sys/net
grep -H "" ipv4/ip_forward ipv4/conf/*/forwarding ipv4/conf/all/accept_redirects ipv6/conf/*/forwarding
find /tmp
"""
LONGEST_S = 150.0


class Hosts:
    """The hosts by name, each held by a process."""

    def __init__(self, folder: Path, topology: str, opened: ExitStack) -> None:
        self.pids: dict[str, int] = {}
        agent = agent_binary()
        copy = f"cache/leadline/agents/{hashlib.sha256(agent.read_bytes()).hexdigest()}/{AGENT_NAME}"
        names = dict.fromkeys(name for cable in CABLES[topology] for name in (cable[0], cable[2]))
        for name in names:
            own = folder / "hosts" / name
            own.mkdir(parents=True)
            argv = ["unshare", "--net", "--mount", "sh", "-c", HOST, "sh", str(own), str(agent), copy]
            process = opened.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
            opened.callback(process.kill)
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            self.pids[name] = process.pid
            (folder / f"{name}.pid").write_text(str(process.pid))
            self.run(name, "ip", "link", "set", "lo", "up")
        for near, near_address, far, far_address, interface in CABLES[topology]:
            ends = ["type", "veth", "peer", "name", interface, "netns", str(self.pids[far])]
            subprocess.run(["ip", "link", "add", "name", interface, "netns", str(self.pids[near]), *ends], check=True)
            for name, address in ((near, near_address), (far, far_address)):
                self.run(name, "ip", "addr", "add", f"{address}/24", "dev", interface)
                self.run(name, "ip", "link", "set", interface, "up")

    def run(self, name: str, *argv: str) -> str:
        """The output of a command on a host."""
        at = f"/proc/{self.pids[name]}/ns"
        inside = ["nsenter", f"--net={at}/net", f"--mount={at}/mnt", *argv]
        return subprocess.run(inside, check=True, capture_output=True, text=True).stdout

    def states(self) -> dict[str, list[str]]:
        """Interfaces, routes, settings and files of each host."""
        return {name: self.run(name, "sh", "-c", STATE).splitlines() for name in self.pids}

    def processes(self) -> dict[int, str]:
        """The processes on all hosts, without those that hold them."""
        spaces = {network_of(pid) for pid in self.pids.values()}
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                pid = int(path.name)
                words = (path / "cmdline").read_bytes()
                if words and network_of(pid) in spaces and pid not in self.pids.values():
                    found[pid] = words.replace(b"\0", b" ").decode(errors="replace").strip()
        return found

    def agents(self, name: str) -> list[int]:
        """The agents' processes on a host, without those of other modes."""
        own = network_of(self.pids[name])
        return [pid for pid, words in self.processes().items() if words.endswith(AGENT_NAME) and network_of(pid) == own]


def network_of(pid: int) -> str:
    """The network namespace of a process."""
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def until(reached: Any, *, alive: Any = lambda: True) -> bool:
    """Wait for a condition; False if `alive` ends first, or it takes too long."""
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        if reached():
            return True
        if not alive():
            return False
        time.sleep(0.02)
    return False


def has_come_up(folder: Path) -> bool:
    """Whether the run's journal says that a test has begun."""
    journals = list((folder / "runs").glob("*/journal.ndjson"))
    return bool(journals) and b'"record":"test-begin"' in journals[0].read_bytes()


@contextmanager
def started(folder: Path, spec: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """`leadline run` on the hosts."""
    (folder / "plan.yaml").write_text(spec["plan"])
    program = folder / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(SSH)
    program.chmod(0o755)
    environment = {**os.environ, "FOLDER": str(folder), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    argv = [*spec["command"], "run", str(folder / "plan.yaml"), "--json", "--out", str(folder / "runs")]
    with (
        (folder / "stdout").open("w") as out,
        (folder / "stderr").open("w") as err,
        subprocess.Popen(argv, stdout=out, stderr=err, text=True, env=environment) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def main(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run the plan, and see what is left."""
    with ExitStack() as opened:
        hosts = Hosts(folder, spec["topology"], opened)
        for name, script in spec.get("prepare", {}).items():
            hosts.run(name, "sh", "-ec", script)
        before = hosts.states()
        changed: dict[str, list[str]] = {}
        with started(folder, spec) as run:
            if spec.get("event"):
                if until(lambda: has_come_up(folder), alive=lambda: run.poll() is None):
                    changed = hosts.states()
                happen(spec["event"], run, hosts)
            code = run.wait()
        # An agent whose controller was killed takes its time.
        left_none = until(lambda: not hosts.processes())
        after = hosts.states()
        return {
            "code": code,
            "stdout": (folder / "stdout").read_text(),
            "stderr": (folder / "stderr").read_text(),
            "before": before,
            "changed": changed,
            "after": after,
            "processes": [] if left_none else list(hosts.processes().values()),
        }


def happen(event: str, run: subprocess.Popen[str], hosts: Hosts) -> None:
    """The event that a spec asks for."""
    match event:
        case "kill":
            run.kill()
        case "interrupt":
            run.send_signal(signal.SIGINT)
        case "kill-agent":
            for pid in hosts.agents("gateway"):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]), Path(sys.argv[2]))))
