"""Servers that break off: the client shows what it measured until then, with one line of error and exit code 1."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import cli_runs as cli
import pytest
import scripted_servers as servers
from scripted_servers import Act, Script, serving

from in_process import leadline

pytestmark = [
    pytest.mark.agent,
    pytest.mark.takes(10),
    pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed"),
]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str
    address: str


def against(script: Script, command: str, stage: str, act: Act, *options: str | Path) -> Ended:
    kind, *rest = command.split()
    with serving(script, stage, act) as server:
        done = cli.call(kind, "127.0.0.1", "-p", str(server.port), *rest, "-d", "400ms", *options)
        assert server.came, (done.stdout, done.stderr)
    return Ended(done.returncode, done.stdout, done.stderr, server.address)


@pytest.fixture(scope="module")
def quick(quick_command: Path) -> None:
    """Commands run without their start."""
    cli.quick_command = quick_command


def test_server_that_closes_leaves_the_figures_until_then(quick: None) -> None:
    ended = against(servers.leadline_tcp, "tcp", "ended", servers.close)
    assert ended.code == 1 and len(ended.err.splitlines()) == 1, ended.err
    assert f"{ended.address} closed the session" in ended.err
    assert "throughput" in ended.out and "incomplete" in ended.out


def test_server_that_closes_before_the_start_leaves_no_figures(quick: None) -> None:
    ended = against(servers.leadline_tcp, "tcp", "asked", servers.close)
    assert ended.code == 1 and len(ended.err.splitlines()) == 1, ended.err
    assert ended.out == ""


def test_failed_measurement_leaves_a_run_that_results_takes(quick: None, tmp_path: Path) -> None:
    ended = against(servers.leadline_tcp, "tcp", "ended", servers.close, "--out", tmp_path)
    assert f"samples and report in {tmp_path}" in ended.err
    (folder,) = tmp_path.iterdir()
    found = leadline("results", folder, "--json")
    rows = {row["metric"]: row for row in json.loads(found.stdout)["rows"] if row["trial"]}
    assert rows["throughput_bps"]["validity"] == "incomplete"


def test_document_of_iperf3_has_the_error(quick: None) -> None:
    ended = against(servers.iperf3_tcp, "tcp --peer iperf3", "told", servers.close, "--format", "iperf3-json")
    document = json.loads(ended.out)
    assert ended.address in document["error"] and document["error"] in ended.err
