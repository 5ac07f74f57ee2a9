"""The agent's copies on hosts: one per host, verified, where there is room; and what a host is refused for."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from leadline.agents import deployment
from leadline.agents.deployment import Deployment
from leadline.agents.launchers.processes import Exec
from leadline.errors import AgentLost

FIRST = "#!/bin/sh\necho first\n"


@dataclass
class Host:
    """A host whose folders are below `folder`; what runs there is written to `log`."""

    folder: Path
    machine: str = "x86_64"

    def launcher(self, **variables: str) -> Exec:
        programs = self.folder / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        (programs / "uname").write_text(f"#!/bin/sh\necho {self.machine}\n")
        (programs / "cat").write_text(f"#!/bin/sh\necho copy >>{self.folder}/copies\nexec {shutil.which('cat')}\n")
        for program in programs.iterdir():
            program.chmod(0o755)
        given = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "XDG_CACHE_HOME": "",
            **variables,
        }
        return Exec(("env", *(f"{name}={value}" for name, value in given.items())))

    @property
    def copies(self) -> int:
        """How often a program was copied to it."""
        log = self.folder / "copies"
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def agents(tmp_path: Path) -> dict[str, Path]:
    agent = tmp_path / "agent"
    agent.write_text(FIRST)
    return {"x86_64": agent}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def entries_of(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def agent_changes(path: Path) -> None:
    path.write_text("#!/bin/sh\necho changed\n")


async def output(argv: Sequence[str], launcher: Exec) -> str:
    process = await launcher.run(argv)
    assert process.stdout is not None
    said = (await process.stdout.read()).decode()
    assert await process.wait() == 0
    return said


async def test_a_host_gets_one_copy_and_each_version_its_own(tmp_path: Path, agents: Mapping[str, Path]) -> None:
    host = Host(tmp_path / "host")
    launcher = host.launcher()
    first = await Deployment(agents).launch("gw", launcher)
    assert await output(first.argv, launcher) == "first\n"
    path = Path(first.argv[0])
    assert path.is_relative_to(tmp_path / "host" / "home" / ".cache")
    assert mode_of(path) == 0o700
    assert (await Deployment(agents).launch("gw", launcher)).argv == first.argv
    assert host.copies == 1
    agents["x86_64"].write_text("#!/bin/sh\necho second\n")
    second = await Deployment(agents).launch("gw", launcher)
    assert await output(second.argv, launcher) == "second\n"
    assert await output(first.argv, launcher) == "first\n"
    assert host.copies == 2
    assert sorted(found.name for found in path.parent.iterdir()) == ["leadline-agent"]


async def test_a_changed_copy_is_copied_again(tmp_path: Path, agents: Mapping[str, Path]) -> None:
    host = Host(tmp_path / "host")
    launcher = host.launcher()
    path = Path((await Deployment(agents).launch("gw", launcher)).argv[0])
    agent_changes(path)
    again = await Deployment(agents).launch("gw", launcher)
    assert again.argv == (str(path),)
    assert (await output(again.argv, launcher), host.copies) == ("first\n", 2)


async def test_agents_that_start_together_share_a_copy(tmp_path: Path, agents: Mapping[str, Path]) -> None:
    host = Host(tmp_path / "host")
    launcher, deployment = host.launcher(), Deployment(agents)
    launches = await asyncio.gather(*(deployment.launch(f"client{number}", launcher) for number in range(5)))
    assert len({launch.argv for launch in launches}) == 1
    assert host.copies == 1


async def test_a_folder_that_cannot_be_written_is_passed_over(tmp_path: Path, agents: Mapping[str, Path]) -> None:
    host = Host(tmp_path / "host")
    (tmp_path / "file").write_text("")
    launcher = host.launcher(XDG_CACHE_HOME=str(tmp_path / "file" / "below"))
    launch = await Deployment(agents).launch("gw", launcher)
    assert Path(launch.argv[0]).is_relative_to(tmp_path / "host" / "home")


async def test_a_full_disk_is_passed_over_and_named_where_all_are_full(
    tmp_path: Path, agents: Mapping[str, Path]
) -> None:
    host = Host(tmp_path / "host")
    launcher = host.launcher()
    (host.folder / "bin" / "cat").write_text(
        "#!/bin/sh\necho 'cat: write error: No space left on device' >&2\nexit 1\n"
    )
    with pytest.raises(AgentLost, match=r"cannot be copied to it: .*No space left on device"):
        await Deployment(agents).launch("gw", launcher)
    left = [path for path in (host.folder / "home").rglob("*") if path.is_file()]
    assert left == []


async def test_what_arrives_otherwise_is_not_used(tmp_path: Path, agents: Mapping[str, Path]) -> None:
    host = Host(tmp_path / "host")
    launcher = host.launcher()
    (host.folder / "bin" / "cat").write_text("#!/bin/sh\nhead -c 5\n")
    with pytest.raises(AgentLost, match="what arrived has the hash"):
        await Deployment(agents).launch("gw", launcher)
    assert [path for path in (host.folder / "home").rglob("*") if path.is_file()] == []


async def test_another_architecture_gets_its_own_agent_or_is_refused(tmp_path: Path, agents: dict[str, Path]) -> None:
    host = Host(tmp_path / "host", "aarch64")
    with pytest.raises(AgentLost, match=r"it is aarch64, and here is no agent for that but for x86_64: .*make agents"):
        await Deployment(agents).launch("gw", host.launcher())
    agents["aarch64"] = tmp_path / "agent-aarch64"
    agents["aarch64"].write_text("#!/bin/sh\necho arm\n")
    launch = await Deployment(agents).launch("gw", host.launcher())
    assert await output(launch.argv, host.launcher()) == "arm\n"
    # As some systems name it.
    same = Host(tmp_path / "host", "arm64").launcher()
    assert (await Deployment(agents).launch("gw", same)).argv == launch.argv


async def test_a_folder_that_others_may_write_to_is_passed_over(tmp_path: Path, agents: Mapping[str, Path]) -> None:
    """Below /tmp anyone can make a folder of this name first, and have the copy changed after it was verified."""
    host = Host(tmp_path / "host")
    launcher = host.launcher(XDG_CACHE_HOME="", HOME="")
    base = tmp_path / "leadline-7"
    (host.folder / "bin" / "id").write_text("#!/bin/sh\necho 7\n")
    (host.folder / "bin" / "id").chmod(0o755)
    base.mkdir(mode=0o777)
    base.chmod(0o777)
    said = []
    for script, argument in ((deployment._FIND, "x86_64=0"), (deployment._COPY, "0")):
        # Of the shared folders the first one is here, and the others are nowhere.
        here = script.replace("/var/tmp/", f"{tmp_path}/").replace('"/tmp/', '"/no/').replace("/dev/shm", "/no")
        said.append((await output(("sh", "-c", here, "sh", argument, "0"), launcher)).strip())
    assert said == ["lacks x86_64", "nowhere"]
    assert entries_of(base) == []


async def test_a_host_without_what_verifies_a_copy_is_refused(tmp_path: Path, agents: Mapping[str, Path]) -> None:
    folder = tmp_path / "few"
    folder.mkdir()
    for name in ("sh", "uname", "id", "cut"):
        (folder / name).symlink_to(shutil.which(name) or name)
    with pytest.raises(AgentLost, match="it has no sha256sum"):
        await Deployment(agents).launch("gw", Exec(("env", "-i", f"PATH={folder}")))


async def test_a_carrier_that_fails_is_quoted(agents: Mapping[str, Path]) -> None:
    with pytest.raises(AgentLost, match=r"`sh -c .*` ended with 7; it said: no such pod: lead-7"):
        await Deployment(agents).launch("gw", Exec(("sh", "-c", "echo no such pod: lead-$((6+1)) >&2; exit 7")))
    with pytest.raises(AgentLost, match="no-such-carrier cannot be started: No such file"):
        await Deployment(agents).launch("gw", Exec(("no-such-carrier",)))


async def test_the_filter_of_the_log_is_passed_on(
    tmp_path: Path, agents: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADLINE_LOG", "warn, serve=info")
    launch = await Deployment(agents).launch("gw", Host(tmp_path / "host").launcher())
    assert launch.argv[1:] == ("--log", "warn, serve=info")
