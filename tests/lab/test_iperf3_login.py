"""iperf3's users, between Leadline and the real iperf3 3.12 in both directions, and between Leadline and itself."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from leadline.agents import agent_binary
from waiting import WITHIN_S, free_port, until

pytestmark = [
    pytest.mark.agent,
    pytest.mark.takes(8),
    pytest.mark.skipif(
        not (shutil.which("iperf3") and shutil.which("openssl")), reason="iperf3 or openssl is not installed"
    ),
]

USER, PASSWORD = "mary", "s3cret"
OLD_PADDING = "--use-pkcs1-padding"
"""iperf3 3.12 has no other."""


@dataclass(frozen=True)
class Files:
    """The keys and the users."""

    private: Path
    traditional: Path
    """The same private key in the older form."""
    public: Path
    users: Path

    def of_server(self, key: Path | None = None) -> tuple[str, ...]:
        return ("--rsa-private-key-path", str(key or self.private), "--authorized-users-path", str(self.users))

    def of_client(self) -> tuple[str, ...]:
        return ("--username", USER, "--rsa-public-key-path", str(self.public))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("keys")
    found = Files(*(folder / name for name in ("private.pem", "traditional.pem", "public.pem", "users.csv")))
    for line in (
        f"genrsa -out {found.private} 2048",
        f"rsa -in {found.private} -traditional -out {found.traditional}",
        f"rsa -in {found.private} -pubout -out {found.public}",
    ):
        subprocess.run(["openssl", *line.split()], check=True, capture_output=True)
    digest = hashlib.sha256(f"{{{USER}}}{PASSWORD}".encode()).hexdigest()
    found.users.write_text(f"# who may measure\n{USER},{digest}\n")
    return found


def own_server(log: Path, *options: str) -> Iterator[int]:
    argv = [str(agent_binary()), "serve", "--log", "info", "--no-http", "--port", "0", *options]
    with log.open("wb") as stderr:
        process = subprocess.Popen(["env", "NO_COLOR=1", *argv], stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        until(lambda: " port=" in log.read_text() or process.poll() is not None, log.read_text)
        found = re.search(r" port=(\d+)", log.read_text())
        assert found is not None, log.read_text()
        yield int(found[1])
    finally:
        process.terminate()
        process.wait()


def real_client(
    port: int, *options: str, password: str = PASSWORD, program: str = "iperf3"
) -> subprocess.CompletedProcess[str]:
    argv = [program, "-c", "127.0.0.1", "-p", str(port), "-n", "1M", *options]
    environment = {**os.environ, "IPERF3_PASSWORD": password}
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=WITHIN_S, env=environment)


def own_client(
    command: Path, port: int, *options: str, kind: str = "tcp", password: str | None = PASSWORD
) -> subprocess.CompletedProcess[str]:
    argv = [str(command), kind, "127.0.0.1", "-p", str(port), "--peer", "iperf3", "-d", "1500ms", *options]
    environment = {name: value for name, value in os.environ.items() if name != "IPERF3_PASSWORD"}
    environment |= {} if password is None else {"IPERF3_PASSWORD": password}
    return subprocess.run(
        argv, check=False, capture_output=True, text=True, timeout=WITHIN_S, env=environment, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("form", ["private", "traditional"])
def test_real_client_logs_in(files: Files, tmp_path: Path, form: str) -> None:
    for port in own_server(tmp_path / "log", *files.of_server(getattr(files, form)), OLD_PADDING):
        done = real_client(port, *files.of_client())
        assert done.returncode == 0, done.stdout + done.stderr
        for refused in (real_client(port), real_client(port, *files.of_client(), password="S3cret")):
            assert refused.returncode != 0
            assert "authorization failed" in refused.stdout + refused.stderr
    log = (tmp_path / "log").read_text()
    assert f'user="{USER}"' in log and "no login was sent" in log and "password is wrong" in log
    assert PASSWORD not in log


def test_own_client_logs_in_with_the_newer_padding(files: Files, tmp_path: Path, quick_command: Path) -> None:
    for port in own_server(tmp_path / "log", *files.of_server()):
        for kind, rate in (("tcp", ()), ("udp", ("--rate", "5mbit"))):
            done = own_client(quick_command, port, *rate, *files.of_client(), kind=kind)
            assert done.returncode == 0, done.stderr
        for refused in (
            own_client(quick_command, port),
            own_client(quick_command, port, *files.of_client(), password="S3cret"),
            own_client(quick_command, port, *files.of_client(), OLD_PADDING),
        ):
            assert refused.returncode == 1 and "requires a user and a password" in refused.stderr, refused.stderr
            assert PASSWORD not in refused.stderr


def test_real_server_lets_its_users_in(files: Files, quick_command: Path) -> None:
    check_real_server(files, quick_command, "iperf3", OLD_PADDING)


def check_real_server(
    files: Files, command: Path, program: str, *padding: str, server_padding: tuple[str, ...] = ()
) -> None:
    """A real server lets the user in, refuses a wrong password in clear words, and goes on."""
    port = free_port()
    argv = [program, "-s", "-p", str(port), "--forceflush", *files.of_server(), *server_padding]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            while "Server listening" not in process.stdout.readline():
                assert process.poll() is None
            done = own_client(command, port, *files.of_client(), *padding)
            assert done.returncode == 0, done.stderr
            while "Server listening" not in process.stdout.readline():
                assert process.poll() is None
            refused = own_client(command, port, *files.of_client(), *padding, password="S3cret")
            assert refused.returncode == 1 and "requires a user and a password" in refused.stderr, refused.stderr
        finally:
            process.terminate()


@pytest.mark.parametrize(
    ("options", "password", "text"),
    [
        (("--username", USER), PASSWORD, "--rsa-public-key-path"),
        (("--username", USER, "--rsa-public-key-path", "/nowhere"), PASSWORD, "/nowhere"),
        (("--username", USER, "--rsa-public-key-path", "USERS"), PASSWORD, "no RSA key"),
        (("--username", USER, "--rsa-public-key-path", "PUBLIC"), None, "IPERF3_PASSWORD"),
        (("--username", USER, "--rsa-public-key-path", "PUBLIC"), "a b", "white space"),
        (("--username", USER, "--rsa-public-key-path", "PUBLIC", "--peer", "leadline"), PASSWORD, "--peer iperf3"),
    ],
)
def test_wrong_login_is_an_error_in_one_line(
    files: Files, quick_command: Path, options: tuple[str, ...], password: str | None, text: str
) -> None:
    given = [{"USERS": str(files.users), "PUBLIC": str(files.public)}.get(option, option) for option in options]
    done = own_client(quick_command, 1, *given, password=password)
    assert done.returncode in (1, 2) and text in done.stderr, done.stderr
    assert PASSWORD not in done.stderr


def test_wrong_files_of_a_server_are_an_error_in_one_line(files: Files, tmp_path: Path) -> None:
    wrong = tmp_path / "users.csv"
    wrong.write_text("mary;1234\n")
    cases = [
        (("--authorized-users-path", str(files.users)), "need --authorized-users-path and --rsa-private-key-path"),
        ((OLD_PADDING,), "need --authorized-users-path and --rsa-private-key-path"),
        ((*files.of_server()[:2], "--authorized-users-path", str(wrong)), "line 1 of the users"),
        ((*files.of_server(files.public),), "none of RSA"),
        ((*files.of_server(tmp_path / "none"),), "no such file"),
    ]
    for options, text in cases:
        argv = [str(agent_binary()), "serve", "--no-http", "--port", "0", *options]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=WITHIN_S)
        assert done.returncode != 0 and text in done.stderr, (options, done.stderr)
        assert len(done.stderr.splitlines()) == 1
