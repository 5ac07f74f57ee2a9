"""`leadline observe` of a host over SSH, and how it ends at Ctrl-C: with its totals, and nothing left."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_runs import CliSandbox, Run, open_sandbox
from sshd import needs_sshd

HERE = Path(__file__).resolve().parent
# A network of its own, where no other process uses the ports.
NAMESPACE = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
INSIDE = [*NAMESPACE, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
BUSY = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo counted; exit 7"

pytestmark = [pytest.mark.lab, pytest.mark.apart]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[CliSandbox]:
    with open_sandbox(tmp_path) as opened:
        yield opened


def observe(sandbox: CliSandbox, *arguments: str) -> Run:
    """Start the command on this host."""
    return sandbox.start("observe", *arguments)


def observe_over_ssh(sandbox: CliSandbox, *arguments: str) -> Run:
    """Start the command on a host that is reached over SSH."""
    folder = sandbox.folder / "ssh"
    folder.mkdir()
    wrap = [*INSIDE, sys.executable, str(HERE / "behind_ssh.py"), str(folder)]
    return sandbox.start("observe", "@SSH@", *arguments, wrap=wrap)


def lines_until_interval(run: Run) -> list[str]:
    """What it printed up to the line of its first interval."""
    assert run.process.stdout is not None
    return [run.process.stdout.readline() for _ in range(2)]


def observer(sandbox: CliSandbox) -> int:
    """The process of the command itself, whatever it was started by."""
    words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in sandbox.processes()}
    [pid] = [pid for pid, argv in words.items() if b"observe" in argv and not any(b"@SSH@" in word for word in argv)]
    return pid


@pytest.mark.parametrize(("more", "code"), [((), 0), (("-d", "10min"), 130), (("--soak",), 0)])
def test_ctrl_c_prints_the_totals(sandbox: CliSandbox, more: tuple[str, ...], code: int) -> None:
    run = observe(sandbox, "--interval", "100ms", *more)
    head, first = lines_until_interval(run)
    os.kill(observer(sandbox), signal.SIGINT)
    ended = run.finish()
    assert ended.code == code, ended.err
    assert len(first) == len(head)
    assert "CPUs" in ended.out
    assert "Traceback" not in ended.err
    assert sandbox.left_behind() == []


def test_ctrl_c_ends_a_command_that_did_not_get_it(sandbox: CliSandbox) -> None:
    run = observe(sandbox, "--interval", "100ms", "--", "sh", "-c", "echo began; exec sleep 600")
    assert run.process.stdout is not None
    assert run.process.stdout.readline() == "began\n"
    os.kill(run.process.pid, signal.SIGINT)
    ended = run.finish()
    assert ended.code == 128 + signal.SIGTERM, ended.err
    assert f"signal {signal.SIGTERM.value}" in ended.err
    assert sandbox.left_behind() == []


@needs_sshd
def test_ctrl_c_ends_the_agent_of_another_host(sandbox: CliSandbox) -> None:
    run = observe_over_ssh(sandbox, "--interval", "100ms")
    lines_until_interval(run)
    # As a terminal does: all processes of the command's group get it.
    os.killpg(observer(sandbox), signal.SIGINT)
    ended = run.finish()
    assert ended.code == 0, ended.err
    assert "CPUs" in ended.out
    assert sandbox.left_behind() == []


@needs_sshd
def test_another_host_is_observed_over_ssh(sandbox: CliSandbox) -> None:
    ended = observe_over_ssh(sandbox, "-d", "4s", "--interval", "100ms", "--soak", "--json").finish()
    assert ended.code == 0, ended.err
    document = ended.document
    assert document["schema"] == "leadline.observation/1"
    assert len(document["intervals"]) >= 2
    # That of the server's network, which has nothing else.
    assert [one["name"] for one in document["total"]["interfaces"]] == ["lo"]
    assert document["total"]["interfaces"][0]["rx_packets"] > 0, "the connection itself"
    assert any(one["left"] is not None for one in document["total"]["cpus"])
    assert sandbox.left_behind() == []


@needs_sshd
def test_a_command_of_another_host_has_its_cost_and_its_exit_code(sandbox: CliSandbox) -> None:
    ended = observe_over_ssh(sandbox, "--json", "--", "sh", "-c", BUSY).finish()
    assert ended.code == 7, ended.err
    cost = json.loads(ended.out)["command"]
    assert (cost["code"], cost["signal"]) == (7, None)
    assert cost["elapsed_s"] >= cost["user_s"] > 0
    assert "counted" in ended.err.splitlines()
    assert sandbox.left_behind() == []
