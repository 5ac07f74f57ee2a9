"""Capacity searches on a server whose capacity follows from its delay: bounds, documents, folders, codes, interrupts.

Ten connections to a server that takes 10 ms carry 1000 requests a second at most (Little's law), and what a busy
machine takes from that, the closed loop before the search has lost as well.
"""

from __future__ import annotations

import json
import re
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

pytestmark = pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed")

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


def test_the_interval_is_where_littles_law_says(server: cli.Server, tmp_path: Path) -> None:
    done = cli.call(*command(server), "--json", "--out", str(tmp_path))
    found = json.loads(done.stdout)
    assert (found["schema"], found["command"], found["conditions"]) == ("leadline.result/1", "http", CONDITIONS)
    rate, closed_loop = found["metrics"]["found_rate_per_s"], found["metrics"]["closed_loop_per_s"]
    assert done.returncode == (0 if rate["low"] is not None else 3 if found["ending"] == "none-held" else 4), (
        done.stderr
    )
    assert rate["unit"] == "1/s" and rate["value"] == rate["low"]
    assert closed_loop["value"] <= CAPACITY_PER_S * 1.03
    assert rate["low"] is None or rate["low"] <= MOST_PER_S
    # A lower one is nobody's but that of who stands still in a trial.
    few = [trial for trial in found["trials"] if trial["rate_per_s"] < 0.3 * closed_loop["value"]]
    assert (rate["low"] or 0) >= 0.3 * closed_loop["value"] or not all(trial["holds"] for trial in few)
    check_ending(found)
    check_trials(found)
    check_folder(found, tmp_path)


def check_ending(found: dict[str, Any]) -> None:
    """What a machine that others use makes of it, and what each ending promises."""
    rate = found["metrics"]["found_rate_per_s"]
    verdicts = {"found": "valid", "generator-limited": "generator-limited", "budget": "incomplete"}
    # Of a closed loop that a busy machine kept from half of what it could do.
    verdicts |= {"all-held": "undetermined", "none-held": "valid"}
    assert found["validity"]["verdict"] == verdicts[found["ending"]]
    if found["ending"] == "found":
        assert found["deciding_trials_s"] == TRIAL_S
        assert 0 < rate["high"] - rate["low"] <= 0.02 * rate["high"]
    if found["ending"] == "generator-limited":
        limits = [trial for trial in found["trials"] if not trial["holds"] and not trial["generator_limited"]]
        assert rate["high"] in {None, *(trial["rate_per_s"] for trial in limits)}


def check_trials(found: dict[str, Any]) -> None:
    trials = found["trials"]
    assert trials[0]["rate_per_s"] == pytest.approx(2 * found["metrics"]["closed_loop_per_s"]["value"])
    for trial in trials:
        assert trial["why"]
        assert set(trial["metrics"]) == {"requests_per_s", "latency_p99_us", "error_ratio"}
        if trial["rate_per_s"] > MOST_PER_S:
            assert not trial["holds"], trial
    rate = found["metrics"]["found_rate_per_s"]
    assert rate["low"] is None or any(trial["holds"] and trial["rate_per_s"] == rate["low"] for trial in trials)
    if rate["high"] is not None:
        assert any(not trial["holds"] and trial["rate_per_s"] == rate["high"] for trial in trials)


def check_folder(found: dict[str, Any], base: Path) -> None:
    """Every trial with its rate offered exactly: as many requests were due as the rate says."""
    (folder,) = base.iterdir()
    kept = cli.Run(folder, 0, "", "")
    assert kept.report()["status"] == "done"
    for number, trial in enumerate(found["trials"], start=2):
        figures = kept.figures("http", case=f"c{number:02}")
        due = trial["rate_per_s"] * trial["duration_s"]
        fates = [figures[name] for name in ("requests_sent", "unsent")]
        assert sum(count for count in fates if count is not None) == pytest.approx(due, abs=1.001), trial
        assert figures["latency_p99_us"] == trial["metrics"]["latency_p99_us"]
    assert kept.figures("http", case="c01")["requests_per_s"] == found["metrics"]["closed_loop_per_s"]["value"]


def test_search_without_json_prints_rows_and_a_headline(server: cli.Server) -> None:
    # A calibration says on stderr that it is one; of a load that was calibrated before, nothing is said.
    done = cli.call(*command(server, CONDITIONS, "--no-calibrate"))
    # What a machine that others use makes of it, as above.
    assert done.returncode in (0, 3, 4), done.stderr
    assert "highest rate with latency_p99_us < 500ms" in done.stdout
    assert ("no rate that holds" if done.returncode == 3 else "which holds") in done.stdout or done.returncode == 4
    outcomes = re.compile(r"^ +[\d,.]+/s +[\d.]+ m?s  (holds|does not hold|generator-limited) .*$", re.MULTILINE)
    rows = [match.group().strip() for match in outcomes.finditer(done.stdout)]
    assert rows and done.stdout.index(rows[-1]) < done.stdout.index("highest rate with"), done.stdout
    assert "because" in done.stdout and done.stderr == "", "each trial stands on stdout, and nowhere else"


def test_unreachable_latency_target_ends_without_a_rate(server: cli.Server) -> None:
    """An answer takes 10 ms at any rate."""
    done = leadline(*command(server, "latency_p50_us < 5000", "--json"))
    found = json.loads(done.stdout)
    assert found["metrics"]["found_rate_per_s"]["value"] is None
    assert (found["ending"], done.returncode) in (("none-held", 3), ("generator-limited", 4), ("budget", 4))


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
def test_wrong_search_option_is_one_line_on_stderr(
    server: cli.Server, conditions: str, options: tuple[str, ...], code: int, says: str
) -> None:
    done = leadline(*command(server, conditions, *options))
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    assert says in line


def test_search_of_closed_port_fails_with_error_document() -> None:
    done = leadline(*command(cli.Server(free_port(), free_port())), "--json")
    assert done.returncode == 1
    assert "refused" in done.stderr and json.loads(done.stdout)["schema"] == "leadline.error/1"


def test_an_interrupt_keeps_what_is_known(server: cli.Server, tmp_path: Path) -> None:
    arguments = [cli.LEADLINE, *command(server, CONDITIONS, "-d", "5s", "--json", "--out", str(tmp_path))]
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
    (folder,) = tmp_path.iterdir()
    assert cli.Run(folder, 130, "", "").report()["status"] == "interrupted"


def trials_ended(base: Path) -> int:
    journals = list(base.glob("*/journal.ndjson"))
    return journals[0].read_text().count('"trial-end"') if journals else 0
