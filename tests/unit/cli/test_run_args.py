"""`report` and `results` take one run or several, as a shell's pattern gives them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from leadline.analysis.model import Bound, Metric, Verdict
from leadline.cli import report, results
from leadline.cli.app import _status as status
from leadline.dataset import Journal, RunFolder
from leadline.errors import InputError
from leadline.trial import read_findings

MIBIBYTE = 2**20


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two runs of one plan: a tcp test that moved one MiB, and one that moved two."""
    return [made_run(tmp_path / "runs", day, day * MIBIBYTE) for day in (1, 2)]


def made_run(base: Path, day: int, moved: int) -> Path:
    folder = RunFolder.create(base, "small", now=datetime(2026, 1, day, tzinfo=UTC))
    folder.write_manifest({"run_id": folder.run_id, "name": "small"})
    flow = {"flow": 0, "direction": "up", "due_ns": 0, "start_ns": 0, "end_ns": 10**9}
    work = {"side": "local", "wall_s": 1.0, "threads": [], "pushback": 0, "socket_drops": None}
    outcome = {
        "flows": [{**flow, "sent_bytes": moved, "received_bytes": moved}],
        "histograms": [],
        "errors": {},
        "generator": work,
        "receiver": None,
        "counts": {},
    }
    test = {"name": "bulk", "kind": "tcp", "duration_ms": 1000, "interval_ms": 100, "direction": "up"}
    finished = {"type": "finished", "trial": "c01/1/bulk", "task": "load", "t_ns": 10**9, "outcome": outcome}
    entries: list[dict[str, Any]] = [
        {"record": "trial-begin", "trial": "c01/1", "case": "c01", "repeat": 1, "parameters": {}},
        {"record": "test-begin", "label": "c01/1/bulk", "test": test, "hosts": ["here"], "start_at_ns": 0},
        {"host": "here", "event": finished},
        {"record": "test-end", "label": "c01/1/bulk", "status": "done", "error": None},
        {"record": "trial-end", "trial": "c01/1", "status": "done", "error": None},
        {"record": "run-end", "status": "done"},
    ]
    with Journal(folder.journal_path) as journal:
        for at_ns, entry in enumerate(entries):
            journal.append({"at_ns": at_ns, **entry})
    return folder.path


def received(rows: list[dict[str, object]]) -> list[tuple[object, float]]:
    """Run and bytes received, of each trial."""
    received = [row for row in rows if row["metric"] == "received_bytes" and row["trial"]]
    return [(row["run"], float(str(row["value"]))) for row in received]


