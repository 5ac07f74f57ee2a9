"""Capacity searches on a server whose capacity follows from its delay: bounds, documents, folders, codes, interrupts.

Ten connections to a server that takes 10 ms carry 1000 requests a second at most (Little's law). Every ending of a
search is in tests/unit/cli/test_search_endings.py, whose trials are scripted.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest

from in_process import leadline
from waiting import free_port

pytestmark = [
    pytest.mark.takes(15),
    pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed"),
]

CONNECTIONS, DELAY_S = 10, 0.010
CAPACITY_PER_S = CONNECTIONS / DELAY_S
CONDITIONS = "latency_p99_us < 500ms and error_ratio < 0.1%"
TRIAL_S = 0.5
# A trial holds with a backlog of one request per connection at its end.
MOST_PER_S = CAPACITY_PER_S + CONNECTIONS / TRIAL_S


@pytest.fixture(scope="module")
def server() -> Iterator[cli.Server]:
    with cli.serve() as running:
        yield running


def command(server: cli.Server, conditions: str = CONDITIONS, *options: str) -> list[str]:
    url = server.url("/?delay=10ms", "127.0.0.1")
    return ["http", url, "-c", str(CONNECTIONS), "-d", f"{TRIAL_S}s", "--find-rate", conditions, *options]


@pytest.mark.full_matrix
@pytest.mark.exclusive
def test_found_interval_is_where_littles_law_puts_it(server: cli.Server, tmp_path: Path) -> None:
    """A whole search. Others that take this machine's processors make its trials fail, so it runs alone."""
    done = cli.call(*command(server), "--json", "--out", str(tmp_path))
    found = json.loads(done.stdout)
    assert (found["schema"], found["command"], found["conditions"]) == ("leadline.result/1", "http", CONDITIONS)
    rate, closed_loop = found["metrics"]["found_rate_per_s"], found["metrics"]["closed_loop_per_s"]
    if found["ending"] == "generator-limited":
        pytest.skip(f"this machine was too busy for a whole search: {found['validity']['reasons']}")
    assert (found["ending"], found["validity"]["verdict"], done.returncode) == ("found", "valid", 0), done.stderr
    assert rate["unit"] == "1/s" and rate["value"] == rate["low"]
    assert closed_loop["value"] <= CAPACITY_PER_S * 1.03
    assert 0.3 * closed_loop["value"] <= rate["low"] <= MOST_PER_S
    assert found["deciding_trials_s"] == TRIAL_S
    assert 0 < rate["high"] - rate["low"] <= 0.02 * rate["high"]
    bounds = {trial["rate_per_s"]: trial["holds"] for trial in found["trials"] if trial["duration_s"] == TRIAL_S}
    assert (bounds[rate["low"]], bounds[rate["high"]]) == (True, False)
    check_trials(found)
    check_folder(found, tmp_path)


def check_trials(found: dict[str, Any]) -> None:
    trials = found["trials"]
    assert trials[0]["rate_per_s"] == pytest.approx(2 * found["metrics"]["closed_loop_per_s"]["value"])
    for trial in trials:
        assert trial["why"]
        assert set(trial["metrics"]) == {"requests_per_s", "latency_p99_us", "error_ratio"}
        if trial["rate_per_s"] > MOST_PER_S:
            assert not trial["holds"], trial


def check_folder(found: dict[str, Any], base: Path, status: str = "done") -> None:
    """Every trial with its rate offered exactly: as many requests were due as the rate says."""
    (folder,) = base.iterdir()
    kept = cli.Run(folder, 0, "", "")
    assert kept.report()["status"] == status
    for number, trial in enumerate(found["trials"], start=2):
        figures = kept.figures("http", case=f"c{number:02}")
        due = trial["rate_per_s"] * trial["duration_s"]
        fates = [figures[name] for name in ("requests_sent", "unsent")]
        assert sum(count for count in fates if count is not None) == pytest.approx(due, abs=1.001), trial
        assert figures["latency_p99_us"] == trial["metrics"]["latency_p99_us"]
    assert kept.figures("http", case="c01")["requests_per_s"] == found["metrics"]["closed_loop_per_s"]["value"]


@pytest.mark.parametrize(
    ("conditions", "options", "code", "says"),
    [
        ("latency_p99 < 5000", (), 2, "did you mean 'latency_p99_us'"),
        ("latency_p99_us", (), 2, "METRIC < VALUE"),
        ("latency_p99_us < 5000 and", (), 2, "METRIC < VALUE"),
        ("jitter_us < 5", (), 2, "unknown metric"),
        (CONDITIONS, ("--rate", "5"), 2, "exclude each other"),
        (CONDITIONS, ("-n", "5"), 2, "exclude each other"),
        (CONDITIONS, ("--target", "error_ratio < 1"), 2, "exclude each other"),
        (CONDITIONS, ("--format", "wrk"), 2, "--find-rate"),
    ],
)
@pytest.mark.decided_by("nothing: no load runs")
def test_wrong_search_option_is_one_line_on_stderr(
    server: cli.Server, conditions: str, options: tuple[str, ...], code: int, says: str
) -> None:
    done = leadline(*command(server, conditions, *options))
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    assert says in line


@pytest.mark.decided_by("the closed port")
def test_search_of_closed_port_fails_with_error_document() -> None:
    done = leadline(*command(cli.Server(free_port(), free_port())), "--json")
    assert done.returncode == 1
    assert "refused" in done.stderr and json.loads(done.stdout)["schema"] == "leadline.error/1"


@pytest.mark.decided_by("the interrupt")
def test_interrupted_search_keeps_its_trials(server: cli.Server, tmp_path: Path) -> None:
    """The first trials of a search: each is what its rate and Little's law make of it, on a machine of any speed."""
    arguments: list[str | Path] = [
        cli.quick_command,
        *command(server, CONDITIONS, "--no-calibrate", "--json", "--out", str(tmp_path)),
    ]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while trials_ended(tmp_path) < 4:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=cli.WITHIN_S)
    assert process.returncode == 130, err
    found = json.loads(out)
    assert (found["ending"], found["validity"]["verdict"]) == ("interrupted", "incomplete")
    assert len(found["trials"]) >= 3, "the closed loop is none of them"
    assert 0 < found["metrics"]["closed_loop_per_s"]["value"] <= CAPACITY_PER_S * 1.03
    # Twice what the closed loop reached is more than there is, unless that was kept from its CPU.
    check_trials(found)
    check_folder(found, tmp_path, "interrupted")


def trials_ended(base: Path) -> int:
    journals = list(base.glob("*/journal.ndjson"))
    return journals[0].read_text().count('"trial-end"') if journals else 0
