"""`leadline http` where something around the requests is missing: no listener, too few descriptors, an impatient user,
servers that hang up when they please. Each costs one clear line, or no figure."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import cli_runs as cli
import http_servers as servers
import pytest

from waiting import free_port

pytestmark = [
    pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed"),
    pytest.mark.takes(12),
]


def test_closed_port_counts_connections_refused() -> None:
    unused = f"http://127.0.0.1:{free_port()}/"
    for load in (
        *cli.load_over_both("closed", unused, "-c", "3", "-d", "1s"),
        *cli.load_over_both("open", unused, "-c", "3", "--rate", "100", "-d", "1s"),
    ):
        assert (load.code, load.document["error"]["code"]) == (1, "connection_refused")
        assert re.fullmatch(r"leadline: .*127\.0\.0\.1:\d+.*refused.*\n", load.err), load.err


def test_too_few_descriptors(tmp_path: Path) -> None:
    with servers.counting(tmp_path) as server:
        few = ("bash", "-c", 'ulimit -n 64; exec "$@"', "bash", cli.LEADLINE)
        command = (*few, "http", server.url(), "--no-calibrate", "-c", "500", "-d", "1s")
        done = subprocess.run(command, capture_output=True, text=True, timeout=cli.WITHIN_S, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "500 connections need more descriptors than `ulimit -n` (64) allows" in done.stderr


@pytest.mark.decided_by("the interrupt")
def test_an_interrupt_keeps_what_was_counted(tmp_path: Path) -> None:
    with servers.nginx(tmp_path, servers.certificates(tmp_path)) as nginx:
        options = ("--json", "--no-calibrate", "-H", "X-Run: cut", "-c", "4", "-d", "60s", "-n", "10000000")
        with cli.start("http", nginx.url(), *options) as process:
            while len(nginx.lines("cut")) < 1000:
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=cli.WITHIN_S)
        load = cli.Load("cut", process.returncode, out, err)
        assert load.code == 130
        assert load.document["validity"]["verdict"] == "incomplete"
        assert load.errors == {}
        sent, unanswered = load.count("requests_sent"), load.count("unanswered")
        assert len(nginx.lines("cut")) == sent == sum(load.statuses.values()) + unanswered >= 1000


def test_servers_of_http_1_0(tmp_path: Path) -> None:
    """An answer that ends with its connection, one with a length, and one whose connection is kept."""
    for kind, connections in (("old", 60), ("old_length", 60), ("old_kept", 3)):
        with servers.counting(tmp_path) as server:
            loads = cli.load_over_both(kind, server.url(kind), "-n", "60", "-c", "3")
        assert server.account.requests == {kind: 120}
        for load in loads:
            assert (load.code, load.errors, load.statuses) == (0, {}, {"2xx": 60})
            assert connections <= load.count("connections_opened") <= max(connections, 3) + 3
        assert sum(load.count("bytes_received") for load in loads) == server.account.sent_bytes


def test_a_server_that_closes_idle_connections(tmp_path: Path) -> None:
    """It hangs up after each answer and does not say so before: what is paced finds that out in time, or is counted."""
    with servers.counting(tmp_path) as server:
        loads = cli.load_over_both("idle", server.url("leaves"), "--rate", "10", "-n", "10", "-d", "60s", "-c", "1")
    for load in loads:
        assert load.code == 0 and set(load.errors) <= {"closed_early", "reset"}
        assert sum(load.statuses.values()) + sum(load.errors.values()) == load.count("requests_due") == 10
        assert load.count("connections_opened") > 1
    assert server.account.requests["leaves"] == sum(sum(load.statuses.values()) for load in loads)
