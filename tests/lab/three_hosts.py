"""Three hosts, reached by a real launcher, and a command on them: three_hosts.py LAUNCHER FOLDER COMMAND...

A client, a gateway and a server, each with a network, and a management network to this process. LAUNCHER is `ssh` (a
real sshd on each), `exec` (nsenter) or `kubectl` (a stand-in that finds pods and runs commands in them). `@HOSTS@` in
the command becomes the inventory. A last line of stdout says what was left on the hosts. Run as root in a network
of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sshd import PORT, Keys

MAX_END_S = 60
"""After a cut network: an agent that hears nothing ends by itself within half of this."""
NAMES = ("gateway", "server", "client1")
ADDRESSES = {"gateway": "10.81.0.1", "server": "10.82.0.2", "client1": "10.81.0.2"}
KUBECTL = """#!/bin/sh
# kubectl get pods -o json; kubectl exec -i -n NAMESPACE POD -- COMMAND...
[ "$1" = get ] && exec cat "$FOLDER/pods.json"
[ "$1 $2 $3 $4" = "exec -i -n load" ] && [ "$6" = -- ] || { echo "kubectl: $*" >&2; exit 2; }
[ -e "$FOLDER/$5.pid" ] || { echo "Error from server (NotFound): pods \\"$5\\" not found" >&2; exit 1; }
pod=$5; shift 6
exec env XDG_CACHE_HOME="$FOLDER/cache-$pod" nsenter --net=/proc/$(cat "$FOLDER/$pod.pid")/ns/net "$@"
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def on(pid: int, *words: str) -> list[str]:
    return ["nsenter", f"--net=/proc/{pid}/ns/net", *words]


@contextmanager
def hosts(folder: Path) -> Iterator[dict[str, int]]:
    """The hosts' first processes, by which their networks are found; they end with the block."""
    with ExitStack() as stack:
        pids = {}
        for name in NAMES:
            held = stack.enter_context(
                subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE)
            )
            stack.callback(held.terminate)
            assert held.stdout is not None and held.stdout.readline()
            pids[name] = held.pid
            (folder / f"{name}.pid").write_text(str(held.pid))
        for number, name in enumerate(NAMES, 1):
            cable(f"m{number}", f"10.90.{number}.1", pids[name], f"10.90.{number}.2")
            subprocess.run(on(pids[name], "ip", "link", "set", "lo", "up"), check=True)
        join(pids["client1"], "10.81.0.2", pids["gateway"], "10.81.0.1", "wan")
        join(pids["gateway"], "10.82.0.1", pids["server"], "10.82.0.2", "lan")
        subprocess.run(on(pids["client1"], "ip", "route", "add", "10.82.0.0/24", "via", "10.81.0.1"), check=True)
        subprocess.run(on(pids["server"], "ip", "route", "add", "10.81.0.0/24", "via", "10.82.0.1"), check=True)
        forward = "echo 1 >/proc/sys/net/ipv4/ip_forward"
        subprocess.run(on(pids["gateway"], "sh", "-c", forward), check=True)
        yield pids


def cable(near: str, address: str, pid: int, far_address: str) -> None:
    """A cable from here to a host."""
    ip("link", "add", "name", near, "type", "veth", "peer", "name", "mgmt", "netns", str(pid))
    ip("addr", "add", f"{address}/24", "dev", near)
    ip("link", "set", near, "up")
    subprocess.run(on(pid, "ip", "addr", "add", f"{far_address}/24", "dev", "mgmt"), check=True)
    subprocess.run(on(pid, "ip", "link", "set", "mgmt", "up"), check=True)


def join(pid: int, address: str, other: int, other_address: str, name: str) -> None:
    """A cable between two hosts."""
    ip("link", "add", "name", "near", "netns", str(pid), "type", "veth", "peer", "name", "far", "netns", str(other))
    for owner, end, its in ((pid, "near", address), (other, "far", other_address)):
        subprocess.run(on(owner, "ip", "link", "set", end, "name", name), check=True)
        subprocess.run(on(owner, "ip", "addr", "add", f"{its}/24", "dev", name), check=True)
        subprocess.run(on(owner, "ip", "link", "set", name, "up"), check=True)


