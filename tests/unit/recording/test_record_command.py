"""What `leadline record` refuses before anything starts, and what it gives to a command."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from in_process import leadline
from leadline.cli.record import _note_left_journals
from leadline.errors import InputError
from leadline.recording import session
from leadline.recording.journal import open_journal
from leadline.recording.trust import (
    certificate_of,
    check_authority,
    command_environment,
    command_line,
    prepare_private_folder,
)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """mitmproxy seems to be there."""
    monkeypatch.setattr(session, "is_installed", lambda: True)


def test_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "is_installed", lambda: False)
    done = leadline("record", "-o", "shop.yaml")
    assert done.returncode == 2
    assert done.stderr == "leadline: leadline record needs the extra: pip install 'leadline[record]'\n"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--for", "0s"], "--for: a duration must be above 0"),
        (["--for", "soon"], "--for: "),
        (["--max-body", "1GiB"], "--max-body: 1GiB is not in its limits; 1 B to 256MiB"),
        (["--ca", "/nowhere.pem"], "--ca /nowhere.pem: No such file or directory; name a file of certificates in PEM"),
        (["--ca", __file__], f"--ca {__file__}: it has no certificates"),
        (["--bind", "192.0.2.7"], "cannot listen at 192.0.2.7:8888"),
        (["-o", "/nowhere/shop.yaml"], "-o /nowhere/shop.yaml: No such file or directory"),
        (["--", "no-such-program"], "no-such-program: there is no such command"),
        (["--"], "there is no command after --; as in leadline record"),
        (["--recover", "a.jsonl", "--", "true"], "--recover: nothing is recorded, so no command runs"),
        (["--recover", "/nowhere.jsonl"], "/nowhere.jsonl: No such file or directory"),
    ],
)
def test_wrong_input_is_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    done = leadline("record", *words, folder=tmp_path, variables={"XDG_DATA_HOME": str(tmp_path)})
    assert done.returncode == 2 and done.stderr.startswith(f"leadline: {said}"), done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.usefixtures("installed")
def test_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = leadline("record", "--port", port, variables={"XDG_DATA_HOME": str(tmp_path)})
    assert done.returncode == 2 and f"cannot listen at 127.0.0.1:{port}: Address already in use" in done.stderr


def test_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    made = tmp_path / "a" / "b"
    prepare_private_folder("--ca-dir", made)
    assert made.stat().st_mode & 0o777 == 0o700
    prepare_private_folder("--ca-dir", made)
    made.chmod(0o750)
    with pytest.raises(InputError, match=r"--ca-dir .*: others may enter this folder, which has a key; chmod 700 "):
        prepare_private_folder("--ca-dir", made)


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_folder_without_a_usable_authority_is_named(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        certificate_of(tmp_path).write_bytes(content)
    with pytest.raises(InputError, match=r"its authority cannot be used: .*; remove the folder's files"):
        check_authority(tmp_path)


def test_journal_that_a_killed_recorder_left_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left, being_written = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    left.touch()
    open_journal(being_written)
    _note_left_journals(tmp_path)
    said = capsys.readouterr().err
    assert f"leadline record --recover {left} -o" in said and str(being_written) not in said


def test_command_uses_the_proxy_for_this_machine_too() -> None:
    found = command_environment({"NO_PROXY": "localhost", "A": "b"}, "http://127.0.0.1:1", Path("/bundle"))
    assert found["NO_PROXY"] == found["no_proxy"] == "" and found["A"] == "b"
    assert found["http_proxy"] == found["HTTPS_PROXY"] == "http://127.0.0.1:1"
    assert found["SSL_CERT_FILE"] == found["CURL_CA_BUNDLE"] == "/bundle"


def test_chromium_gets_options_and_keeps_those_that_were_given() -> None:
    words = ["/usr/bin/chromium", "--user-data-dir=/mine", "http://shop.test/"]
    found = command_line(words, "http://127.0.0.1:1", "sum", Path("/profile"))
    assert found[0] == "/usr/bin/chromium" and found[-2:] == words[1:]
    assert "--proxy-server=http://127.0.0.1:1" in found and "--proxy-bypass-list=<-loopback>" in found
    assert "--ignore-certificate-errors-spki-list=sum" in found and "--user-data-dir=/profile" not in found
    assert command_line(["curl", "-s"], "http://127.0.0.1:1", "sum", Path("/profile")) == ["curl", "-s"]
