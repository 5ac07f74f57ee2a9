"""A run's folder and its conclusion, without a run: what a kill or a full disk leaves is still concluded from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leadline.cli import report, results
from leadline.dataset import Journal, RunFolder
from leadline.plan import load_plan
from leadline.trial import Campaign, conclude

PLAN = """\
name: small
topology: remote-access
lab: {link: {rate: 1gbit}}
sut: {kind: route}
tests: [{name: load, kind: tcp, duration: 1s}]
"""


def prepared(tmp_path: Path) -> RunFolder:
    (tmp_path / "plan.yaml").write_text(PLAN)
    plan = load_plan(tmp_path / "plan.yaml")
    return Campaign(plan, plan.cases, tmp_path / "runs", ["leadline", "run", "a plan.yaml"]).prepare()


def test_a_run_that_was_killed_before_its_first_trial(tmp_path: Path) -> None:
    outcome = conclude(prepared(tmp_path))
    assert (outcome.analysis.status, outcome.analysis.trials, outcome.problems) == ("killed", (), ())
    assert outcome.analysis.command == "leadline run 'a plan.yaml'"
    assert outcome.folder.report_path.exists()


def test_the_manifest_is_enough_to_run_it_again(tmp_path: Path) -> None:
    manifest = prepared(tmp_path).read_manifest()
    assert (manifest["plan_text"], manifest["order"], manifest["overrides"]) == (PLAN, ["c01/1"], [])
    assert [case["sut"]["kind"] for case in manifest["cases"]] == ["route"]
    assert manifest["seed"] == load_plan(tmp_path / "plan.yaml").seed


SECRET_PLAN = """\
name: small
topology: remote-access
lab: {link: {rate: 1gbit}}
sut: {kind: route}
axes:
  tests.load.path: [/?token=t0ken-1, /?token=t0ken-2]
tests:
  - {name: load, kind: http, duration: 1s, path: /?x=1}
  - name: more
    kind: http
    duration: 1s
    urls: ["weight=2 POST /a?page=1&api_key=t0ken-3"]
    headers: [{name: X-Auth-Key, secret: $AUTH_KEY}, {name: X-Amz-Credential, value: shown-1}]
    keep_headers: [X-Amz-Credential, sig]
  - {name: users, kind: scenario, file: users.yaml, params: {password: t0ken-4, page: "1"}}
"""


def test_secrets_of_a_plan_are_in_none_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own text, the command line, the cases' names and their tests; also after the conclusion."""
    monkeypatch.setenv("AUTH_KEY", "t0ken-5")
    (tmp_path / "plan.yaml").write_text(SECRET_PLAN)
    scenario = (
        "base: http://${param('server')}:${param('port')}\nload: {users: 1, iterations: 1}\n"
        "headers: {X-Own: \"${param('password')}\", X-Pin: \"${param('pin')}\"}\nget: \"/?q=${param('page')}\"\n"
    )
    (tmp_path / "users.yaml").write_text(scenario)
    overrides = ["tests.load.duration=2s", "tests.users.params.pin=t0ken-6"]
    plan = load_plan(tmp_path / "plan.yaml", overrides)
    assert [case.tests[0].model_copy().path for case in plan.cases] == ["/?token=t0ken-1", "/?token=t0ken-2"]  # type: ignore[attr-defined]
    argv = ["leadline", "run", "plan.yaml", *(word for one in overrides for word in ("--set", one))]
    folder = Campaign(plan, plan.cases, tmp_path / "runs", argv).prepare()
    manifest = folder.read_manifest()
    conclude(folder)
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    assert {"run.json", "findings.json", "report.html"} <= {path.name for path in files}
    assert [path.name for path in files if b"t0ken" in path.read_bytes()] == []
    assert [case["parameters"] for case in manifest["cases"]] == [
        {"tests.load.path": "/?token=*** #1"},
        {"tests.load.path": "/?token=*** #2"},
    ]
    assert manifest["command"].endswith("--set tests.load.duration=2s --set 'tests.users.params.pin=***'")
    load, more, users = manifest["cases"][0]["tests"]
    assert (load["path"], more["urls"][0]["path"]) == ("/?token=***", "/a?page=1&api_key=***")
    assert more["headers"][1] == {"name": "X-Amz-Credential", "value": "shown-1"}
    assert users["params"] == {"password": "***", "page": "1", "pin": "***"}
    assert "duration: 1s, path: /?x=1" in manifest["plan_text"] and "secret: $AUTH_KEY" in manifest["plan_text"]


def test_what_cannot_be_written_is_a_problem_and_no_half_of_it_stays(tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    with Journal(folder.journal_path) as journal:
        journal.append({"record": "run-end", "at_ns": 1, "status": "done"})
    folder.report_path.mkdir()  # nothing can take a folder's place
    outcome = conclude(folder)
    [problem] = outcome.problems
    assert problem.startswith(f"cannot write {folder.report_path}")
    assert outcome.analysis.status == "done"
    assert [path.name for path in folder.path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.usefixtures("damaged_journals")
def test_a_damaged_journal_is_reported_in_every_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = prepared(tmp_path)
    with folder.journal_path.open("ab") as journal:
        journal.write(b'{"record": "trial-begin", "trial": "c01/1", "case": "c01"}\n{"garbled\n')
        journal.write(b'{"host": "gateway", "event": {"type": "observation"}}\n{"record": "run-end", "status": "do')
    said = "2 of 4 lines of the journal could not be read (1 garbled, 1 without required fields)"
    assert report.command([folder.path]) == 0
    terminal = " ".join(capfd.readouterr().out.split())
    assert said in terminal
    assert "the journal's last line is torn" in terminal
    page = folder.report_path.read_text()
    assert said in page
    assert "last line is torn" in page
    report.command([folder.path], json=True)
    document = json.loads(capfd.readouterr().out)
    assert document["journal"] == {"lines": 4, "garbled": 1, "malformed": 1, "torn": True}
    assert said in json.dumps(document["validity"])
    for as_csv, as_json in ((False, False), (True, False), (False, True)):
        results.command([folder.path], as_csv=as_csv, json=as_json)
        captured = capfd.readouterr()
        assert f"{folder.run_id}: {said}" in captured.err
        assert "last line is torn" in captured.err
    assert json.loads(captured.out)["journals"] == {folder.run_id: document["journal"]}
