"""From a journal to findings.json and from there to tables and pages, also where the journal is gone."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic_core
import pytest

from leadline.analysis import analyse
from leadline.analysis.findings_json import FINDINGS_SCHEMA, FindingsDocument, decode_findings, encode_findings
from leadline.cli import report, results
from leadline.dataset import Journal, JournalReader, RunFolder, read_journal
from leadline.dataset.atomic import storage_error
from leadline.errors import DatasetError
from leadline.trial import conclude, conclusion, read_findings

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("analysis", "report")]

from made_journals import EPOCH_NS, MadeRun, S  # noqa: E402
from sample_runs import gateway_run  # noqa: E402

TABLES = ("samples.parquet", "flows.parquet", "histograms.parquet", "results.parquet")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run of two trials that was not concluded."""
    made = MadeRun()
    made.begin()
    for number, rate in enumerate((1.0e6, 1.02e6), start=1):
        made.begin_trial(f"c01/{number}", clients=1)
        made.test(f"c01/{number}", rate, begin_ns=EPOCH_NS + number * 60 * S)
        made.end_trial(f"c01/{number}")
    made.end()
    run = RunFolder.create(tmp_path, "made")
    run.write_manifest({"name": "made", "run_id": run.run_id})
    with Journal(run.journal_path) as journal:
        for entry in made.entries:
            journal.append(entry)
    return run


def test_an_analysis_survives_the_way_through_its_document(folder: RunFolder) -> None:
    for run in (gateway_run(), conclude(folder).analysis):
        content = encode_findings(run, "0.1.0", 7)
        whole = FindingsDocument(FINDINGS_SCHEMA, "0.1.0", 7, run)
        assert content == pydantic_core.to_json(whole, inf_nan_mode="null") + b"\n", "in parts, it is the same"
        document = decode_findings(content, "findings.json")
        assert document.run == run
        assert (document.schema, document.analysed_by, document.journal_bytes) == (FINDINGS_SCHEMA, "0.1.0", 7)


def test_a_concluded_run_has_its_findings_and_what_is_unknown_is_null(folder: RunFolder) -> None:
    outcome = conclude(folder)
    document = json.loads(folder.findings_path.read_bytes())
    assert document["schema"] == "leadline.findings/1"
    assert document["journal_bytes"] == folder.journal_path.stat().st_size
    metrics = document["run"]["trials"][0]["tests"][0]["metrics"]
    assert metrics["throughput_bps"]["value"] == pytest.approx(8e6, rel=1e-6)
    rtt = metrics["rtt_mean_us"]
    assert [rtt[key] for key in ("value", "low", "high", "unbounded")] == [None] * 4
    assert read_findings(folder) == outcome.analysis


def test_a_page_is_drawn_again_without_the_journal(folder: RunFolder, capfd: pytest.CaptureFixture[str]) -> None:
    conclude(folder)
    (folder.path / "profiles").mkdir()
    (folder.path / "profiles" / "c01-1-tcp-up-gateway.svg").write_text("<svg/>")
    assert report.command([folder.path]) == 0
    terminal, page = capfd.readouterr().out, folder.report_path.read_text()
    assert results.command([folder.path], as_csv=True) == 0
    rows = capfd.readouterr().out
    tables = [(folder.path / name).read_bytes() for name in TABLES]
    for gone in (folder.journal_path, folder.manifest_path, folder.report_path):
        gone.unlink()
    assert report.command([folder.path]) == 0
    assert capfd.readouterr().out == terminal
    assert folder.report_path.read_text() == page
    assert results.command([folder.path], as_csv=True) == 0
    assert capfd.readouterr().out == rows
    assert [(folder.path / name).read_bytes() for name in TABLES] == tables


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"schema": "leadline.findings/2", "run": {}}', "is of schema 'leadline.findings/2'; this version reads"),
        (b'{"schema": "leadline.findings/1", "analysed_by": "0.1.0", "journal_bytes": 1, "run": {}}', "damaged at run"),
        (b"[]", "is no findings; this version reads leadline.findings/1"),
        (b'{"schema": "lead', "is not JSON"),
    ],
)
def test_findings_of_another_version_are_refused_in_one_line(folder: RunFolder, content: bytes, said: str) -> None:
    folder.findings_path.write_bytes(content)
    assert read_findings(folder) == conclude(folder).analysis, "made again where the journal is"
    folder.findings_path.write_bytes(content)
    folder.journal_path.unlink()
    for read in (read_findings, conclude):
        with pytest.raises(DatasetError) as caught:
            read(folder)
        assert said in str(caught.value)
        assert str(caught.value).endswith("; it can be made again only from the run's journal.ndjson, which is missing")
        assert str(folder.findings_path) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("number", "said"), [(b"1e400", "beyond the range of numbers"), (b"NaN", "NaN")])
