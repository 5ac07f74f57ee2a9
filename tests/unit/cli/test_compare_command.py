"""`leadline compare`: runs against the first and the one before, systems of one run, and what is refused."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from leadline.cli.app import _status as status
from leadline.dataset import Journal, RunFolder

MIBIBYTE = 2**20
TEST = {"name": "bulk", "kind": "tcp", "duration_ms": 1000, "interval_ms": 100, "direction": "up"}


def made_run(base: Path, day: int, moved: dict[str, list[int]], **changes: Any) -> str:
    """A run whose cases are named by a parameter, with bytes that each of their repeats moved in a second."""
    folder = RunFolder.create(base, "small", now=datetime(2026, 1, day, tzinfo=UTC))
    test = {**TEST, **changes}
    cases = [
        {"id": f"c{number:02}", "parameters": {"sut": system}, "tests": [test]}
        for number, system in enumerate(moved, 1)
    ]
    began = f"2026-01-{day:02}T00:00:00+00:00"
    folder.write_manifest({"run_id": folder.run_id, "name": "small", "started_at": began, "cases": cases})
    with Journal(folder.journal_path) as journal:
        for number, (system, repeats) in enumerate(moved.items(), 1):
            for repeat, count in enumerate(repeats, 1):
                for entry in entries(f"c{number:02}", system, repeat, count, test):
                    journal.append({"at_ns": 0, **entry})
        journal.append({"at_ns": 0, "record": "run-end", "status": "done"})
    return str(folder.path)


def entries(case: str, system: str, repeat: int, moved: int, test: dict[str, Any]) -> list[dict[str, Any]]:
    trial, label = f"{case}/{repeat}", f"{case}/{repeat}/bulk"
    flow = {"flow": 0, "direction": "up", "due_ns": 0, "start_ns": 0, "end_ns": 10**9}
    thread = {"name": "load", "user_s": 0.1, "system_s": 0.1, "runnable_wait_s": 0.0, "wall_s": 1.0}
    work = {"side": "local", "wall_s": 1.0, "threads": [thread], "pushback": 0, "socket_drops": None}
    outcome = {
        "flows": [{**flow, "sent_bytes": moved, "received_bytes": moved}],
        "histograms": [],
        "errors": {},
        "generator": work,
        "receiver": {**work, "side": "peer"},
        "counts": {},
    }
    finished = {"type": "finished", "trial": label, "task": "load", "t_ns": 10**9, "outcome": outcome}
    return [
        {"record": "trial-begin", "trial": trial, "case": case, "repeat": repeat, "parameters": {"sut": system}},
        {"record": "test-begin", "label": label, "test": test, "hosts": ["here"], "start_at_ns": 0},
        {"host": "here", "event": finished},
        {"record": "test-end", "label": label, "status": "done", "error": None},
        {"record": "trial-end", "trial": trial, "status": "done", "error": None},
    ]


def around(mebibytes: float) -> list[int]:
    return [int(mebibytes * MIBIBYTE * factor) for factor in (0.998, 1.0, 1.002, 1.001)]


def compare(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["leadline", "compare", *arguments])
    return status()


def test_each_run_is_compared_with_the_first_and_with_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [made_run(tmp_path, day, {"route": around(size)}) for day, size in ((1, 1.0), (2, 2.0), (3, 1.0))]
    assert compare(monkeypatch, *runs, "--json", "--metric", "throughput_bps") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "leadline.comparison/1"
    names = [Path(run).name for run in runs]
    assert [(one["baseline"], one["candidate"], one["figures"][0]["word"]) for one in document["comparisons"]] == [
        (names[0], names[1], "faster"),
        (names[0], names[2], "equivalent"),
        (names[1], names[2], "slower"),
    ]


def test_systems_of_one_run_are_compared_with_the_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made_run(tmp_path, 1, {"route": around(2.0), "openvpn": around(0.5)})
    assert compare(monkeypatch, run, "--baseline", "sut=route") == 0
    text = capsys.readouterr().out
    assert "sut=openvpn compared with sut=route" in text
    assert "0.250" in text and "▼ slower" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "one run, and nothing to compare it with; --baseline one of sut=route, sut=openvpn"),
        (("--baseline", "sut=wireguard"), "--baseline sut=wireguard: no such cases in this run"),
        (("--baseline", "sut=route", "--margin", "two"), "--margin two: not a share from 0 to 1"),
        (("--baseline", "sut=route", "--metric", "nothing"), "share no figure of nothing that could be compared"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    says: str,
) -> None:
    run = made_run(tmp_path, 1, {"route": around(2.0), "openvpn": around(0.5)})
    assert compare(monkeypatch, run, *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_one_run_without_systems_asks_for_a_second_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(monkeypatch, made_run(tmp_path, 1, {"route": around(2.0)})) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        "nothing to compare it with; name a second run: all cases of this one have the same parameters"
    )


@pytest.mark.parametrize("again", ["{run}", "link", "{run}/run.json"])
def test_the_same_run_twice_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], again: str
) -> None:
    run = made_run(tmp_path, 1, {"route": around(2.0), "openvpn": around(0.5)})
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to(run)
    second = again.format(run=run)
    assert compare(monkeypatch, run, second, "--baseline", "sut=route") == 2
    assert capsys.readouterr().err == f"leadline: {run} and {second}: the same run twice; name each run once\n"


def test_runs_of_other_loads_are_compared_only_if_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = made_run(tmp_path, 1, {"route": around(1.0)})
    second = made_run(tmp_path, 2, {"route": around(1.0)}, flows=4)
    assert compare(monkeypatch, first, second) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "are not comparable: bulk (sut=route): flows is none and 4" in line
    assert compare(monkeypatch, first, second, "--anyway") == 0
    assert "bulk (sut=route): flows: none -> 4" in capsys.readouterr().out
