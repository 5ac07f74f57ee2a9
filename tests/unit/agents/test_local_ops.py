"""Files and commands on a host that shares this machine's file system."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from leadline.agents.host_ops import Completed
from leadline.agents.local_ops import LocalOps
from leadline.errors import MissingBinary, SutFailed


class NamedAgent:
    name = "gateway"


AGENT: Any = NamedAgent()
HOST = LocalOps(AGENT, "c01/1/setup")
BEHIND_ENV = LocalOps(AGENT, "c01/1/setup", ("env", "WHERE=there"))


async def test_written_files_have_their_mode_and_replace_older_ones(tmp_path: Path) -> None:
    file = await HOST.write_file(tmp_path / "key", "first")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("first", 0o600)
    await HOST.write_file(file, b"second", mode=0o640)
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("second", 0o640)


async def test_a_file_is_read_by_a_process_on_the_host(tmp_path: Path) -> None:
    assert "WHERE=there" in await BEHIND_ENV.read_file(Path("/proc/self/environ"))
    with pytest.raises(SutFailed, match="absent on gateway cannot be read"):
        await HOST.read_file(tmp_path / "absent")


async def test_last_lines_leave_out_empty_ones_and_unreadable_files(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("one\n\ntwo\nthree\n\n")
    assert await HOST.last_lines(file, 2) == ["two", "three"]
    assert await HOST.last_lines(tmp_path / "absent", 2) == []


async def test_a_command_ends_with_its_status_and_output() -> None:
    assert await HOST.run("sh", "-c", "echo out; echo err >&2; exit 3") == Completed(3, "out\nerr\n")
    assert await BEHIND_ENV.run("sh", "-c", "echo $WHERE") == Completed(0, "there\n")


async def test_a_command_that_cannot_start_or_end_says_so() -> None:
    with pytest.raises(MissingBinary, match="no-such-program"):
        await HOST.run("no-such-program")
    with pytest.raises(SutFailed, match=r"sleep 60 did not end in 0.1 s"):
        await HOST.run("sleep", "60", within_s=0.1)


async def test_a_program_that_nsenter_cannot_start_is_named(tmp_path: Path) -> None:
    program = tmp_path / "vpn"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    nsenter = LocalOps(AGENT, "c01/1/setup", ("nsenter", "--"))
    with pytest.raises(MissingBinary, match=r"vpn .*it cannot be started: No such file or directory"):
        await nsenter.run(str(program))
