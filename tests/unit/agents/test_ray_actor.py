"""What runs on a Ray node, without Ray: it is an ordinary class until Ray takes it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import zlib
from pathlib import Path

import pytest

from leadline.agents.launchers.ray_driver import actor
from leadline.agents.launchers.ray_driver.actor import Host

pytestmark = pytest.mark.processes

PROGRAM = b"#!/bin/sh\necho it ran\n"
DIGEST = hashlib.sha256(PROGRAM).hexdigest()


async def read_all(host: Host, number: int) -> tuple[bytes, bytes, int]:
    """All output of a command, as a driver reads it, which may hear each answer twice."""
    output, errors, turn = b"", b"", 0
    while True:
        reply = await host.read(number, turn)
        assert await host.read(number, turn) == reply
        output, errors, turn = output + reply[0], errors + reply[2], turn + 1
        if reply[1] and reply[3] and reply[4] is not None:
            return output, errors, reply[4]


async def test_repeated_calls_change_nothing() -> None:
    host = Host()
    for _ in range(2):
        await host.start(1, ["sh", "-c", "cat; echo done >&2; exit 7"])
    assert [await host.write(1, turn, b"abc", False) for turn in (0, 0, 1)] == [True, True, True]
    assert await host.write(1, 2, b"", True)
    assert await read_all(host, 1) == (b"abcabc", b"done\n", 7)


async def test_output_waits_for_its_reader() -> None:
    """A command that writes more than is read has to wait, as at any pipe."""
    host = Host()
    await host.start(1, ["sh", "-c", "head -c 5000000 /dev/zero; echo written >&2"])
    first = await host.read(1, 0)
    assert len(first[0]) < 3_000_000 and not first[1]
    turn, total, reply = 1, len(first[0]), first
    while not (reply[1] and reply[3] and reply[4] is not None):
        reply = await host.read(1, turn)
        turn, total = turn + 1, total + len(reply[0])
    assert total == 5_000_000


async def test_missing_program_is_an_os_error() -> None:
    with pytest.raises(FileNotFoundError):
        await Host().start(1, ["/nonexistent/program"])


async def test_stop_ends_commands_that_ignore_the_end_of_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor, "_GRACE_S", 0.1)
    host = Host()
    await host.start(1, ["sh", "-c", "sleep 600 & echo $!; wait"])
    child = int((await host.read(1, 0))[0])
    ending = os.pidfd_open(child)
    await host.stop()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(ending, ended.set)
    await ended.wait()
    asyncio.get_running_loop().remove_reader(ending)
    os.close(ending)


async def test_command_has_none_of_rays_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_JOB_ID", "1")
    monkeypatch.setenv("KEPT", "2")
    host = Host()
    await host.start(1, ["sh", "-c", 'echo "$RAY_JOB_ID,$KEPT"'])
    assert (await read_all(host, 1))[0] == b",2\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "leadline/agents"


async def test_installed_program_runs(cache: Path) -> None:
    host = Host()
    path = await host.install_program("tool", DIGEST, zlib.compress(PROGRAM))
    await host.start(1, [path])
    assert await read_all(host, 1) == (b"it ran\n", b"", 0)


def test_program_is_found_by_its_hash(cache: Path) -> None:
    assert actor.find_program("tool", DIGEST) is None
    path = actor.install_program("tool", DIGEST, zlib.compress(PROGRAM))
    assert path == str(cache / DIGEST / "tool") == actor.find_program("tool", DIGEST)
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o755


def test_changed_program_is_not_used(cache: Path) -> None:
    path = Path(actor.install_program("tool", DIGEST, zlib.compress(PROGRAM)))
    path.write_bytes(PROGRAM + b"# changed\n")
    assert actor.find_program("tool", DIGEST) is None


def test_what_arrives_damaged_is_not_kept(cache: Path) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        actor.install_program("tool", DIGEST, zlib.compress(b"something else"))
    assert list((cache / DIGEST).iterdir()) == []


def test_next_folder_is_used_where_one_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert actor.install_program("tool", DIGEST, zlib.compress(PROGRAM)) == str(
        tmp_path / ".cache/leadline/agents" / DIGEST / "tool"
    )