def test_findings_with_a_number_that_is_none_are_refused_with_its_place(
    folder: RunFolder, number: bytes, said: str
) -> None:
    conclude(folder)
    whole = folder.findings_path.read_bytes()
    folder.findings_path.write_bytes(re.sub(rb'"value":[0-9.]+', b'"value":' + number, whole, count=1))
    folder.journal_path.unlink()
    with pytest.raises(DatasetError, match=rf"findings\.json is damaged: run\..*value is {said}; it can be made again"):
        read_findings(folder)


@pytest.mark.usefixtures("damaged_journals")
@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400", "9" * 400])
def test_journal_with_a_number_that_is_none_is_named_in_one_line(
    folder: RunFolder, number: str, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = folder.journal_path.read_text().splitlines()
    place = next(place for place, line in enumerate(lines) if '"started"' in line or '"finished"' in line)
    lines[place] = re.sub(r'("t_ns":|"elapsed_ns":|"at_ns":)\d+', rf"\g<1>{number}", lines[place])
    folder.journal_path.write_text("\n".join(lines) + "\n")
    assert results.command([folder.path]) == 0
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "journal" in line]
    assert re.search(r"1 of \d+ lines of the journal could not be read \(1 garbled\)", line)
    assert conclude(folder).analysis.journal.garbled == 1


def test_findings_are_of_the_journal_as_it_is(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    conclude(folder)
    monkeypatch.setattr(conclusion, "analyse", lambda *_: pytest.fail("the findings are there"))
    assert read_findings(folder).status == "done"
    monkeypatch.undo()
    with Journal(folder.journal_path) as journal:
        journal.append({"record": "run-end", "at_ns": 1, "status": "interrupted"})
    assert read_findings(folder).status == "interrupted"


def test_a_journal_is_read_once(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    iterate = JournalReader.__iter__

    def counted(reader: JournalReader) -> Iterator[Any]:
        passes.append(reader.path)
        return iterate(reader)

    monkeypatch.setattr(JournalReader, "__iter__", counted)
    assert conclude(folder).problems == ()
    assert passes == [folder.journal_path]


def test_tables_that_fail_leave_the_findings_and_the_page(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise DatasetError("no space left on the device")

    monkeypatch.setattr("leadline.dataset.tables.TableWriter.take", full)
    outcome = conclude(folder)
    assert outcome.problems == ("no space left on the device",)
    assert outcome.analysis == analyse(folder.read_manifest(), read_journal(folder.journal_path))
    assert folder.findings_path.exists() and folder.report_path.exists()
    assert not (folder.path / "samples.parquet").exists()


def test_without_polars_a_report_has_all_but_the_tables_and_says_how_to_make_them(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    outcome = conclude(folder)
    assert outcome.problems == ()
    assert outcome.left_out == (
        f"no parquet tables: polars is not installed; `pip install polars`, then `leadline report {folder.path}` "
        "writes them",
    )
    assert outcome.analysis == analyse(folder.read_manifest(), read_journal(folder.journal_path))
    assert folder.findings_path.exists() and folder.report_path.exists()
    assert not list(folder.path.glob("*.parquet"))
    assert report.command([folder.path]) == 0
    assert capsys.readouterr().err.count("no parquet tables") == 1


def test_tables_of_an_earlier_report_are_called_that(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert conclude(folder).left_out == ()
    assert {path.name for path in folder.path.glob("*.parquet")} == set(TABLES)
    monkeypatch.setitem(sys.modules, "polars", None)
    (said,) = conclude(folder).left_out
    assert said.startswith("the parquet tables are of an earlier report: polars is not installed")


@pytest.mark.processes
def test_a_report_imports_neither_lab_nor_systems_under_test(folder: RunFolder) -> None:
    program = str(Path(__file__).resolve().parents[1] / "imported_modules.py")
    line = f"report {folder.path}"
    argv = [sys.executable, program, "commands", json.dumps([line]), "[]"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found, modules = json.loads(done.stderr.splitlines()[-1])
    assert found == {line: [0, []]}
    roots = ("leadline.lab", "leadline.sut", "leadline.trial.campaign", "pyroute2", "cryptography")
    assert [name for name in modules if name.startswith(roots)] == []
    assert folder.findings_path.exists()


def test_full_disk_is_one_problem_with_the_way_on(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, _: object) -> None:
        raise storage_error(path, OSError(errno.ENOSPC, "No space left on device"))

    monkeypatch.setattr(conclusion, "replace", full)
    monkeypatch.setattr(
        "leadline.dataset.tables.TableWriter.take", lambda *_: full(folder.path / "samples.parquet", None)
    )
    (problem,) = conclude(folder).problems
    assert problem.endswith(
        f"no space left on the device; free some space, then `leadline report {folder.path}`: everything before is kept"
    )
