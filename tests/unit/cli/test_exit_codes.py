"""What the findings of a run mean for the exit code, and that a run's document is plain JSON."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from leadline.analysis import analyse
from leadline.analysis.model import TargetResult
from leadline.cli.output import note_folder, plain, run_code, run_document
from leadline.dataset import RunFolder

ENTRIES = [
    {"record": "run-begin", "at_ns": 0},
    {"record": "trial-begin", "at_ns": 1, "trial": "c01/1", "case": "c01", "repeat": 1, "parameters": {"sut": "route"}},
]


def ended(run_status: str | None, **trial: Any) -> list[dict[str, Any]]:
    end = {"record": "trial-end", "at_ns": 2, "trial": "c01/1", "status": "done", "error": None, **trial}
    run_end = [{"record": "run-end", "at_ns": 3, "status": run_status}] if run_status else []
    return [*ENTRIES, end, *run_end]


@pytest.mark.parametrize(
    ("status", "problems", "targets", "code"),
    [
        ("done", [], [], 0),
        ("failed", [], [], 1),
        ("interrupted", [], [], 130),
        ("interrupted", ["cannot write"], [], 130),
        (None, [], [], 1),  # killed
        ("done", ["cannot write"], [], 1),
        ("done", [], ["load.throughput_bps > 1"], 4),  # there is no such figure
        ("failed", [], ["load.throughput_bps > 1"], 1),
    ],
)
def test_run_exit_code_follows_status_problems_and_targets(
    status: str | None, problems: list[str], targets: list[str], code: int
) -> None:
    assert run_code(analyse({"plan": {"targets": targets}}, ended(status)), problems) == code


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [(["met"], 0), (["met", "missed"], 3), (["met", "undecided"], 4), (["undecided", "missed"], 3)],
)
def test_exit_code_follows_the_worst_target(outcomes: list[str], code: int) -> None:
    targets = tuple(TargetResult("load.lost < 1", "c01", outcome, None, "") for outcome in outcomes)
    assert run_code(dataclasses.replace(analyse({}, ended("done")), targets=targets), []) == code
    assert run_code(dataclasses.replace(analyse({}, ended("failed")), targets=targets), []) == 1


def test_document_of_a_failed_trial_has_its_error() -> None:
    error = {"code": "sut_failed", "message": "it did not come up"}
    analysis = analyse({"run_id": "r", "name": "n"}, ended("failed", status="failed", error=error))
    document = json.loads(json.dumps(run_document(analysis, "runs/r", ["disk"]), default=plain, allow_nan=False))
    assert (document["schema"], document["status"], document["problems"]) == (
        "leadline.run-result/1",
        "failed",
        ["disk"],
    )
    [trial] = document["trials"]
    assert (trial["status"], trial["error"]) == ("failed", "it did not come up")


def test_a_skipped_trial_is_no_failure() -> None:
    analysis = analyse({}, ended("done", status="skipped", error={"code": "missing_binary", "message": "not here"}))
    assert [reason.code for reason in analysis.validity.reasons] == ["no-results", "trials-skipped"]
    assert analysis.trials[0].parameters == {"sut": "route"}
    assert run_code(analysis, []) == 0


@pytest.mark.parametrize("code", [0, 3])
def test_kept_measurement_without_its_page_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    folder = RunFolder.begin(tmp_path, "tcp", lambda run_id: {"run_id": run_id})
    assert note_folder(folder, code) == (code or 1)
    assert capsys.readouterr().err == f"leadline: samples in {folder.path}, without a report\n"
    folder.report_path.write_text("<!doctype html>")
    assert note_folder(folder, code) == code
    assert "samples and report in" in capsys.readouterr().err
