"""A run: its folder, its trials in order, and the findings at the end, even if trials fail."""

from __future__ import annotations

import shlex
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from leadline import __version__
from leadline.analysis import analyse
from leadline.analysis.model import TestResult
from leadline.analysis.precision import is_precise
from leadline.dataset import Journal, RunFolder, read_journal
from leadline.errors import DatasetError
from leadline.masking import mask_document, mask_text, mask_yaml
from leadline.plan import Case, Plan, Trial, expected_seconds, one_round, schedule
from leadline.plan.external_inputs import redacted
from leadline.trial.case_record import case_record
from leadline.trial.event_log import EventLog
from leadline.trial.interrupt import Interrupt
from leadline.trial.notifications import Observer, RoundAdded, RunBegan, RunEnded, TrialMeasured
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
        trials = schedule(self.cases, self.plan.repeat, self.plan.seed)
        problems: list[str] = []
        status = "done"

        def tell_failure(error: Exception) -> None:
            problems.append(str(unforeseen(error, folder.logs_path / "display-traceback.log")))

        with Journal(folder.journal_path) as journal:
            event_log = EventLog(journal, observers, tell_failure)
            event_log.notify(RunBegan(len(trials), expected_seconds(trials)))
            context = RunContext(event_log, interrupt, folder.logs_path, self.plan.observe_period_ms)
            try:
                event_log.record("run-begin", run_id=folder.run_id, trials=[trial.label for trial in trials])
                rounds = Rounds(self.plan, self.cases)
                waiting, number = deque(trials), 0
                while waiting:
                    trial, number = waiting.popleft(), number + 1
                    begin_byte = journal.size_bytes
                    ended = await run_trial(trial, number, context)
                    try:
                        # Read from disk: a trial's entries may take more memory than all its figures.
                        results = self._results(read_journal(folder.journal_path, begin_byte))
                        rounds.take(trial, ended, results)
                        event_log.notify(TrialMeasured(trial.label, results))
                    except Exception as error:  # a failed display does not end the run
                        tell_failure(error)
                    if ended == "interrupted" or interrupt.asked.is_set():
                        status = "interrupted"
                        break
                    if ended == "failed":
                        status = "failed"
                    if not waiting and (more := rounds.further()):
                        event_log.record("round", trials=[trial.label for trial in more])
                        event_log.notify(RoundAdded(len(more), expected_seconds(more)))
                        waiting.extend(more)
                event_log.record("run-end", status=status)
            except DatasetError as error:
                status = "failed"
                problems.append(str(error))
                with suppress(DatasetError):  # a line this short may still fit on a full disk
                    event_log.record("run-end", status=status)
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


class Rounds:
    """Which cases of a plan that repeats until a precision need a further trial."""

    def __init__(self, plan: Plan, cases: Sequence[Case]) -> None:
        self._plan = plan
        self._cases = {case.id: case for case in cases}
        self._results: dict[str, list[TestResult]] = {case.id: [] for case in cases}
        self._trials: Counter[str] = Counter()

    def take(self, trial: Trial, ended: str, results: Iterable[TestResult]) -> None:
        """How one more trial ended, and its figures. A case that failed or was skipped would do so again."""
        self._trials[trial.case.id] += 1
        self._results[trial.case.id] += results
        if ended != "done":
            self._cases.pop(trial.case.id, None)

    def further(self) -> list[Trial]:
        """The next round: every case that is not known well enough and may have another trial."""
        until = self._plan.until
        if until is None:
            return []
        missing = [
            case
            for case in self._cases.values()
            if self._trials[case.id] < until.max
            and not is_precise(
                self._results[case.id],
                least=until.min,
                most=until.max,
                until=until.until,
                named=self._named(case),
                targets=self._plan.targets,
            )
        ]
        return one_round(missing, max(self._trials.values(), default=0) + 1, self._plan.seed) if missing else []

    def _named(self, case: Case) -> dict[str, list[str]]:
        """The figures that targets name, by the case's tests."""
        return {
            test.name: [target.metric for target in self._plan.targets if target.test in (None, test.name)]
            for test in case.tests
        }
