"""`--interval` against `leadline serve`: lines on stderr as the load runs, or rows of the document; what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise

import cli_runs as cli
import pytest

from in_process import leadline

KINDS = {
    "tcp": (["--rate", "10mbit"], r"[\d.]+ [kM]bit/s  retransmits \d+, RTT [\d.]+ [µm]s"),
    "udp": (["--rate", "1mbit"], r"[\d.]+ [kM]bit/s  [\d.]+ k?/s  lost \d+ \([\d.]+ %\)"),
    "rr": ([], r"[\d.]+ k?/s  [\d.]+ [kM]bit/s  p50 .*, p99 .*"),
    "http": (["--no-calibrate"], r"[\d.]+ k?/s  [\d.]+ [kM]bit/s  p50 .*, p99 .*"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[cli.Server]:
    with cli.serve() as running:
        yield running


def command(server: cli.Server, kind: str, *options: str) -> list[str]:
    where = [server.url()] if kind == "http" else ["127.0.0.1", "--port", str(server.port)]
    return [kind, *where, "-d", "2s", *KINDS[kind][0], *options]


@pytest.mark.parametrize("kind", KINDS)
def test_lines_are_on_stderr_and_the_summary_is_on_stdout(server: cli.Server, kind: str) -> None:
    done = cli.call(*command(server, kind, "-i", "500ms"))
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["0.0-0.5", "0.5-1.0", "1.0-1.5"]
    assert all(re.fullmatch(rf"  [\d.]+-[\d.]+ s  {KINDS[kind][1]}", line) for line in lines), done.stderr
    assert "0.0-0.5" not in done.stdout


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_rows_of_the_document_add_up_to_no_more_than_arrived(server: cli.Server, kind: str) -> None:
    done = cli.call(*command(server, kind, "--interval", "500ms", "--json", "--bidir"))
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    rows = document["intervals"]
    assert [row["start_s"] for row in rows[:3]] == [0.0, 0.5, 1.0]
    assert all(before["end_s"] == after["start_s"] for before, after in pairwise(rows))
    bits = [row["values"]["throughput_bps"] * (row["end_s"] - row["start_s"]) for row in rows]
    for row in rows:
        both = [row["values"][f"throughput_{way}_bps"] for way in ("up", "down")]
        assert sum(both) == pytest.approx(row["values"]["throughput_bps"])
    if kind == "tcp":
        assert 0 < sum(bits) <= 8.0001 * document["metrics"]["received_bytes"]["value"]
        assert all(row["values"]["retransmits"] is not None for row in rows)
    metrics = document["metrics"]
    assert metrics["throughput_up_bps"]["value"] > 0 and metrics["throughput_down_bps"]["value"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["tcp", "127.0.0.1", "-i", "50ms"], "--interval: 50ms is too short; counters are read every 100ms"),
        (["udp", "127.0.0.1", "-i", "often"], "--interval: 'often' is not a duration"),
        (["http", "http://127.0.0.1/", "-i", "1s", "--find-rate", "latency_p99_us < 5"], "exclude each other"),
    ],
)
def test_wrong_interval_is_one_line_on_stderr(options: list[str], said: str) -> None:
    done = leadline(*options)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr
