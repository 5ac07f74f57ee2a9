"""A run: its folder, its trials in order, and the findings at the end, even if trials fail."""

from __future__ import annotations

import shlex
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from leadline import __version__
from leadline.agents import ReachedHosts
from leadline.analysis import analyse
from leadline.analysis.model import TestResult
from leadline.dataset import Journal, RunFolder, read_journal
from leadline.errors import DatasetError
from leadline.masking import mask_document, mask_text, mask_yaml
from leadline.plan import Case, Plan, expected_seconds, schedule
from leadline.plan.external_inputs import redacted
from leadline.trial.case_record import case_record
from leadline.trial.event_log import EventLog
from leadline.trial.interrupt import Interrupt
from leadline.trial.notifications import (
    FirstRoundMeasured,
    Observer,
    RoundAdded,
    RoundsOutOfTime,
    RunBegan,
    RunEnded,
    TrialMeasured,
)
from leadline.trial.rounds import Rounds
from leadline.trial.runner import end_trial
from leadline.trial.trial_runner import RunContext, run_trial
from leadline.trial.unforeseen import unforeseen


@dataclass(frozen=True, slots=True)
class Campaign:
    """A run of a plan's cases into a folder."""

    plan: Plan
    cases: Sequence[Case]
    out: Path
    argv: Sequence[str]
    """The command line, with which to run it again."""

    async def run(self, folder: RunFolder, interrupt: Interrupt, observers: tuple[Observer, ...]) -> tuple[str, ...]:
        """Run every trial in order; returns the error that left the journal incomplete, if any."""
        async with aclosing(ReachedHosts()) as reached:
            return await self._run(folder, interrupt, observers, reached)

    async def _run(
        self, folder: RunFolder, interrupt: Interrupt, observers: tuple[Observer, ...], reached: ReachedHosts
    ) -> tuple[str, ...]:
        trials = schedule(self.cases, self.plan.repeat, self.plan.seed)
        problems: list[str] = []
        status = "done"
        current: str | None = None

        def tell_failure(error: Exception) -> None:
            problems.append(str(unforeseen(error, folder.logs_path / "display-traceback.log")))

        with Journal(folder.journal_path) as journal:
            event_log = EventLog(journal, observers, tell_failure)
            event_log.notify(RunBegan(len(trials), expected_seconds(trials)))
            context = RunContext(
                event_log, interrupt, folder.logs_path, self.plan.observe_period_ms, reached, self.plan.tolerate
            )
            try:
                event_log.record("run-begin", run_id=folder.run_id, trials=[trial.label for trial in trials])
                rounds, began_s = Rounds(self.plan, self.cases), time.monotonic()
                waiting, number = deque(trials), 0
                while waiting:
                    trial, number = waiting.popleft(), number + 1
                    current = trial.label
                    begin_byte = journal.size_bytes
                    ended = await run_trial(trial, number, context)
                    try:
                        # Read from disk: a trial's entries may take more memory than all its figures.
                        results = self._results(read_journal(folder.journal_path, begin_byte))
                        rounds.take(trial, ended, results)
                        event_log.notify(TrialMeasured(trial.label, results))
                        if (first := rounds.first_round(time.monotonic() - began_s)) is not None:
                            event_log.notify(FirstRoundMeasured(first))
                    except Exception as error:  # a failed display does not end the run
                        tell_failure(error)
                    current = None
                    if ended == "interrupted" or interrupt.asked.is_set():
                        status = "interrupted"
                        break
                    if ended == "failed":
                        status = "failed"
                    if not waiting and (more := rounds.next_round(time.monotonic() - began_s)):
                        event_log.record("round", trials=[trial.label for trial in more])
                        event_log.notify(RoundAdded(len(more), expected_seconds(more)))
                        waiting.extend(more)
                if rounds.is_out_of_time:
                    event_log.notify(RoundsOutOfTime())
                event_log.record("run-end", status=status)
            except DatasetError as error:
                status = "failed"
                problems.append(str(error))
                # The journal has some space in reserve for these; without any, the run looks like one that was killed.
                if current is not None:
                    end_trial(event_log, current, status, error, error=error)
                event_log.record_end("run-end", error, status=status)
            event_log.notify(RunEnded(status))
        return tuple(problems)

    def _results(self, entries: Iterable[dict[str, Any]]) -> tuple[TestResult, ...]:
        """The results of the trial with these entries."""
        manifest = {"plan": self.plan.document, "cases": [case_record(case) for case in self.cases]}
        return tuple(test for trial in analyse(manifest, entries).trials for test in trial.tests)

    def prepare(self) -> RunFolder:
        """Create the run's folder with its manifest. Raises DatasetError if there is no space."""
        folder = RunFolder.create(self.out, self.plan.name)
        # The journal first: a run that is killed right here can still be opened.
        with Journal(folder.journal_path):
            folder.write_manifest(self._manifest(folder))
        return folder

    def _manifest(self, folder: RunFolder) -> dict[str, Any]:
        trials = schedule(self.cases, self.plan.repeat, self.plan.seed)
        tests = [test for case in self.cases for test in case.tests]
        secrets = {secret for test in tests for secret in test.secrets}
        kept = {name for test in tests for name in test.kept_names}
        return {
            "schema": "leadline.run/1",
            "run_id": folder.run_id,
            "name": self.plan.name,
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "version": __version__,
            "command": shlex.join(redacted(self.argv, secrets, kept)),
            "plan_file": str(self.plan.path),
            "plan_text": mask_yaml(self.plan.text, kept),
            "plan": mask_document(self.plan.document, kept),
            "overrides": [mask_text(override, kept) for override in self.plan.overrides],
            "seed": self.plan.seed,
            "order": [trial.label for trial in trials],
            "cases": [case_record(case) for case in self.cases],
        }
