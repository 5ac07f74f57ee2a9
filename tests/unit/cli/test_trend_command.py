"""`leadline trend`: the exit code for CI, what is left out, the document and the page."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from test_compare_command import MIBIBYTE, TEST, entries

from leadline.cli.app import _status as status
from leadline.dataset import Journal, RunFolder

FIRST = datetime(2026, 1, 1, 2, tzinfo=UTC)


def made_night(base: Path, day: int, mebibytes: float) -> Path:
    """A run that began some days after the first one, with three repeats."""
    began = FIRST + timedelta(days=day)
    folder = RunFolder.create(base, "nightly", now=began)
    case = {"id": "c01", "parameters": {"sut": "route"}, "tests": [TEST]}
    manifest = {
        "run_id": folder.run_id,
        "name": "nightly",
        "started_at": began.isoformat(),
        "plan": {},
        "cases": [case],
    }
    folder.write_manifest(manifest)
    with Journal(folder.journal_path) as journal:
        for repeat, factor in enumerate((0.998, 1.0, 1.002), 1):
            moved = int(mebibytes * MIBIBYTE * factor * (1 + (day * 7 % 5) / 1000))
            for entry in entries("c01", "route", repeat, moved, TEST):
                journal.append({"at_ns": 0, **entry})
        journal.append({"at_ns": 0, "record": "run-end", "status": "done"})
    return folder.path


def trend(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["leadline", "trend", *map(str, arguments)])
    return status()


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve nights, and six that are slower by a tenth; some lie deeper, and one folder is no run."""
    base = tmp_path_factory.mktemp("runs")
    for day in range(18):
        made_night(base / "january" if day < 9 else base, day, 1.0 if day < 12 else 0.9)
    (base / "notes").mkdir()
    return base


def test_new_regression_ends_with_3_and_names_its_place(
    slower: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trend(monkeypatch, slower) == 3
    text = capsys.readouterr().out
    assert text.startswith("1 regression in the newest 10 runs (18 runs, 1 of 1 history judged).")
    assert "▼ regression  bulk sut=route throughput_bps  -10.0 %" in text
    assert "near 20260113T020000Z-nightly-" in text and "6 runs since, new" in text
    assert trend(monkeypatch, slower, "--newest", "3") == 0
    assert "No regression in the newest 3 runs; 1 regression before" in capsys.readouterr().out
    assert trend(monkeypatch, slower, "--margin", "20%") == 0


def test_runs_before_a_time_are_left_out(
    slower: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trend(monkeypatch, slower, "--since", "2026-01-10", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["runs"]) == ("leadline.trend/1", 9)
    assert document["histories"][0]["reason"] == "9 of 9 runs are valid: 10 are needed"
    assert trend(monkeypatch, slower, "--since", "1d") == 0
    assert capsys.readouterr().out == "No run was found: there is nothing to judge.\n"


def test_document_has_points_levels_and_changes(
    slower: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trend(monkeypatch, slower, "--json", "--metric", "throughput_bps") == 3
    (history,) = json.loads(capsys.readouterr().out)["histories"]
    assert len(history["points"]) == 18 and history["points"][0]["low"] < history["points"][0]["value"]
    assert [level["runs"] for level in history["levels"]] == [12, 6]
    (change,) = history["changes"]
    assert (change["shift"], change["is_new"]) == ("regression", True)


def test_page_is_written_beside_the_text(slower: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "trend.html"
    assert trend(monkeypatch, slower, "--html", page) == 3
    assert "1 regression in the newest 10 runs" in page.read_text(encoding="utf-8")


def test_run_that_cannot_be_read_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_night(tmp_path, 0, 1.0)
    for day, text in enumerate(("[]", "[" * 100_000, '{"plan": 5}'), 1):
        (made_night(tmp_path, day, 1.0) / "run.json").write_text(text)
    assert trend(monkeypatch, tmp_path) == 0
    said = capsys.readouterr()
    assert said.out.startswith("1 run: nothing can be judged yet.")
    notes = said.err.splitlines()
    for note, why in zip(notes, ("not a JSON object", "nested too deeply", "`plan` is not an object"), strict=True):
        assert note.startswith("leadline: left out: cannot read ") and why in note


def test_run_that_began_at_no_time_of_utc_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunFolder(made_night(tmp_path, 0, 1.0))
    run.write_manifest({**run.read_manifest(), "started_at": "0001-01-01T00:00:00+23:00"})
    assert trend(monkeypatch, tmp_path) == 0
    assert capsys.readouterr().out.startswith("1 run:")


@pytest.mark.usefixtures("damaged_journals")
def test_damaged_journal_is_noted_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_night(tmp_path, 0, 1.0)
    damaged = made_night(tmp_path, 1, 1.0)
    with (damaged / "journal.ndjson").open("a") as journal:
        journal.write('garbled\n{"record": "tor')
    assert trend(monkeypatch, tmp_path) == 0
    (note,) = capsys.readouterr().err.splitlines()
    assert note == f"leadline: {damaged.name}: its journal is damaged: 1 unreadable line, the last line is torn"
    assert trend(monkeypatch, tmp_path, "--since", "2026-02-01") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--since", "yesterday"), "--since yesterday: not a time; as in --since 2026-01-31, or 90d"),
        (("--since", "0001-01-01T00:00:00+23:00"), "--since 0001-01-01T00:00:00+23:00: not a time"),
        (("--margin", "two"), "--margin two: not a share from 0 to 1"),
        (("--html", "/nowhere/page.html"), "--html /nowhere/page.html: No such file or directory"),
    ],
)
def test_options_without_sense_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    says: str,
) -> None:
    assert trend(monkeypatch, tmp_path, *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_folder_that_does_not_exist_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trend(monkeypatch, tmp_path / "none") == 2
    assert "is not a folder" in capsys.readouterr().err


def test_test_that_fails_in_all_newest_runs_ends_with_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No run has a regression that is known, and none is known not to have one."""
    for day in range(17):
        folder = RunFolder(made_night(tmp_path, day, 1.0))
        if day >= 14:
            folder.journal_path.write_text('{"at_ns": 0, "record": "run-begin"}\n')
    assert trend(monkeypatch, tmp_path, "--newest", "3") == 4
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("1 figure has no value to judge in the newest 3 runs (17 runs, 1 of 1 history judged).")
    assert "bulk sut=route throughput_bps: no value to judge in the newest 3 runs" in text
    assert trend(monkeypatch, tmp_path, "--newest", "4", "--json") == 0
    (stale,) = json.loads(capsys.readouterr().out)["stale"]
    assert (stale["metric"], stale["runs"], stale["is_in_newest"]) == ("throughput_bps", 3, True)


def test_figure_that_no_run_has_a_value_of_is_no_misspelled_one(
    slower: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where the test failed in each run since a time: nothing can be decided."""
    assert trend(monkeypatch, slower, "--metric", "gateway_memory_bytes") == 4
    assert "--metric gateway_memory_bytes: no run has a value of it\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        ("throughputbps", "--metric throughputbps: no run has such a figure; did you mean 'throughput_bps'?"),
        ("", "--metric '': no run has such a figure; there is "),
    ],
)
def test_figure_that_no_run_has_is_bad_input(
    slower: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], metric: str, says: str
) -> None:
    assert trend(monkeypatch, slower, "--metric", "throughput_bps", "--metric", metric) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
