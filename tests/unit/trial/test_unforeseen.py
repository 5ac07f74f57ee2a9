"""Failures that nothing foresees: their trial is named and failed, the traceback kept, and the run goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leadline.dataset import RunFolder
from leadline.errors import AgentLost, DatasetError
from leadline.plan import load_plan
from leadline.trial import Campaign, Interrupt, conclude, conclusion, environment
from leadline.trial.notifications import Notification, TrialEnded
from leadline.trial.unforeseen import unforeseen

PLAN = """\
name: small
sut: {kind: route}
repeat: 2
tests: [{name: load, kind: http, duration: 1s, bearer: $TOKEN}]
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the plan with an `environment.build` that raises `failures` in turn; returns the folder and the problems."""
    monkeypatch.setenv("TOKEN", "s3cr3t-token")
    (tmp_path / "plan.yaml").write_text(PLAN)

    def go(*failures: Exception, observers: Any = ()) -> tuple[RunFolder, tuple[str, ...]]:
        left = list(failures)

        async def build(*_: object, **__: object) -> None:
            raise left.pop(0)

        monkeypatch.setattr(environment, "build", build)
        plan = load_plan(tmp_path / "plan.yaml")
        campaign = Campaign(plan, plan.cases, tmp_path / "runs", ["leadline"])
        folder = campaign.prepare()

        async def measured() -> tuple[str, ...]:
            return await campaign.run(folder, Interrupt(), tuple(observers))

        return folder, asyncio.run(measured())

    return go


def records(folder: RunFolder, kind: str) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in folder.journal_path.read_text().splitlines()]
    return [entry for entry in entries if entry.get("record") == kind]


def test_an_unforeseen_exception_fails_its_trial_and_the_run_goes_on(run: Any) -> None:
    folder, problems = run(ValueError("the moon is full"), AgentLost("gateway", "it fell silent"))
    ends = records(folder, "trial-end")
    assert [(end["trial"], end["status"], end["error"]["code"]) for end in ends] == [
        ("c01/1", "failed", "unforeseen"),
        ("c01/2", "failed", "agent_lost"),
    ]
    assert [end["status"] for end in records(folder, "run-end")] == ["failed"]
    message = ends[0]["error"]["message"]
    assert "ValueError: the moon is full" in message
    assert "logs/c01-1-traceback.log" in message
    traceback = (folder.logs_path / "c01-1-traceback.log").read_text()
    assert traceback.startswith("Traceback")
    assert "ValueError: the moon is full" in traceback
    assert not (folder.logs_path / "c01-2-traceback.log").exists()
    assert problems == ()
    outcome = conclude(folder)
    assert (outcome.analysis.status, outcome.problems) == ("failed", ())
    assert "the moon is full" in folder.report_path.read_text()


def test_a_group_is_named_by_what_is_unforeseen_in_it(run: Any) -> None:
    group = ExceptionGroup("tasks", [AgentLost("gateway", "gone"), ExceptionGroup("", [KeyError("flows")])])
    folder, _ = run(group, ExceptionGroup("tasks", [AgentLost("server", "gone")]))
    first, second = records(folder, "trial-end")
    assert (first["error"]["code"], second["error"]["code"]) == ("unforeseen", "agent_lost")
    assert "KeyError: 'flows'" in first["error"]["message"]
    assert "the agent on gateway is lost" in (folder.logs_path / "c01-1-traceback.log").read_text()


def test_a_journal_that_cannot_be_written_still_ends_the_run(run: Any) -> None:
    folder, problems = run(ExceptionGroup("tasks", [KeyError("flows"), DatasetError("no space left")]))
    assert problems == ("no space left",)
    assert [end["status"] for end in records(folder, "run-end")] == ["failed"]
    assert [(end["trial"], end["error"]["code"]) for end in records(folder, "trial-end")] == [("c01/1", "dataset")]


def test_no_secret_gets_into_a_traceback_or_a_journal(run: Any) -> None:
    folder, _ = run(ValueError("header: s3cr3t-token"), ValueError("x" * 5000))
    assert "s3cr3t" not in folder.journal_path.read_text()
    assert "header: ***" in (folder.logs_path / "c01-1-traceback.log").read_text()
    assert len(records(folder, "trial-end")[1]["error"]["message"]) < 600


@pytest.mark.parametrize(
    "secret", ["two  blanks", "a tab\tand\nlines", "it's", "back\\slash", 'quo"te', "gehéim", "bo\"th'"]
)
@pytest.mark.parametrize("write", [str, repr, ascii, json.dumps, lambda secret: repr({"a": f"'\"{secret}"})])
def test_secret_is_hidden_however_it_is_written(tmp_path: Path, secret: str, write: Callable[[str], str]) -> None:
    log, written = tmp_path / "traceback.log", write(secret)
    found = str(unforeseen(ValueError(f"said {written}"), log, secrets=[secret]))
    for text in (found, log.read_text()):
        assert "***" in text
        assert written not in text and " ".join(written.split()) not in text


def test_a_log_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    found = unforeseen(ValueError("a"), tmp_path / "taken")
    assert "ValueError: a; its traceback could not be written (Is a directory)" in str(found)


def test_a_display_that_fails_ends_no_trial_and_is_a_problem(run: Any) -> None:
    received: list[Notification] = []

    def broken(_: Notification) -> None:
        raise AttributeError("no such column")

    folder, problems = run(AgentLost("a", "x"), AgentLost("b", "x"), observers=(broken, received.append))
    assert [end["error"]["code"] for end in records(folder, "trial-end")] == ["agent_lost", "agent_lost"]
    assert len([notification for notification in received if isinstance(notification, TrialEnded)]) == 2
    [problem] = problems
    assert "AttributeError: no such column" in problem
    assert "no such column" in (folder.logs_path / "display-traceback.log").read_text()


def test_a_page_that_cannot_be_drawn_keeps_the_tables(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = run(AgentLost("a", "x"), AgentLost("b", "x"))

    def broken(*_: object) -> str:
        raise KeyError("chart")

    monkeypatch.setattr(conclusion, "render_html", broken)
    outcome = conclude(folder)
    assert "KeyError: 'chart'" in outcome.problems[0]
    assert (folder.path / "results.parquet").exists()
    assert len(outcome.analysis.trials) == 2
