"""`leadline rr` against `leadline serve`, both real, on loopback: each way to transact, and the counts of both ends."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import started_command

from in_process import leadline
from waiting import WITHIN_S, free_port

pytestmark = pytest.mark.agent

PATIENT = ["-d", "60s", "--timeout", "60s", "--warmup", "0s"]
"""Who may not run for a while has time enough after that; each test ends by its number."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    number = free_port()
    argv = [started_command.program, "serve", "--bind", "127.0.0.1", "-p", str(number), "--http-port", str(free_port())]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert "listening" in process.stdout.readline()
        yield number
        process.send_signal(signal.SIGINT)
        process.wait(WITHIN_S)


def measured(port: int, out: Path, *options: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The document of a measurement, and the agent's outcome."""
    ended = leadline("rr", "127.0.0.1", "-p", str(port), "--json", "--out", str(out), *options)
    assert ended.returncode == 0, ended.stderr
    lines = (line for journal in out.rglob("journal.ndjson") for line in journal.read_text().splitlines())
    outcomes = [outcome for line in lines if (outcome := _outcome(json.loads(line))) is not None]
    return json.loads(ended.stdout), outcomes[0]


def _outcome(line: dict[str, Any]) -> dict[str, Any] | None:
    event = line.get("event", line)
    return event.get("outcome") if event.get("type") == "finished" else None


@pytest.mark.parametrize(
    "options",
    [
        ["-P", "3"],
        ["--udp", "-P", "3", "-t", "2"],
        ["-P", "2", "--outstanding", "8", "-l", "100", "--response", "3000"],
        ["--udp", "--outstanding", "8"],
        ["--connect"],
        ["--connect", "-P", "2", "--outstanding", "4", "--response", "300KiB"],
        ["--connect", "--udp"],
        ["--rate", "5k", "-P", "3", "--outstanding", "2"],
        ["--busy-poll"],
    ],
    ids=" ".join,
)
def test_both_ends_count_the_same_transactions(port: int, tmp_path: Path, options: list[str]) -> None:
    document, outcome = measured(port, tmp_path, "-n", "200", *PATIENT, *options)
    metrics = {name: metric["value"] for name, metric in document["metrics"].items()}
    assert (metrics["transactions"], document["errors"]) == (200, {})
    assert sum(flow["sent_units"] for flow in outcome["flows"]) == 200
    assert sum(flow["received_units"] for flow in outcome["flows"]) == 200, "the server's count"
    assert sum(one["count"] for one in outcome["histograms"] if one["metric"] == "latency") == 200
    assert ("unsent" in metrics) == ("--rate" in options)
    if "--rate" in options:
        assert metrics["unsent"] == 0
        assert metrics["service_p99_us"] <= metrics["latency_p99_us"]
    if "--connect" in options:
        assert metrics["connections_opened"] == 200
        assert ("connect_p50_us" in metrics) == ("--udp" not in options)
    else:
        assert "connections_opened" not in metrics
    spun_s = [thread["spun_s"] for thread in outcome["generator"]["threads"]]
    assert all((spun is not None) == ("--busy-poll" in options) for spun in spun_s)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--outstanding", "10000", "-P", "10"], "too many"),
        (["--outstanding", "0"], "outstanding"),
        (["--rate", "0"], "above 0"),
        (["--rate", "0:10/10s"], "not stages"),
    ],
)
def test_bad_values_are_one_line_and_exit_2(options: list[str], words: str) -> None:
    ended = leadline("rr", "127.0.0.1", *options)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert words in ended.stderr
