"""Commands without a HOST or URL, real: they measure this machine's loopback by a server of their own, which ends with
them whatever ends them.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
import started_command

from in_process import leadline
from waiting import WITHIN_S, until

pytestmark = pytest.mark.agent

LINE = "Measuring this machine's loopback: no HOST was given"
ENDED_BY_COUNT = {
    "tcp": ["--bytes", "1MiB", "-d", "60s"],
    "udp": ["--rate", "1mbit", "-n", "20", "-d", "60s"],
    "rr": ["-n", "20", "-d", "60s", "--timeout", "60s"],
    "http": ["-n", "20", "-d", "60s", "--no-calibrate"],
    "load-latency": ["-d", "2s", "--warmup", "0"],
}


@pytest.mark.parametrize(("kind", "options"), ENDED_BY_COUNT.items(), ids=ENDED_BY_COUNT)
def test_document_names_the_target_that_was_used(kind: str, options: list[str]) -> None:
    ended = leadline(kind, *options, "--json")
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    target = document["target"]
    if kind == "http":
        assert target.startswith("http://127.0.0.1:") and target.endswith("/")
        assert document["metrics"]["requests"]["value"] == 20
    else:
        assert target == "127.0.0.1"
    assert document["errors"] == {}
    assert ended.stderr.splitlines()[0] == f"leadline: {LINE}".replace("HOST", "URL" if kind == "http" else "HOST")


@pytest.mark.parametrize("command", ["rr", "ladder"])
def test_first_line_says_what_is_measured(command: str) -> None:
    options = ENDED_BY_COUNT["rr"] if command == "rr" else ["--layers", "rr", "-d", "300ms"]
    ended = leadline(command, *options)
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (0, LINE), ended.stderr


def test_ladder_reaches_every_layer_of_its_own_server() -> None:
    ended = leadline("ladder", "-d", "300ms", "--json")
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    (ladder,) = document["ladders"]
    assert document["target"] == "127.0.0.1"
    assert [layer["error"] for layer in ladder["layers"]] == [None] * 8


def test_layout_of_another_tool_has_its_own_first_line() -> None:
    shown = leadline("http", *ENDED_BY_COUNT["http"], "--format", "wrk")
    assert shown.stdout.splitlines()[0].startswith("Running ")
    assert "loopback" in shown.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("tcp --bind 127.0.0.1", "--bind without a HOST"),
        ("tcp --peer iperf3", "--peer iperf3 without a HOST"),
        ("udp --port 6000", "--port without a HOST"),
        ("http --proxy http://192.0.2.7:3128/", "--proxy without a URL"),
        ("http --unix-socket server.sock", "--unix-socket without a URL"),
        ("http --no-resume", "--resume without a URL"),
        ("ladder --outside 192.0.2.7", "--outside without a HOST"),
        ("ladder --https-port 443", "--https-port without a HOST"),
    ],
)
def test_option_for_the_way_to_a_host_is_refused(line: str, named: str) -> None:
    ended = leadline(*line.split())
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith(f"leadline: {named}; name the ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_server_ends_with_the_command(number: signal.Signals) -> None:
    argv = [started_command.REAL, "tcp", "-d", "120s", "--rate", "1mbit", "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: len(agents_of(process.pid)) == 2)
        agents = agents_of(process.pid)
        process.send_signal(number)
        _, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL), err
    until(lambda: not any(map(is_running, agents)))


def agents_of(pid: int) -> list[int]:
    """The agents that this process has started: it starts nothing else."""
    tasks = Path("/proc", str(pid), "task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text(encoding="ascii").split()]


def is_running(pid: int) -> bool:
    """Whether the process is there, and is not only waiting for its parent to collect its status."""
    try:
        return Path("/proc", str(pid), "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
