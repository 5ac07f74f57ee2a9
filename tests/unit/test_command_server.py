"""The stand-in for the `leadline` command does what the command does, and its server leaves no process behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_server import REAL, command_server
from waiting import free_port, until

pytestmark = pytest.mark.processes
HOLDER = Path(__file__).with_name("command_server_holder.py")
TESTS = Path(__file__).parents[1]
PLAN = "name: small\ntopology: remote-access\nsut: {kind: route}\ntests: [{name: t, kind: tcp, duration: 1s}]\n"


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with command_server(tmp_path_factory.mktemp("server")) as program:
        yield program


def outcome(program: Path, arguments: list[str], folder: Path, **variables: str) -> tuple[int, str, str]:
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, cwd=folder, env=environment
    )
    return done.returncode, done.stdout, done.stderr


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def status_of_a_server_that_gets(number: signal.Signals, program: Path) -> int:
    port, nothing = free_port(), subprocess.DEVNULL
    argv = [str(program), "serve", "--bind", "127.0.0.1", "--port", str(port), "--no-http"]
    with subprocess.Popen(argv, stdout=nothing, stderr=nothing) as command:
        until(lambda: listens(port))
        command.send_signal(number)
        status = command.wait()
    until(lambda: not listens(port))
    return status


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").exists()


def test_program_of_the_tests_runs_with_its_arguments_and_its_folder(stand_in: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys, beside\nprint(beside.NAME, sys.argv[1:], __name__)\nsys.exit(7)\n")
    program.with_name("beside.py").write_text("NAME = 'beside'\n")
    assert outcome(stand_in, [str(program), "-x", "y"], tmp_path) == (7, "beside ['-x', 'y'] __main__\n", "")


@pytest.mark.parametrize(
    "arguments", [["--version"], ["plan", "missing.yaml"], ["plan", "small.yaml", "--json"], ["http", "--no-such"]]
)
def test_status_and_output_are_those_of_the_command(stand_in: Path, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "small.yaml").write_text(PLAN)
    found = outcome(stand_in, arguments, tmp_path, COLUMNS="60")
    assert found == outcome(REAL, arguments, tmp_path, COLUMNS="60")
    assert found[1] or found[2]


def test_without_its_server_the_stand_in_becomes_the_command(tmp_path: Path) -> None:
    with command_server(tmp_path / "server") as stand_in:
        pass
    assert outcome(stand_in, ["--version"], tmp_path) == outcome(REAL, ["--version"], tmp_path)


@pytest.mark.agent
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signal_to_the_stand_in_ends_the_command(stand_in: Path, number: signal.Signals) -> None:
    statuses = [status_of_a_server_that_gets(number, program) for program in (stand_in, REAL)]
    assert statuses[0] == statuses[1]


def test_server_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    argv = [sys.executable, str(HOLDER), str(tmp_path / "server")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as holder:
        assert holder.stdout is not None
        (server,) = map(int, holder.stdout.readline().split())
        assert is_there(server)
        holder.kill()
    until(lambda: not is_there(server))
