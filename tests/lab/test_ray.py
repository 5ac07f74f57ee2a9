"""Agents on the nodes of a real Ray cluster, each of which is a host of its own here (`ray_nodes`).

Ray is in an environment of its own, which `make test` installs: it is larger than all else together. What happens on
the head is in `ray_program`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest
from ray_nodes import Node, RayNodes, ray_nodes, run_on

from leadline.agents.binary import agent_binary
from leadline.agents.launchers.ray import PYTHON_VARIABLE, RayCluster
from leadline.errors import InputError, LeadlineError, MissingBinary
from waiting import WITHIN_S, until

PYTHON = Path(__file__).resolve().parents[2] / ".venv-ray" / "bin" / "python"
PROGRAM = Path(__file__).with_name("ray_program.py")
TESTS = PROGRAM.parents[1]
PATHS = os.pathsep.join((str(TESTS.parent / "python"), str(TESTS), str(PROGRAM.parent)))
BRIEFLY_S = 3.0
"""How long a network is cut that comes back: an agent is lost after ten seconds."""
pytestmark = [
    pytest.mark.skipif(not PYTHON.exists(), reason="Ray is not installed (make .venv-ray/.installed)"),
    pytest.mark.lab,
    pytest.mark.agent,
    pytest.mark.takes(30),
]


class Controller:
    """A part of `ray_program` on the head. It lives until its last line, or a signal."""

    def __init__(self, cluster: RayNodes, part: str, hosts: int, python: Path = PYTHON) -> None:
        self.node = cluster.nodes[0]
        self.log = self.node.folder / "driver.log"
        words = [str(python), str(PROGRAM), part, cluster.head, str(hosts), str(self.log)]
        variables = {PYTHON_VARIABLE: str(PYTHON)} if python != PYTHON else {}
        self.process = run_on(self.node, words, PYTHONPATH=PATHS, LEADLINE_AGENT=str(agent_binary()), **variables)
        self._lines: Queue[str] = Queue()
        self.errors = ""
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read_lines, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def line(self, key: str) -> dict[str, Any]:
        """The next line with this key; others are left out."""
        while True:
            try:
                text = self._lines.get(timeout=WITHIN_S)
            except Empty:
                pytest.fail(f"no line with {key}: {self.errors}")
            assert text, f"it ended before a line with {key}: {self.errors}"
            found: dict[str, Any] = json.loads(text)
            assert key == "error" or "error" not in found, found
            if key in found:
                return found

    def go_on(self) -> None:
        """Let it do the next part."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        """A signal for the program itself: this process's child only stands before it."""
        (pid,) = [pid for pid in self.node.pids() if _is_program(pid)]
        os.kill(pid, number)

    def wait(self) -> int:
        """Its exit code; nothing of Ray is in its output."""
        code = self.process.wait(WITHIN_S)
        for reader in self._readers:
            reader.join(WITHIN_S)
        return code

    def _read_lines(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()


def _is_program(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[1:2] == [str(PROGRAM).encode()]


@contextmanager
def controller(cluster: RayNodes, part: str, hosts: int, python: Path = PYTHON) -> Iterator[Controller]:
    """A controller that does not outlive the block."""
    started = Controller(cluster, part, hosts, python)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.stdin.close()  # type: ignore[union-attr]
            started.process.kill()
        started.wait()


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    """The head and two nodes."""
    with ray_nodes(3, PYTHON) as nodes:
        yield nodes


def commands(node: Node) -> list[str]:
    """The actors and agents of a node."""
    return [line for line in node.commands() if line.startswith("ray::Host") or "leadline-agent" in line]


def files(node: Node) -> list[Path]:
    """What there is in the home of a node's user, but for what Ray itself keeps there."""
    found = (node.folder / "home").rglob("*")
    return [path for path in found if path.is_file() and ".config/ray" not in str(path)]


def assert_nothing_left(cluster: RayNodes) -> None:
    """No process on any node, and no file but the agent in its cache."""
    for node in cluster.nodes:
        until(lambda node=node: not commands(node), lambda node=node: commands(node))  # type: ignore[misc]
        assert all(path.name == "leadline-agent" for path in files(node)), files(node)


PLAN = """
name: nodes
topology: remote-access
sut: {kind: given, label: the network of the cluster}
tests:
  - {name: rr, kind: rr, number: 200, duration: 60s}
"""


def run_leadline(node: Node, folder: Path, *words: str) -> dict[str, Any]:
    """The document that the command prints on a node."""
    argv = ["env", f"--chdir={folder}", str(PYTHON.with_name("leadline")), *words, "--json"]
    with run_on(node, argv, PYTHONPATH=PATHS, LEADLINE_AGENT=str(agent_binary())) as command:
        output, errors = command.communicate(timeout=WITHIN_S)
    assert command.returncode == 0, errors
    found: dict[str, Any] = json.loads(output)
    return found


@pytest.mark.decided_by("the bytes that the gateway's interfaces counted")
def test_plan_runs_on_nodes_and_leaves_nothing(cluster: RayNodes, tmp_path: Path) -> None:
    """Of three hosts one is the head, because no other is left."""
    digest = hashlib.sha256(agent_binary().read_bytes()).hexdigest()
    (tmp_path / "plan.yaml").write_text(PLAN)
    hosts = ["--hosts", f"ray://{cluster.head}?hosts=3"]
    document = run_leadline(cluster.nodes[0], tmp_path, "run", "plan.yaml", *hosts, "--out", "runs")
    assert {test["status"] for trial in document["trials"] for test in trial["tests"]} == {"done"}
    figures = {summary["test"]: summary["metrics"] for summary in document["summaries"]}
    assert figures["rr"]["transactions"]["value"] == 200
    for node in cluster.nodes:
        (agent,) = files(node)
        assert agent == node.folder / f"home/.cache/leadline/agents/{digest}/leadline-agent"
        assert hashlib.sha256(agent.read_bytes()).hexdigest() == digest
        assert stat.S_IMODE(agent.stat().st_mode) == 0o755
    assert_nothing_left(cluster)


@pytest.mark.full_matrix
def test_doctor_shows_each_node(cluster: RayNodes, tmp_path: Path) -> None:
    found = run_leadline(cluster.nodes[1], tmp_path, "doctor", "--hosts", f"ray://{cluster.head}?hosts=3")
    assert [(host["name"], host["reachable"]) for host in found["hosts"]] == [
        (f"ray://{cluster.head}-{number}", True) for number in (1, 2, 3)
    ]
    assert_nothing_left(cluster)


def test_interrupted_controller_leaves_nothing(cluster: RayNodes) -> None:
    with controller(cluster, "watch_losses", 2) as program:
        assert sorted(program.line("hosts")["hosts"]) == [node.address for node in cluster.nodes[1:]], "not the head"
        program.line("started")
        assert [len(commands(node)) for node in cluster.nodes] == [0, 2, 2], [commands(one) for one in cluster.nodes]
        program.send(signal.SIGINT)
        assert program.wait() != 0
        assert program.errors.endswith("KeyboardInterrupt\n")
    assert_nothing_left(cluster)


def test_too_few_nodes_are_one_line(cluster: RayNodes) -> None:
    with controller(cluster, "watch_losses", 9) as program:
        found = program.line("error")
        assert found["exit_code"] == 2
        assert found["error"] == (
            f"the Ray cluster at {cluster.head} has 3 nodes alive, and 9 hosts need one each; "
            "start more nodes, or ask for ?hosts=3"
        )
        program.wait()


def test_killed_node_is_named_and_a_killed_controller_leaves_nothing(cluster: RayNodes) -> None:
    """The controller has no Ray, and the driver no Leadline: the cluster's Python runs it."""
    with controller(cluster, "watch_losses", 2, Path(sys.executable)) as program:
        program.line("started")
        program.go_on()
        program.line("watching")
        victim = cluster.nodes.pop()
        victim.kill_ray()
        lost = program.line("lost")
        assert lost["lost"] == victim.address
        assert re.search(rf"its Ray (node|actor on) {victim.address} (is gone|died): ", lost["reason"]), lost
        program.go_on()
        assert program.line("living")["living"] == [cluster.nodes[1].address]
        program.send(signal.SIGKILL)
        assert (program.wait() != 0, program.errors) == (True, "")
    assert_nothing_left(cluster)
    until(lambda: not [line for line in cluster.nodes[0].commands() if "ray_driver" in line])


def open_cluster(head: str | None, hosts: int = 1) -> LeadlineError:
    """The error of a cluster that cannot be used."""

    async def enter() -> None:
        async with RayCluster(head, hosts):
            pass

    with pytest.raises(LeadlineError) as caught:
        asyncio.run(enter())
    return caught.value


def test_port_that_is_no_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, str(PYTHON))
    error = open_cluster("127.0.0.1:1")
    assert isinstance(error, InputError) and error.message == (
        "no Ray cluster answers at 127.0.0.1:1: Connection refused"
    )


def test_python_without_ray_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, sys.executable)
    error = open_cluster(None)
    assert error.exit_code == 2 and f"Ray cannot be used by {sys.executable}: No module named 'ray'" in error.message
    monkeypatch.setenv(PYTHON_VARIABLE, "/nonexistent/python")
    assert isinstance(open_cluster(None), MissingBinary)


