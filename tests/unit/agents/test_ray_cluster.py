"""Hosts of a Ray cluster, with a driver that plays a part (`scripted_driver.py`)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from leadline.agents.launchers import ray
from leadline.agents.launchers.ray import LOST_STATUS, PYTHON_VARIABLE, RayCluster
from leadline.errors import AgentError, EnvironmentLimit

pytestmark = pytest.mark.processes

DRIVER = Path(__file__).with_name("scripted_driver.py")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python that plays the driver whatever it is given."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{DRIVER}"\n')
    program.chmod(0o755)
    monkeypatch.setenv(PYTHON_VARIABLE, str(program))
    return program


def replace_driver(driver: Path, script: str) -> None:
    driver.write_text(f"#!/bin/sh\n{script}\n")


@pytest_asyncio.fixture
async def cluster(driver: Path) -> AsyncIterator[RayCluster]:
    async with RayCluster("head:6379", 2) as opened:
        yield opened


async def test_command_has_three_pipes_and_a_status(cluster: RayCluster) -> None:
    process = await cluster.hosts[1].run(["cat"])
    process.stdin.write(b"to and fro\n")
    await process.stdin.drain()
    assert await process.stdout.readline() == b"to and fro\n"
    process.stdin.close()
    assert (await process.stdout.read(), await process.stderr.read(), await process.wait()) == (b"", b"", 3)
    assert cluster.hosts[1].describe_end(3, ()) == "its process exited with 3"
    with pytest.raises(ProcessLookupError):
        process.kill()
    with pytest.raises(BrokenPipeError):
        await process.stdin.drain()


async def test_installed_program_is_run_by_its_name(cluster: RayCluster) -> None:
    await cluster.install("tool", {"x86_64": DRIVER})
    assert [host.refusals for host in cluster.hosts] == [{}, {"tool": "no room"}]
    process = await cluster.hosts[0].run(["tool"])
    assert await process.stderr.readline() == b"installed\n"


async def test_missing_program_is_an_os_error(cluster: RayCluster) -> None:
    with pytest.raises(FileNotFoundError):
        await cluster.hosts[0].run(["missing"])


async def test_lost_host_ends_its_process_with_the_reason(cluster: RayCluster) -> None:
    host = cluster.hosts[0]
    process = await host.run(["lost"])
    assert (await process.stdout.read(), await process.wait()) == (b"", LOST_STATUS)
    assert host.describe_end(LOST_STATUS, ()) == host.lost == "its Ray node 10.0.0.1 died: a reason"


async def test_killed_process_of_a_silent_host_counts_as_ended(
    cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host is not lost by that: its network may come back."""
    monkeypatch.setattr(ray, "_KILL_WITHIN_S", 0.01)
    host = cluster.hosts[0]
    process = await host.run(["silent"])
    process.kill()
    assert await process.wait() == LOST_STATUS
    assert (host.describe_end(LOST_STATUS, ()), host.lost) == ("its Ray node 10.0.0.1 is out of reach", None)


async def test_end_of_the_driver_is_the_end_of_all(cluster: RayCluster) -> None:
    silent = await cluster.hosts[0].run(["silent"])
    await cluster.hosts[1].run(["end"])
    assert await silent.wait() == LOST_STATUS
    expected = (
        "the Ray driver ended (its process exited with 1), as it does when the head is lost; "
        "its last lines: a line of Ray's"
    )
    assert cluster.hosts[0].describe_end(LOST_STATUS, ()) == expected
    with pytest.raises(AgentError, match="the Ray driver ended"):
        await cluster.hosts[0].run(["silent"])


async def test_driver_that_never_connects_is_ended(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "_CONNECT_WITHIN_S", 0.01)
    replace_driver(driver, "exec sleep 600")
    with pytest.raises(EnvironmentLimit, match="the Ray cluster at head:6379 let no driver in within"):
        async with RayCluster("head:6379", 2):
            pass


async def test_driver_that_fails_to_start_is_quoted(driver: Path) -> None:
    replace_driver(driver, "echo no module >&2; exit 1")
    with pytest.raises(AgentError, match=r"the Ray driver ended \(its process exited with 1\); its last lines: no mod"):
        async with RayCluster("head:6379", 2):
            pass
