"""A Ray cluster of real nodes on this machine, each with a network, processes and shared memory of its own.

Every node is `ray start --block` in namespaces (network, mounts, processes), joined to a bridge by a veth pair. The
first one is the head. `ray stop` is never used: it ends each Ray of the machine by name. The end of a node's first
process ends all of its others, which is how nodes are killed here.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from waiting import until

HEAD_PORT = 6379
STORE_BYTES = 78_643_200
"""Ray's minimum for the memory of a node's objects."""
MAX_STARTING = 4
"""Nodes that start at once. Each takes two seconds of a CPU, and gives up where it has to wait for thirty."""
_NODE = """
mount -t tmpfs -o size=256m tmpfs /dev/shm
until ip link set eth0 up 2>/dev/null; do sleep 0.02; done
ip link set lo up
ip address add $ADDRESS/16 dev eth0
"$@" &
while :; do wait; sleep 1; done
"""


@dataclass
class Node:
    """One node: its first process, whose namespaces are the node's, and its own folder."""

    number: int
    folder: Path
    address: str
    holder: subprocess.Popen[bytes]

    @property
    def first_pid(self) -> int:
        """The node's process 1, by its number on this machine."""
        return _only_child(self.holder.pid)

    def argv(self, *words: str) -> list[str]:
        """A command within the node."""
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        spaces = ["--net", "--mount", "--pid", f"--wd={Path.cwd()}"]
        return ["nsenter", "--target", str(self.first_pid), *user, *spaces, "--", *words]

    def pids(self) -> list[int]:
        """Its processes that live, by their numbers on this machine."""
        own = Path(f"/proc/{self.first_pid}/ns/pid").readlink()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and (entry / "ns/pid").readlink() == own:
                    found.append(int(entry.name))
            except OSError:
                continue  # it has ended
        return found

    def commands(self) -> list[str]:
        """The command lines of its processes."""
        lines = []
        for pid in self.pids():
            try:
                lines.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip())
            except OSError:
                continue
        return lines

    def kill_ray(self) -> None:
        """End all of its processes but the first one: the host stays, and refuses connections."""
        for pid in self.pids():
            if pid != self.first_pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """End all of its processes at once, and with them its network: the host is gone without a word."""
        os.kill(self.first_pid, signal.SIGKILL)
        self.holder.wait()

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to each of its processes."""
        for pid in self.pids():
            os.kill(pid, number)


@dataclass
class RayNodes:
    """The cluster: its nodes, head first."""

    nodes: list[Node]
    bridge: subprocess.Popen[bytes]

    @property
    def head(self) -> str:
        """HEAD:PORT, as drivers name the cluster."""
        return f"{self.nodes[0].address}:{HEAD_PORT}"

    def set_link(self, node: Node, state: str) -> None:
        """Cut the node's link ("down") or join it again ("up"): no side receives a reset."""
        subprocess.run([*_inside(self.bridge.pid), "ip", "link", "set", f"v{node.number}", state], check=True)


@contextmanager
def ray_nodes(count: int, python: Path) -> Iterator[RayNodes]:
    """A cluster of `count` nodes with the `ray` that stands beside this Python; the head is the first of them. Their
    folder's path is short: that of a socket has 107 bytes at most."""
    space = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    holder = ["unshare", *space, "--net", "sleep", "infinity"]
    with TemporaryDirectory(prefix="ray-", dir="/tmp") as name, subprocess.Popen(holder) as bridge:
        cluster, started = RayNodes([], bridge), list[Node]()
        ray = python.parent / "ray"

        def start(number: int) -> None:
            started.append(_start(cluster, Path(name), ray, number))
            cluster.nodes.append(started[-1])

        try:
            own = Path("/proc/self/ns/net").readlink()
            until(lambda: Path(f"/proc/{bridge.pid}/ns/net").readlink() != own)
            for words in ("link set lo up", "link add br0 type bridge", "link set br0 up"):
                subprocess.run([*_inside(bridge.pid), "ip", *words.split()], check=True)
            start(0)
            _await_start(started[0])
            for number in range(1, count):
                if number > MAX_STARTING:
                    _await_start(started[number - MAX_STARTING])
                start(number)
            for node in started:
                _await_start(node)
            yield cluster
        finally:
            for node in started:
                if node.holder.poll() is None:
                    node.kill()
            bridge.kill()


def _start(cluster: RayNodes, folder: Path, ray: Path, number: int) -> Node:
    own = folder / str(number)
    (own / "home").mkdir(parents=True)
    address = f"10.77.{number // 250}.{number % 250 + 1}"
    role = ["--head", f"--port={HEAD_PORT}", "--include-dashboard=false"]
    if number:
        role = [f"--address={cluster.head}"]
    options = [
        f"--node-ip-address={address}", f"--temp-dir={own}/ray", "--num-cpus=0",
        f"--object-store-memory={STORE_BYTES}", "--disable-usage-stats", "--include-log-monitor=false",
    ]  # fmt: skip
    # Beside other tests, workers of niceness 15 would wait for minutes.
    environment = {**_clean_environment(), "ADDRESS": address, "HOME": str(own / "home"), "RAY_worker_niceness": "0"}
    environment.pop("XDG_CACHE_HOME", None)
    spaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    argv = [*spaces, "sh", "-ec", _NODE, "sh", str(ray), "start", "--block", *role, *options]
    with (own / "ray.log").open("wb") as log:
        holder = subprocess.Popen(
            [*_inside(cluster.bridge.pid), *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
        )
    node = Node(number, own, address, holder)
    try:
        until(lambda: _is_apart(node, cluster.bridge.pid), lambda: _log(node))
        words = f"link add v{number} type veth peer name eth0 netns {node.first_pid}"
        for line in (words, f"link set v{number} master br0 up"):
            subprocess.run([*_inside(cluster.bridge.pid), "ip", *line.split()], check=True)
    except BaseException:
        holder.kill()
        raise
    return node


def _inside(pid: int) -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    return ["nsenter", "--target", str(pid), *user, "--net", "--"]


def _is_apart(node: Node, bridge: int) -> bool:
    try:
        return Path(f"/proc/{node.first_pid}/ns/net").readlink() != Path(f"/proc/{bridge}/ns/net").readlink()
    except (OSError, IndexError):
        return False


def _only_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _await_start(node: Node) -> None:
    def has_started() -> bool:
        log = _log(node)
        assert node.holder.poll() is None and "Traceback" not in log, log
        return "Ray runtime started" in log

    until(has_started, lambda: _log(node))


def _log(node: Node) -> str:
    return (node.folder / "ray.log").read_text(errors="replace")


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHON"))}


def run_on(node: Node, words: Sequence[str], **more: str) -> subprocess.Popen[str]:
    """Start a command within a node; its output is text."""
    pipe = subprocess.PIPE
    environment = {**_clean_environment(), **more}
    return subprocess.Popen(node.argv(*words), stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)