def test_address_of_environment_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "https://cluster")
    assert "RAY_ADDRESS is 'https://cluster', which is no HEAD:PORT" in open_cluster(None).message


@pytest.mark.full_matrix
@pytest.mark.apart
@pytest.mark.takes(120)
def test_each_fault_is_named() -> None:
    """Six nodes: one is killed with its network, one stopped, one cut off, one loses its actor, one is cut off for
    three seconds, and one has nothing."""
    with ray_nodes(7, PYTHON) as cluster, controller(cluster, "watch_losses", 6) as program:
        program.line("started")
        program.go_on()
        program.line("watching")
        killed, stopped, cut, orphan, briefly, _ = nodes = cluster.nodes[1:]
        cluster.set_link(briefly, "down")
        killed.kill()
        stopped.signal_all(signal.SIGSTOP)
        cluster.set_link(cut, "down")
        for pid in orphan.pids():
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::Host"):
                os.kill(pid, signal.SIGKILL)
        time.sleep(BRIEFLY_S)
        cluster.set_link(briefly, "up")
        lines = [program.line("lost") for _ in range(4)]
        lost = {line["lost"]: line["reason"] for line in lines}
        assert lost.keys() == {node.address for node in (killed, stopped, cut, orphan)}
        assert (
            f"its Ray actor on {orphan.address} died: The actor is dead because its worker process"
            in (lost[orphan.address])
        )
        program.go_on()
        assert sorted(program.line("living")["living"]) == [node.address for node in nodes[4:]]
        program.go_on()
        program.line("given_back")
        assert (program.wait(), program.errors) == (0, "")
        # Agents that hear nothing end by themselves, and so does what ran for a host that is lost.
        until(lambda: not [line for line in commands(cut) if "leadline-agent" in line])
        for node in (orphan, briefly, nodes[-1]):
            until(lambda node=node: not commands(node), lambda node=node: commands(node))  # type: ignore[misc]


@pytest.mark.full_matrix
@pytest.mark.apart
@pytest.mark.takes(300)
def test_fifty_agents_of_which_two_are_lost() -> None:
    with ray_nodes(51, PYTHON) as cluster, controller(cluster, "watch_losses", 50) as program:
        assert len(set(program.line("started")["started"])) == 50
        program.go_on()
        program.line("watching")
        victims = [cluster.nodes[7], cluster.nodes[42]]
        for node in victims:
            node.kill_ray()
        assert {program.line("lost")["lost"] for _ in victims} == {node.address for node in victims}
        program.go_on()
        assert len(program.line("living")["living"]) == 48
        program.go_on()
        program.line("given_back")
        assert (program.wait(), program.errors) == (0, "")
        assert_nothing_left(cluster)
