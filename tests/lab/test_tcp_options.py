"""The options of `leadline tcp` on real sockets: what is asked for reaches both ends; what cannot be is an error."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_runs import WITHIN_S, serve

pytestmark = [pytest.mark.agent, pytest.mark.takes(12)]


@pytest.fixture(scope="module")
def command(quick_command: Path) -> str:
    return str(quick_command)


@pytest.fixture(scope="module")
def session_port() -> Iterator[int]:
    with serve() as server:
        yield server.port


def run(command: str, port: int, line: str) -> subprocess.CompletedProcess[str]:
    argv = [command, "tcp", "127.0.0.1", "-p", str(port), *line.split()]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=WITHIN_S)


def figures(command: str, port: int, line: str) -> dict[str, Any]:
    done = run(command, port, f"{line} --json")
    assert done.returncode == 0, done.stderr
    return {name: row["value"] for name, row in json.loads(done.stdout)["metrics"].items()}


def test_bytes_end_the_test_in_both_directions(command: str, session_port: int) -> None:
    line = "-n 5000001 -P 3 -d 20s --payload 50% --dscp EF --mss 1000 -w 256KiB --nagle"
    for way in ("", " -R", " --bidir"):
        found = figures(command, session_port, line + way)
        total = 5_000_001 * (2 if "bidir" in way else 1)
        assert (found["sent_bytes"], found["received_bytes"]) == (total, total)
        assert found["rtt_idle_us"] > 0 and found["congestion_window_bytes"] > 0
        assert found["receive_window_bytes"] > 0 and found["tcp_efficiency_ratio"] > 0.5
        assert found["zerocopy_copied_ratio"] is None


def test_pages_are_sent_and_discarded_without_copying(command: str, session_port: int, tmp_path: Path) -> None:
    line = "-n 20000000 -d 20s --receive discard"
    zerocopy = figures(command, session_port, f"{line} --send zerocopy")
    # Loopback never sends the sender's own memory.
    assert (zerocopy["received_bytes"], zerocopy["zerocopy_copied_ratio"]) == (20_000_000, 1)
    content = tmp_path / "content"
    content.write_bytes(b"some bytes\n")
    sent = figures(command, session_port, f"{line} --send sendfile --payload-file {content} --mptcp")
    assert sent["received_bytes"] == 20_000_000
    assert sent["client_cpu_ns_per_byte"] > 0 and sent["server_cpu_ns_per_byte"] > 0


def test_pacing_is_what_limits(command: str, session_port: int) -> None:
    done = run(command, session_port, "-d 1500ms --pacing 40mbit --line-rate 100mbit --json")
    document = json.loads(done.stdout)
    assert document["metrics"]["pacing_bps"]["value"] == pytest.approx(40e6, rel=0.01)
    assert document["metrics"]["throughput_bps"]["value"] < 44e6
    assert document["metrics"]["line_use_ratio"]["value"] < 0.5


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("--dscp 64", 2, "63"),
        ("--dscp gold", 2, "no code point"),
        ("--payload much", 2, "zeros, random"),
        ("--payload-file /dev/null", 2, "not a file with content"),
        ("--payload-file x -R", 2, "only a client sends a file"),
        ("--mss 20", 2, "88"),
        ("--mptcp --pacing 10mbit", 2, "no kernel paces MPTCP"),
    ],
)
def test_what_cannot_be_is_an_error_in_one_line(
    command: str, session_port: int, line: str, code: int, text: str
) -> None:
    done = run(command, session_port, f"{line} -d 1s")
    assert done.returncode == code and text in done.stderr, done.stderr
