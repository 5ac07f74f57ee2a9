"""What a run tells of a trial that has ended: the same findings as at the end; a failure to make them ends no run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from leadline.analysis import analyse
from leadline.dataset import JournalReader, RunFolder
from leadline.plan import Trial, load_plan
from leadline.trial import Campaign, Interrupt, Notification, TrialMeasured, campaign, conclude
from leadline.trial.trial_runner import RunContext

PLAN = """\
name: small
sut: {kind: route}
repeat: 2
limits: {stability: {spread: SPREAD}}
tests: [{name: load, kind: tcp, duration: 2s}]
"""
MS, S = 1_000_000, 1_000_000_000


async def faster_in_its_second_half(trial: Trial, number: int, context: RunContext) -> str:
    """A trial of 2 s whose flow moves 1 MB in the first half and 2 MB in the second, as its journal has it."""
    event_log, label = context.event_log, f"{trial.label}/load"
    test = {"name": "load", "kind": "tcp", "duration_ms": 2000, "interval_ms": 100, "direction": "up"}
    event_log.record("trial-begin", trial=trial.label, case=trial.case.id, repeat=trial.repeat, parameters={})
    event_log.record("test-begin", label=label, test=test, hosts=["client1"], start_at_ns=0)
    common = {"trial": label, "task": "load"}
    for t_ms in range(100, 2001, 100):
        moved = 1000 * (t_ms + max(0, t_ms - 1000))
        row = {"flow": 0, "sent_bytes": moved, "received_bytes": moved}
        event = {"type": "progress", **common, "t_ns": t_ms * MS, "side": "peer", "flows": [row], "histograms": []}
        event_log._sink.append({"host": "client1", "event": event})
    span = {"due_ns": 0, "start_ns": 0, "end_ns": 2 * S}
    flow = {"flow": 0, "direction": "up", **span, "sent_bytes": 3_000_000, "received_bytes": 3_000_000}
    thread = {"name": "t", "user_s": 0.1, "system_s": 0.1, "runnable_wait_s": 0.0, "wall_s": 2.0}
    work = {"side": "local", "wall_s": 2.0, "threads": [thread], "pushback": 0, "socket_drops": None}
    outcome = {
        "flows": [flow],
        "histograms": [],
        "errors": {},
        "generator": work,
        "receiver": {**work, "side": "peer"},
        "counts": {},
    }
    finished = {"type": "finished", **common, "t_ns": 2 * S, "outcome": outcome}
    event_log._sink.append({"host": "client1", "event": finished})
    event_log.record("test-end", label=label, status="done", error=None)
    event_log.record("trial-end", trial=trial.label, status="done", error=None)
    return "done"


def run(spread: str, tmp_path: Path) -> tuple[list[TrialMeasured], RunFolder, tuple[str, ...]]:
    """The notifications of the trials, the run's folder, and the problems."""
    (tmp_path / "plan.yaml").write_text(PLAN.replace("SPREAD", spread))
    plan = load_plan(tmp_path / "plan.yaml")
    small = Campaign(plan, plan.cases, tmp_path / "runs", ["leadline"])
    folder = small.prepare()
    notifications: list[Notification] = []
    problems = asyncio.run(small.run(folder, Interrupt(), (notifications.append,)))
    return [notification for notification in notifications if isinstance(notification, TrialMeasured)], folder, problems


@pytest.mark.parametrize(("spread", "disagree"), [("10%", True), ("90%", False)])
def test_trial_headline_has_the_verdict_by_the_plans_limit(
    spread: str, disagree: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "run_trial", faster_in_its_second_half)
    measured, folder, problems = run(spread, tmp_path)
    assert (len(measured), problems) == (2, ())
    at_the_end = conclude(folder).analysis.trials
    for trial, notification in zip(at_the_end, measured, strict=True):
        assert notification.label == trial.trial
        assert [found.metrics for found in notification.results] == [found.metrics for found in trial.tests]
        assert [found.validity.verdict for found in notification.results] == [
            found.validity.verdict for found in trial.tests
        ]
        codes = {reason.code for found in notification.results for reason in found.validity.reasons}
        assert ("change-point" in codes) is disagree


def test_figures_of_a_trial_are_read_from_its_part_of_the_journal_and_not_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[str]] = []

    def note(manifest: Any, entries: Any) -> Any:
        assert isinstance(entries, JournalReader)
        read.append([entry["trial"] for entry in entries if entry.get("record") in ("trial-begin", "trial-end")])
        return analyse(manifest, entries)

    monkeypatch.setattr(campaign, "run_trial", faster_in_its_second_half)
    monkeypatch.setattr(campaign, "analyse", note)
    measured, _, problems = run("90%", tmp_path)
    assert problems == ()
    assert read == [[notification.label] * 2 for notification in measured] and len(read) == 2


def test_failure_to_find_the_figures_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("no figures today")

    monkeypatch.setattr(campaign, "run_trial", faster_in_its_second_half)
    with monkeypatch.context() as patched:
        patched.setattr(campaign, "analyse", fail)
        measured, folder, problems = run("10%", tmp_path)
    assert measured == []
    assert len(problems) == 2 and all("no figures today" in problem for problem in problems)
    analysis = conclude(folder).analysis
    assert (analysis.status, len(analysis.trials)) == ("done", 2)
