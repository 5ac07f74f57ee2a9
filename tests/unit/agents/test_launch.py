"""Where the agent is found, and how a host in a plan becomes a command."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from leadline.agents import ReachedHosts, agent_binary
from leadline.agents.launchers.ssh import SshConnections
from leadline.errors import MissingBinary
from leadline.plan.host_address import HostAddress


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_variable_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = program(tmp_path / "agent")
    monkeypatch.setenv("LEADLINE_AGENT", str(named))
    assert agent_binary() == named


def test_a_variable_that_names_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADLINE_AGENT", str(tmp_path / "none"))
    with pytest.raises(MissingBinary, match="LEADLINE_AGENT"):
        agent_binary()


def test_beside_the_interpreter_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEADLINE_AGENT", raising=False)
    in_path = program(tmp_path / "path" / "leadline-agent")
    monkeypatch.setenv("PATH", str(in_path.parent))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    assert agent_binary() == in_path
    beside = program(tmp_path / "bin" / "leadline-agent")
    assert agent_binary() == beside


def test_the_newest_build_of_the_tree_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEADLINE_AGENT", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path / "target"))
    with pytest.raises(MissingBinary, match="make build"):
        agent_binary()
    built = program(tmp_path / "target" / "x86_64-unknown-linux-gnu" / "release" / "leadline-agent")
    assert agent_binary() == built


@pytest.mark.parametrize(
    ("text", "destination", "port"),
    [
        ("ssh://gw1", "gw1", []),
        ("ssh://bob@gw1:2222", "bob@gw1", ["-p", "2222"]),
        ("ssh://root@[fd00::1]", "root@fd00::1", []),
    ],
)
async def test_another_host_is_reached_by_ssh(
    text: str, destination: str, port: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = program(tmp_path / "ssh")
    ssh.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    connections, address = SshConnections(), HostAddress.parse(text)
    process = await connections.reach(address.host, address.user, address.port).run(("agent", "two words"))
    words = (await process.stdout.read()).decode().split("\n")[:-1] if process.stdout else []
    await process.wait()
    folder = Path(next(word for word in words if word.startswith("ControlPath=")).removeprefix("ControlPath=")).parent
    assert await asyncio.to_thread(folder.is_dir)
    await connections.aclose()
    assert not await asyncio.to_thread(folder.exists)
    assert "BatchMode=yes" in words
    end = words.index("--")
    assert words[end - len(port) : end] == port
    assert words[end + 1 :] == [destination, "agent 'two words'"], "quoted for the shell there"


def test_without_ssh_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingBinary, match="ssh is not installed"):
        SshConnections().reach("gw1", None, None)


async def test_this_machine_needs_only_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = program(tmp_path / "agent")
    monkeypatch.setenv("LEADLINE_AGENT", str(named))
    launches = await ReachedHosts().launches({"client1": HostAddress.parse("local")})
    assert launches["client1"].argv == (str(named),)
