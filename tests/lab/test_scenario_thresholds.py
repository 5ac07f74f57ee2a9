"""Thresholds that end a scenario's load when they are missed, and patterns that only the agent refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import cli_runs as cli
import pytest
from http_servers import counting
from test_scenario_ends import check_states, written

from in_process import leadline

pytestmark = [
    pytest.mark.skipif(not cli.LEADLINE.exists(), reason="the leadline command is not installed"),
    pytest.mark.agent,
    pytest.mark.takes(18),
]

ABORTING = """
name: all
base: http://127.0.0.1:${param('port')}
thresholds: {%s: [{threshold: %s, abortOnFail: true}]}
load: {users: 2, duration: 10m}
flow:
  - transaction: visit
    steps:
      - {get: /ok/20, name: login, check: [{status: 200, name: fine}]}
      - {get: /ok, name: other}
"""


@pytest.mark.parametrize(
    ("metric", "rule"),
    [
        ("http_req_duration{name:login}", "p(95)<5"),
        ("checks{check:fine}", "rate<0.5"),
        ("iterations", "count<2"),
        pytest.param("http_req_duration", "p(95)<5", marks=pytest.mark.full_matrix),
        pytest.param("http_req_waiting{name:login}", "avg<5", marks=pytest.mark.full_matrix),
        pytest.param("iteration_duration{scenario:all}", "med<5", marks=pytest.mark.full_matrix),
    ],
)
@pytest.mark.decided_by("the server's delay of 20 ms, and counts")
def test_missed_threshold_ends_the_load(tmp_path: Path, metric: str, rule: str) -> None:
    """Ten minutes end after seconds, with the reason, its exit code, and what was measured until then."""
    with counting(tmp_path) as server:
        file = written(tmp_path, ABORTING % (f"'{metric}'", rule))
        summary = tmp_path / "k6.json"
        options = ("-J", f"port={server.port}", "--json", "--summary-export", str(summary))
        done = leadline("scenario", file, *options)
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    [target] = found["targets"]
    assert target["outcome"] == "missed"
    assert any("because a target was missed" in one["text"] for one in found["validity"]["reasons"]), found["validity"]
    check_states(found)
    labels = {one["name"]: one["ended"] for one in found["scenario"]["labels"]}
    assert server.account.requests == {"ok": labels["login"] + labels["other"]}
    assert json.loads(summary.read_text())["metrics"][metric]["thresholds"] == {rule: True}


def checks(readings_s: list[float]) -> list[float]:
    """Those of the readings at which thresholds are checked: each second, from the second one on."""
    found: list[float] = []
    for one in readings_s:
        if one >= (found[-1] + 1 if found else 2):
            found.append(one)
    return found


@pytest.mark.decided_by("the server's delay of 20 ms")
def test_threshold_ends_nothing_before_its_delay(tmp_path: Path) -> None:
    """By the instants of the journal: the first check after the delay ends the load, and none before it does."""
    rule = "'p(95)<5', delayAbortEval: 4s"
    with counting(tmp_path) as server:
        file = written(tmp_path, ABORTING % ("'http_req_duration{name:login}'", rule))
        done = leadline("scenario", file, "-J", f"port={server.port}", "--json", "--out", str(tmp_path / "runs"))
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    (journal,) = (tmp_path / "runs").glob("*/journal.ndjson")
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    began_ns = next(one["start_at_ns"] for one in entries if one.get("record") == "test-begin")
    events = [one["event"] for one in entries if one.get("event", {}).get("type") == "progress"]
    at_s = [(event["t_ns"] - began_ns) / 1e9 for event in events]
    checked_s = checks(at_s)
    (ended,) = (one for one in entries if one.get("record") == "test-end")
    named = re.match(r"stopped after ([0-9.]+) s because a target was missed: service_p95_us", ended["error"])
    assert named is not None, ended
    assert float(named[1]) == pytest.approx(min((one for one in checked_s if one >= 4), default=0), abs=0.06), at_s
    check_states(found)
    assert found["targets"][0]["outcome"] == "missed"


@pytest.mark.decided_by("a bound of five seconds; a load that hardly ran has no interval, which leaves it undecided")
def test_threshold_that_is_not_missed_ends_nothing(tmp_path: Path) -> None:
    """Each of 150 visits of a user takes 20 ms at least: the load lasts beyond the first check, which is after 2 s."""
    with counting(tmp_path) as server:
        text = ABORTING % ("'http_req_duration{name:other}'", "p(95)<5000")
        file = written(tmp_path, text.replace("duration: 10m", "iterations: 150"))
        done = leadline("scenario", file, "-J", f"port={server.port}", "--json")
    found = json.loads(done.stdout)
    figure = found["metrics"]["service_p95_us{name:other}"]
    wanted = (0, "met") if figure["high"] is not None else (4, "undecided")
    assert (done.returncode, found["targets"][0]["outcome"]) == wanted, done.stderr
    assert not any("because a target was missed" in one["text"] for one in found["validity"]["reasons"])
    labels = {one["name"]: one["ended"] for one in found["scenario"]["labels"]}
    assert labels["visit"] == labels["login"] == labels["other"] == 2 * 150, "all of its visits"


REFUSED = """
base: http://h.test
load: {users: 1, iterations: 1}
flow:
  - get: /fine
  - get: /login
    extract: {token: {%s}}
"""


@pytest.mark.parametrize(
    ("find", "words"),
    [
        ("regex: '(?a)x'", "is not a regular expression"),
        ("css: 'a:hover'", ":hover"),
        ("json: '$.[x'", "JSONPath"),
    ],
)
def test_convert_and_run_name_the_place_of_a_pattern_that_the_agent_refuses(
    tmp_path: Path, find: str, words: str
) -> None:
    file = written(tmp_path, REFUSED % find)
    plan = tmp_path / "plan.yaml"
    plan.write_text("name: p\nsut: {kind: route}\ntests: [{name: users, kind: scenario, file: scenario.yaml}]\n")
    for command in (("convert", file), ("run", plan, "--out", tmp_path / "runs"), ("scenario", file)):
        done = leadline(*map(str, command))
        assert done.returncode == 2, (command, done.stderr)
        assert f"{file}:6: " in done.stderr and words in done.stderr, (command, done.stderr)
    assert not (tmp_path / "runs").exists()
    skipped = leadline("convert", str(file), "--scripts", "skip")
    assert skipped.returncode == 0 and f"cannot-run: {file}:6: " in skipped.stderr, skipped.stderr


def test_many_mistakes_are_shown_up_to_a_bound_and_counted(tmp_path: Path) -> None:
    steps = "".join(f"  - get: http://u{number}@h/\n" for number in range(60))
    file = written(tmp_path, f"load: {{users: 1, iterations: 1}}\nflow:\n{steps}")
    done = leadline("scenario", str(file))
    assert done.returncode == 2, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 32 and f"{file}:33: " in lines[30]
    assert lines[31].endswith("and 29 more mistakes (--json prints all)")


def test_convert_needs_no_data_and_no_values(tmp_path: Path) -> None:
    file = written(tmp_path, "get: http://${param('host')}/\ndata: [{file: missing.csv}]\n")
    done = leadline("convert", str(file))
    assert done.returncode == 0, done.stderr
    assert "not checked as a whole" in done.stderr and "get: http://" in done.stdout