def inventory(launcher: str, folder: Path, pids: dict[str, int], stack: ExitStack) -> str:
    """What `--hosts` is given; the hosts are ready then."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    if launcher == "kubectl":
        (programs / "kubectl").write_text(KUBECTL)
        (programs / "kubectl").chmod(0o755)
        items = [
            {
                "metadata": {"name": name, "namespace": "load"},
                "status": {"phase": "Running", "podIP": ADDRESSES[name]},
            }
            for name in NAMES
        ]
        (folder / "pods.json").write_text(json.dumps({"kind": "List", "items": items}))
        asking = [str(programs / "kubectl"), "get", "pods", "-o", "json"]
        named = {**os.environ, "FOLDER": str(folder)}
        listed = subprocess.run(asking, capture_output=True, check=True, env=named)
        (folder / "hosts.json").write_bytes(listed.stdout)
        return str(folder / "hosts.json")
    listed_hosts = []
    keys = Keys.make(folder) if launcher == "ssh" else None
    for number, name in enumerate(NAMES, 1):
        where = {"exec": f"env XDG_CACHE_HOME={folder}/cache-{name} nsenter --net=/proc/{pids[name]}/ns/net --"}
        if keys is not None:
            server = keys.start_server(f"10.90.{number}.2", *on(pids[name]))
            stack.callback(server.wait)
            stack.callback(server.terminate)
            where = {"ssh": f"root@10.90.{number}.2:{PORT}"}
        listed_hosts.append({"name": name, **where, "address": ADDRESSES[name]})
    if keys is not None:
        keys.write_client()
    (folder / "hosts.yaml").write_text(json.dumps({"hosts": listed_hosts}))
    return str(folder / "hosts.yaml")


def state(pids: dict[str, int]) -> dict[str, object]:
    """What a host has that a run could leave: routes, addresses, settings; and processes of agents anywhere."""
    found: dict[str, object] = {}
    for name, pid in pids.items():
        routes = subprocess.run(on(pid, "ip", "-o", "route"), capture_output=True, text=True, check=True).stdout
        links = subprocess.run(on(pid, "ip", "-o", "-br", "addr"), capture_output=True, text=True, check=True).stdout
        forward = subprocess.run(
            on(pid, "cat", "/proc/sys/net/ipv4/ip_forward"), capture_output=True, check=True
        ).stdout
        found[name] = [routes.splitlines(), [line.split() for line in links.splitlines()], forward.decode()]
        inode = Path(f"/proc/{pid}/ns/net").stat().st_ino
        found[f"processes of {name}"] = sorted(_agents_in(inode))
    return found


def _agents_in(network: int) -> Iterator[str]:
    """The programs in a network that are neither its first process nor the SSH server."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "ns" / "net").stat().st_ino == network:
                command = (process / "cmdline").read_bytes().split(b"\0")[0].decode()
                if command and not command.startswith("sshd") and Path(command).name not in ("sleep", "sshd"):
                    yield Path(command).name
        except OSError:
            continue


def cut(command: subprocess.Popen[bytes], folder: Path, for_s: float) -> None:
    """Pull the client's management cable once the load runs, and put it back after this time."""
    while command.poll() is None:
        journals = list((folder / "runs").glob("*/journal.ndjson"))
        if journals and '"type":"started"' in journals[0].read_text():
            break
        time.sleep(0.1)
    near = f"m{NAMES.index('client1') + 1}"
    ip("link", "set", near, "down")
    time.sleep(for_s)
    ip("link", "set", near, "up")


def main(launcher: str, folder: Path, argv: Sequence[str]) -> int:
    """Build, run, look, take down; returns the command's status."""
    with ExitStack() as stack, hosts(folder) as pids:
        given = inventory(launcher, folder, pids, stack)
        before = state(pids)
        environment = {**os.environ, "FOLDER": str(folder), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        words = [word.replace("@HOSTS@", given) for word in argv]
        with subprocess.Popen(words, env=environment) as command:
            if (cut_s := os.environ.get("CUT_S")) is not None:
                cut(command, folder, float(cut_s))
            status = command.wait()
        deadline_s = time.monotonic() + (MAX_END_S if cut_s is not None else 0)
        while (after := state(pids)) != before and time.monotonic() < deadline_s:
            time.sleep(0.5)
        left = {name: [before[name], after[name]] for name in before if before[name] != after[name]}
        (folder / "left.json").write_text(json.dumps(left))
        stack.close()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
