"""`leadline truths`: what Leadline counts beside what the servers and wires of the truths counted."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import cli_runs as cli
import pytest

from leadline.truths.suite import TRUTHS

pytestmark = [
    pytest.mark.lab,
    pytest.mark.takes(15),
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
]
LONGEST_S = 1200
COUNTS = ("requests", "bad_statuses", "failed", "sent", "lost", "duplicates", "reordered")


def run_truths(*arguments: str) -> dict[str, Any]:
    """The document; the exit code follows from it."""
    command = [str(cli.quick_command), "truths", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    own = document["tools"][0]["score"]
    is_perfect = own["right"] and not any(own[mark] for mark in ("wrong", "doubted", "silent", "failed"))
    assert done.returncode == (0 if is_perfect else 1)
    return document


def assert_counts_are_right(document: dict[str, Any]) -> int:
    """How many counts there are, each of them right."""
    figures = [(run["truth"], figure) for run in document["runs"] for figure in run["figures"]]
    counts = [(truth, figure) for truth, figure in figures if figure["figure"] in COUNTS]
    assert [(truth, figure) for truth, figure in counts if figure["mark"] != "right"] == []
    return len(counts)


@pytest.mark.decided_by("counts of what a server and a wire did")
def test_leadline_counts_what_servers_and_wires_count() -> None:
    document = run_truths("leadline", "--only", "http-errors", "--only", "udp-duplicates")
    assert assert_counts_are_right(document) == 7
    true = {figure["figure"]: figure["true"] for run in document["runs"] for figure in run["figures"]}
    assert true == {
        **{"requests": 969, "bad_statuses": 79, "failed": 19},
        **{"sent": 2010, "lost": 19, "duplicates": 40, "reordered": 0},
    }


@pytest.mark.full_matrix
@pytest.mark.takes(200)
@pytest.mark.decided_by("that each tool runs against each truth, and Leadline's counts")
def test_each_tool_runs_against_each_truth() -> None:
    """A peer may fail: ab waits for ever for an answer that it has lost."""
    peers = [name for name in ("wrk", "ab", "h2load", "iperf3", "k6", "jmeter") if shutil.which(name)]
    document = run_truths()
    assert [tool["tool"] for tool in document["tools"]] == ["leadline", *peers]
    assert {run["tool"] for run in document["runs"]} == {"leadline", *peers}
    own = [run for run in document["runs"] if run["tool"] == "leadline"]
    assert [run["truth"] for run in own] == list(TRUTHS)
    assert [(run["truth"], run["error"]) for run in own if run["error"]] == []
    assert assert_counts_are_right({"runs": own}) == 16