def test_results_of_several_runs_name_the_run_in_every_row(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    expected = [(runs[0].name, MIBIBYTE), (runs[1].name, 2 * MIBIBYTE)]
    assert results.command(runs, as_csv=True, metric=["received_bytes"]) == 0
    assert received(list(csv.DictReader(io.StringIO(capsys.readouterr().out)))) == expected
    assert results.command(runs, json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["run"], document["runs"]) == (None, [run.name for run in runs])
    assert received(document["rows"]) == expected
    assert results.command(runs) == 0
    text = capsys.readouterr().out
    assert text.index(f"Run {runs[0].name}") < text.index(f"Run {runs[1].name}")


def test_results_of_one_run_have_the_same_columns(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert results.command(runs[:1], as_csv=True) == 0
    assert capsys.readouterr().out.splitlines()[0] == ",".join(results.COLUMNS)
    assert results.command(runs[:1], json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["run"] == runs[0].name and document["runs"] == [runs[0].name]
    assert results.command(runs[:1]) == 0
    assert "Run " not in capsys.readouterr().out


def test_results_have_the_side_of_bounds(
    runs: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {
        "a": Metric(1.5, "us"),
        "b": Metric(2.5, "us", censored=True),
        "c": Metric(3.5, "us", verdict=Verdict.UNDETERMINED, bound=Bound.MOST),
    }
    run = read_findings(RunFolder(runs[0]))
    (trial,) = run.trials
    bounded = replace(run, trials=(replace(trial, tests=(replace(trial.tests[0], metrics=figures),)),), summaries=())
    monkeypatch.setattr("leadline.trial.read_findings", lambda _: bounded)
    assert results.command(runs[:1], as_csv=True, metric=["all"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["bound"] for row in rows] == ["", "at least", "at most"]
    assert results.command(runs[:1]) == 0
    text = capsys.readouterr().out
    assert "≥ 2.5" in text and "≤ 3.5" in text and " 1.5" in text


def test_results_are_of_the_main_figures_unless_others_are_asked_for(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(*asked: str, **named: bool) -> tuple[set[str], str]:
        assert results.command(runs[:1], metric=list(asked), **named) == 0
        out, err = capsys.readouterr()
        rows = json.loads(out)["rows"] if "json" in named else list(csv.DictReader(io.StringIO(out)))
        numbers.append(len(rows))
        return {row["metric"] for row in rows}, err

    numbers: list[int] = []
    main, said = shown(as_csv=True)
    every, silent = shown("all", as_csv=True)
    assert main == {"throughput_bps", "retransmits", "rtt_mean_us"} and main < every
    left_out = numbers[1] - numbers[0]
    assert said == (
        f"leadline: {left_out} rows of other figures are left out: --metric all prints them, --metric NAME one figure\n"
    )
    assert silent == ""
    assert shown("received_bytes", "sent_bytes", as_csv=True) == ({"received_bytes", "sent_bytes"}, "")
    assert shown(json=True) == (every, "")
    assert shown("received_bytes", json=True)[0] == {"received_bytes"}


def test_results_name_the_metric_that_no_test_has(
    runs: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["leadline", "results", str(runs[0]), "--metric", "throughput"])
    assert status() == 2
    assert capsys.readouterr().err == (
        "leadline: --metric throughput: no test of these runs has it; as in --metric throughput_bps\n"
    )


def test_results_in_a_table_are_in_units_that_people_read(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert results.command(runs[:1], metric=["received_bytes"]) == 0
    assert "1.05 MB" in capsys.readouterr().out


def test_results_refuse_two_formats(
    runs: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["leadline", "results", str(runs[0]), "--csv", "--json"])
    assert status() == 2
    assert capsys.readouterr().err == "leadline: --csv and --json exclude each other\n"


def test_report_makes_the_page_of_each_run(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert report.command(runs) == 0
    assert all((run / "report.html").exists() for run in runs)
    out, err = capsys.readouterr()
    assert out.index(f"Run {runs[0].name}") < out.index(f"Run {runs[1].name}")
    assert [line for line in err.splitlines() if "report.html" in line] == [
        f"leadline: report: {run / 'report.html'}" for run in runs
    ]


def test_report_of_several_runs_is_one_document(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert report.command(runs, json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "leadline.run-results/1"
    assert [run["run_id"] for run in document["runs"]] == [run.name for run in runs]
    assert report.command(runs[:1], json=True) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "leadline.run-result/1"


def test_run_given_twice_counts_once(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert results.command([runs[0], runs[0] / "run.json"], json=True) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == [runs[0].name]


def test_argument_that_is_no_run_is_refused_before_anything_is_written(runs: list[Path]) -> None:
    with pytest.raises(InputError, match="is not a run folder"):
        report.command([*runs, runs[0].parent])
    assert not any((run / "report.html").exists() for run in runs)


@pytest.mark.parametrize("name", ["report", "results"])
def test_commands_take_several_runs(
    runs: list[Path], name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["leadline", name, *map(str, runs)])
    assert status() == 0, capsys.readouterr().err


@pytest.mark.parametrize("form", ["csv", "openmetrics", "influx"])
def test_export_takes_several_runs(
    runs: list[Path],
    tmp_path: Path,
    form: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["leadline", "export", *map(str, runs), "--format", form])
    assert status() == 0
    printed = capsys.readouterr().out
    assert all(run.name in printed for run in runs)
    file = tmp_path / "figures"
    monkeypatch.setattr("sys.argv", ["leadline", "export", *map(str, runs), "--format", form, "-o", str(file)])
    assert status() == 0
    with file.open(newline="") as written:
        assert written.read() == printed


def test_export_makes_one_junit_document_of_one_run(
    runs: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["leadline", "export", str(runs[0]), "--format", "junit"])
    assert status() == 0
    assert capsys.readouterr().out.startswith("<?xml")
    monkeypatch.setattr("sys.argv", ["leadline", "export", *map(str, runs), "--format", "junit"])
    assert status() == 2
    assert "one run makes one document" in capsys.readouterr().err
