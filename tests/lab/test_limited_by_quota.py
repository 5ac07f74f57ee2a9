"""A gateway, a generator or an answering side that the CPU quota of a control group limits, on purpose, is named as the
limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cli_runs as cli
import pytest
from busy_machine import limit_by

from in_process import leadline
from leadline.agents import binary

PROGRAM = [sys.executable, str(Path(__file__).resolve().parent / "own_limited_system.py")]
PERIOD_US, QUOTA_US = 10_000, 1_000
PLAN = """
name: limited
sut: {kind: limited}
repeat: %d
tests: [{name: bulk, kind: tcp, duration: 3s, warmup: 500ms}]
"""

pytestmark = pytest.mark.lab


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with a tenth of a CPU, of version 1 or 2; skips where this user can make none."""
    for root, file in ((Path("/sys/fs/cgroup"), "cpu.max"), (Path("/sys/fs/cgroup/cpu"), "cpu.cfs_quota_us")):
        made = root / f"leadline-test-{os.getpid()}"
        try:
            made.mkdir()
        except OSError:
            continue
        # A folder beside those of version 1 has none of the files.
        if not (made / file).exists():
            made.rmdir()
            continue
        set_quota(made, QUOTA_US, PERIOD_US)
        yield made
        made.rmdir()
        return
    pytest.skip("no control group with a CPU quota can be made here")


def set_quota(group: Path, quota_us: int, period_us: int) -> None:
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota_us} {period_us}")
    else:
        (group / "cpu.cfs_period_us").write_text(str(period_us))
        (group / "cpu.cfs_quota_us").write_text(str(quota_us))


# Where others leave the gateway less than its quota, that is not what limits it.
@pytest.mark.exclusive
@pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-")
@pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="there is no TUN device")
@pytest.mark.parametrize("repeats", [1, pytest.param(20, marks=pytest.mark.full_matrix)])
def test_a_gateway_whose_quota_is_used_up_is_named(tmp_path: Path, group: Path, repeats: int) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN % repeats)
    argv = [*PROGRAM, "run", str(plan), "--json", "--out", str(tmp_path / "runs")]
    variables = {**os.environ, "LIMITED_GROUP": str(group)}
    run = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False, env=variables)
    assert run.returncode == 0, run.stderr
    [folder] = (tmp_path / "runs").iterdir()
    trials = json.loads((folder / "findings.json").read_text())["run"]["trials"]
    assert len(trials) == repeats
    for trial in trials:
        [test] = trial["tests"]
        assert test["limit"]["by"] == "gateway", (test["limit"], test["validity"])
        assert "the quota of its control group allows 0.1 CPUs" in test["limit"]["evidence"]
        assert 8 <= test["metrics"]["gateway_cpu_percent"]["value"] <= 12


@pytest.mark.exclusive
@pytest.mark.parametrize("runs", [1, pytest.param(20, marks=pytest.mark.full_matrix)])
def test_a_generator_whose_quota_is_used_up_is_named(tmp_path: Path, group: Path, runs: int) -> None:
    """The server is outside of the group."""
    agent = agent_in(group, tmp_path)
    with cli.serve() as server:
        where = ("127.0.0.1", "-p", str(server.port))
        for _ in range(runs):
            done = leadline("tcp", *where, "-d", "1500ms", "--json", variables={binary.AGENT_VARIABLE: str(agent)})
            document = json.loads(done.stdout)
            assert document["limit"]["by"] == "generator", (document["limit"], document["validity"])
            assert document["generator"]["cpu_s"] <= 0.12 * document["generator"]["wall_s"]
            assert "quota-held-back" in [reason["code"] for reason in document["validity"]["reasons"]]


@pytest.mark.parametrize("runs", [1, pytest.param(20, marks=pytest.mark.full_matrix)])
@pytest.mark.exclusive
def test_a_server_whose_quota_is_used_up_is_named(tmp_path: Path, group: Path, runs: int) -> None:
    """The client is outside of the group. The quota is less than what a busy machine leaves the server anyway."""
    set_quota(group, 2 * QUOTA_US, 10 * PERIOD_US)
    expected = {"tcp": "answering side", "tcp -R": "generator", "rr": "answering side"}
    with cli.serve(variables={binary.AGENT_VARIABLE: str(agent_in(group, tmp_path))}) as server:
        for command, by in [*expected.items()] * runs:
            kind, *more = command.split()
            done = leadline(kind, "127.0.0.1", "-p", str(server.port), *more, "-d", "1500ms", "--json")
            document = json.loads(done.stdout)
            assert limit_by(document) == by, (command, document["limit"], document["validity"])
            assert "quota-used-up" in [reason["code"] for reason in document["validity"]["reasons"]]


def agent_in(group: Path, folder: Path) -> Path:
    """A program that runs the agent inside the group."""
    agent = folder / "agent"
    agent.write_text(f'#!/bin/sh\necho $$ > {group}/cgroup.procs && exec {binary.agent_binary()} "$@"\n')
    agent.chmod(0o755)
    return agent
