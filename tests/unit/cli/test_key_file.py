"""`--key-file`: what a file gives, what it must not be, and that the key stays where it is."""

from __future__ import annotations

import json
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import started_command

from in_process import leadline
from leadline.cli.key_file import LONGEST_KEY_BYTES, read_key
from leadline.errors import InputError
from waiting import WITHIN_S, free_port

SECRET = "correct horse battery staple"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return written(tmp_path / "key", SECRET.encode() + b"\n")


def written(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_key_is_the_files_bytes_without_white_space_at_the_end(tmp_path: Path) -> None:
    for content, secret in [(b"key\n", b"key"), (b" a\x00\xff b\r\n\n", b" a\x00\xff b"), (b"k", b"k")]:
        assert b64decode(read_key(written(tmp_path / "key", content))) == secret
    longest = b"x" * LONGEST_KEY_BYTES
    assert b64decode(read_key(written(tmp_path / "key", longest + b"\n"))) == longest


def test_a_file_without_a_key_is_refused_in_one_line(tmp_path: Path) -> None:
    cases = {
        "empty": written(tmp_path / "empty", b""),
        "is empty": written(tmp_path / "blank", b" \n\n"),
        "longer than": written(tmp_path / "long", b"x" * (LONGEST_KEY_BYTES + 1)),
        "No such file": tmp_path / "missing",
        "directory": tmp_path,
    }
    for says, path in cases.items():
        with pytest.raises(InputError, match=says) as refused:
            read_key(path)
        assert str(path) in str(refused.value)
        assert "\n" not in str(refused.value)


def test_a_file_that_every_user_can_read_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read_key(written(tmp_path / "key", SECRET.encode(), 0o644))
    said = capsys.readouterr().err
    assert "chmod 600" in said
    assert SECRET not in said
    read_key(written(tmp_path / "key", SECRET.encode(), 0o640))
    assert capsys.readouterr().err == ""


@contextmanager
def serving(key: Path, *options: str) -> Iterator[str]:
    """A responder that asks for the key; gives its port."""
    port = str(free_port())
    argv = [
        started_command.program,
        "serve",
        "--bind",
        "127.0.0.1",
        "--no-http",
        "-p",
        port,
        "--key-file",
        str(key),
        *options,
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert "listening" in said, process.communicate(timeout=WITHIN_S)
        try:
            yield port
        finally:
            process.terminate()
            process.wait(timeout=WITHIN_S)


@pytest.mark.agent
def test_commands_with_the_key_are_served_and_write_it_nowhere(key: Path, tmp_path: Path) -> None:
    with serving(key) as port:
        out = tmp_path / "runs"
        number = ("-n", "20", "-d", "60s")
        for command in (["rr", *number], ["rr", "--udp", *number], ["udp", "--rate", "1mbit", "-d", "300ms"]):
            given = ["127.0.0.1", "-p", port, "--key-file", str(key), "--json", "--out", str(out)]
            done = leadline(command[0], *given, *command[1:])
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["command"] == command[0]
            assert SECRET not in done.stdout + done.stderr
    kept = [file.read_bytes() for file in out.rglob("*") if file.is_file()]
    assert kept
    for shown in (SECRET.encode(), b64encode(SECRET.encode())):
        assert not any(shown in content for content in kept)


@pytest.mark.agent
def test_without_the_key_a_command_prints_why_in_one_line(key: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "other", b"another key")
    with serving(key) as port:
        for given, says in ([], "asks for its key"), (["--key-file", str(other)], "not this responder's"):
            done = leadline("tcp", "127.0.0.1", "-p", port, "-d", "100ms", *given)
            assert done.returncode == 1
            lines = [line for line in done.stderr.splitlines() if says in line]
            assert len(lines) == 1, done.stderr
            assert "Traceback" not in done.stderr


@pytest.mark.agent
def test_a_limit_is_named_by_the_client_that_it_refuses(key: Path) -> None:
    with serving(key, "--max-rate", "10mbit") as port:
        done = leadline("udp", "127.0.0.1", "-p", port, "--key-file", str(key), "--rate", "20mbit", "-d", "100ms")
        assert done.returncode == 1
        assert "this server allows a peer 10 Mbit/s" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--http", "--no-http"], "exclude each other"),
        (["--http", "--key-file", "key"], "tcp, udp and rr"),
        (["--max-rate", "fast"], "not a rate"),
        (["--max-rate", "0"], "allows no payload"),
        (["--max-idle", "soon"], "--max-idle"),
    ],
)
def test_impossible_responder_options_are_refused_in_one_line(arguments: list[str], says: str) -> None:
    done = leadline("serve", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.agent
def test_missing_key_file_of_a_responder_is_named_in_one_line() -> None:
    argv = [started_command.program, "serve", "-p", str(free_port()), "--key-file", "/nowhere/key"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "/nowhere/key" in done.stderr


@pytest.mark.agent
def test_an_open_responder_warns_in_one_line_and_starts() -> None:
    port = str(free_port())
    argv = [started_command.program, "serve", "--bind", "0.0.0.0", "--no-http", "-p", port]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "listening" in process.stdout.readline()
        process.terminate()
        _, said = process.communicate(timeout=WITHIN_S)
    (line,) = said.splitlines()
    assert "0.0.0.0" in line
    assert port in line
    assert "--key-file" in line
