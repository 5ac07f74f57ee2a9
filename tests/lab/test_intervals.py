"""`--interval` against `leadline serve`: lines on stderr as the load runs, or rows of the document; what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise

import cli_runs as cli
import pytest

from in_process import leadline

BITS, PER_S, TIME = r"[\d.]+ [kM]?bit/s", r"[\d.]+ k?/s", r"(?:–|[\d.]+ [µm]?s)"
"""A figure of an interval in which nothing arrived is 0 or unknown: an end may have stalled for all of it."""
KINDS = {
    "tcp": (["--rate", "10mbit"], rf"{BITS}  retransmits \d+, RTT {TIME}"),
    "udp": (["--rate", "1mbit"], rf"{BITS}  {PER_S}  lost \d+ \((?:–|[\d.]+ %)\)"),
    "rr": ([], rf"{PER_S}  {BITS}  p50 .*, p99 .*"),
    "http": (["--no-calibrate"], rf"{PER_S}  {BITS}  p50 .*, p99 .*"),
}
LENGTH, STEP_S = "4s", 0.5
"""Longer than any process stalls: some intervals have figures."""


@pytest.fixture(scope="module")
def server() -> Iterator[cli.Server]:
    with cli.serve() as running:
        yield running


def command(server: cli.Server, kind: str, *options: str) -> list[str]:
    where = [server.url()] if kind == "http" else ["127.0.0.1", "--port", str(server.port)]
    return [kind, *where, "-d", LENGTH, *KINDS[kind][0], *options]


@pytest.mark.parametrize("kind", KINDS)
def test_lines_are_on_stderr_and_the_summary_is_on_stdout(server: cli.Server, kind: str) -> None:
    done = cli.call(*command(server, kind, "-i", "500ms"))
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert all(re.fullmatch(rf"  [\d.]+-[\d.]+ s  {KINDS[kind][1]}", line) for line in lines), done.stderr
    assert re.search(r"  [1-9][\d.]* [kM]?bit/s  ", done.stderr), done.stderr
    # The last one ends with the load, whenever that is.
    edges = [tuple(map(float, line.split()[0].split("-"))) for line in lines]
    assert [start_s for start_s, _ in edges] == [number * STEP_S for number in range(len(lines))]
    assert all(before[1] == after[0] for before, after in pairwise(edges))
    assert "0.0-0.5" not in done.stdout


def test_each_second_has_a_line_unless_none_is_wanted(server: cli.Server) -> None:
    done = cli.call(*command(server, "rr"))
    # The last one ends with the load, whenever that is.
    starts_s = [float(line.split("-")[0]) for line in done.stderr.splitlines()]
    assert starts_s and starts_s == [float(second) for second in range(len(starts_s))], done.stderr
    silent = cli.call(*command(server, "rr", "-i", "0"))
    assert (silent.returncode, silent.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_rows_of_the_document_add_up_to_no_more_than_arrived(server: cli.Server, kind: str) -> None:
    done = cli.call(*command(server, kind, "--interval", "500ms", "--json", "--bidir"))
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    rows = document["intervals"]
    assert rows and [row["start_s"] for row in rows] == [number * STEP_S for number in range(len(rows))]
    assert all(before["end_s"] == after["start_s"] for before, after in pairwise(rows))
    bits = [(row["values"]["throughput_bps"] or 0) * (row["end_s"] - row["start_s"]) for row in rows]
    # What an end grew by is unknown where it stalled before its first report.
    both = [[row["values"][f"throughput_{way}_bps"] for way in ("up", "down")] for row in rows]
    assert any(None not in ways for ways in both)
    for row, ways in zip(rows, both, strict=True):
        known = [way for way in ways if way is not None]
        assert row["values"]["throughput_bps"] == (pytest.approx(sum(known)) if known else None)
    if kind == "tcp":
        assert 0 < sum(bits) <= 8.0001 * document["metrics"]["received_bytes"]["value"]
        assert any(row["values"]["retransmits"] is not None for row in rows)
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
@pytest.mark.decided_by("nothing: no load runs")
def test_wrong_interval_is_one_line_on_stderr(options: list[str], said: str) -> None:
    done = leadline(*options)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr
