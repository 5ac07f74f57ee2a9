"""The wording of verdicts, targets and outcomes, shared by the terminal and the page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from leadline.analysis.model import RunAnalysis, Summary, TargetResult, Validity, Verdict
from leadline.analysis.rough_figures import has_rough_figures
from leadline.errors import without_log


@dataclass(frozen=True, slots=True)
class Wording:
    """The wording of a verdict: a sentence, a mark that needs no colour, and a tone from `good` to `bad`."""

    sentence: str
    mark: str
    tone: str


WORDINGS: dict[Verdict, Wording] = {
    Verdict.VALID: Wording("These figures can be believed.", "✓", "good"),
    Verdict.GENERATOR_LIMITED: Wording(
        "The load generator was at its end: figures with ≥ or ≤ are bounds of what the measured system does.",
        "≥",
        "bounded",
    ),
    Verdict.RECEIVER_LIMITED: Wording(
        "The answering side was at its end: figures with ≥ or ≤ are bounds of what the system before it does.",
        "≥",
        "bounded",
    ),
    Verdict.DISTURBED: Wording(
        "Something else used the machine meanwhile: on a quiet one the figure may be better.", "!", "doubtful"
    ),
    Verdict.UNSTABLE: Wording("Repeats or intervals disagree too much for one figure.", "≈", "doubtful"),
    Verdict.UNDETERMINED: Wording(
        "Evidence is missing: these figures are neither confirmed nor refuted.", "?", "doubtful"
    ),
    Verdict.INCOMPLETE: Wording("Not everything that should have been measured was.", "!", "bad"),
}

VALID_BUT = "The leading figure can be believed; those that a reason names cannot."
"""In place of the sentence of a valid result that has a reason against one of its other figures."""

VALID_ROUGHLY = "The leading figure can be believed; others are known roughly, as a note says."
"""In place of the same sentence where one of the main figures is known less well than the limit."""

TONES = {"good": "green", "bounded": "yellow", "doubtful": "yellow", "bad": "red"}
"""The colour of each tone in a terminal."""

OUTCOMES: dict[str, Wording] = {
    "met": Wording("met", "✓", "good"),
    "missed": Wording("missed", "✗", "bad"),
    "undecided": Wording("undecided", "?", "doubtful"),
}

_ENDINGS = {
    "done": "completed",
    "failed": "failed",
    "interrupted": "was interrupted; the results until then are kept",
    "killed": "was killed; the results until then are kept",
}


def why_ended(status: str, error: str | None) -> str:
    """Why a trial or a test did not complete: its error, or the meaning of its status."""
    return error or _WITHOUT_ERROR.get(status, _WITHOUT_ERROR["failed"])


_WITHOUT_ERROR = {
    "interrupted": "stopped on request; the results until then are kept",
    "killed": "its run was killed; the results until then are kept",
    "failed": "no error was recorded; see the run's journal and logs/",
    "skipped": "skipped as the plan allows",
}


@dataclass(frozen=True, slots=True)
class Headline:
    """The headline of a run, and its wording."""

    title: str
    wording: Wording


def sentence_of(validity: Validity) -> str:
    """The sentence of a result's verdict. All of a valid one can be believed only if its main figures are known within
    the limit."""
    if validity.verdict is Verdict.VALID and validity.reasons:
        return VALID_BUT
    if validity.verdict is Verdict.VALID and has_rough_figures(validity.notes):
        return VALID_ROUGHLY
    return WORDINGS[validity.verdict].sentence


def headline(analysis: RunAnalysis) -> Headline:
    """The run's verdict; if its results have different ones, the number of valid ones."""
    found = Counter(summary.validity.verdict for summary in analysis.summaries)
    worst = WORDINGS[analysis.validity.verdict]
    if analysis.validity.verdict is Verdict.VALID and any(
        has_rough_figures(summary.validity.notes) for summary in analysis.summaries
    ):
        worst = replace(worst, sentence=VALID_ROUGHLY)
    whole = (
        not analysis.missing_trials
        and analysis.status == "done"
        and all(trial.status in ("done", "skipped") for trial in analysis.trials)
    )
    if len(found) < 2 or not whole:
        return Headline(analysis.validity.verdict.value.capitalize(), worst)
    others = ", ".join(
        f"{number} {verdict.value}" for verdict, number in found.most_common() if verdict is not Verdict.VALID
    )
    tone = worst.tone if worst.tone == "bad" else "doubtful"
    title = f"{found[Verdict.VALID]} of {_plural(found.total(), 'result')} can be believed"
    # A separate mark: one of a single verdict, such as ≥, would be read with the number.
    return Headline(title, Wording(f"The others: {others}.", "◐", tone))


def outcome_wording(target: TargetResult) -> Wording:
    """The wording of a target's outcome; an unknown outcome counts as undecided."""
    return OUTCOMES.get(target.outcome, OUTCOMES["undecided"])


def run_ending(analysis: RunAnalysis) -> str:
    """How the run ended, as one sentence."""
    return f"The run {_ENDINGS.get(analysis.status, analysis.status)}."


def trial_tally(analysis: RunAnalysis) -> str:
    """`8 of 12 trials done, 1 failed, 3 not begun`."""
    ends = Counter(trial.status for trial in analysis.trials)
    rest = "".join(f", {number} {status}" for status, number in sorted(ends.items()) if status != "done")
    missing = len(analysis.missing_trials)
    rest += f", {missing} not begun" if missing else ""
    return f"{ends['done']} of {_plural(len(analysis.trials) + missing, 'trial')} done{rest}"


def failed_repeats(analysis: RunAnalysis, summary: Summary) -> str:
    """`1 of 3 failed`: the repeats that did not complete, of all that began; empty if all completed."""
    began = sum(trial.case == summary.case and trial.status != "skipped" for trial in analysis.trials)
    return f"{summary.failed} of {began} failed" if summary.failed else ""


def result_tally(analysis: RunAnalysis) -> str:
    """`14 valid, 2 generator-limited`: the summaries' verdicts, the most frequent first."""
    verdicts = Counter(summary.validity.verdict.value for summary in analysis.summaries)
    return ", ".join(f"{number} {verdict}" for verdict, number in verdicts.most_common()) or "no results"


def target_tally(analysis: RunAnalysis) -> str:
    """`2 met, 1 missed`; empty if the plan has no targets."""
    outcomes = Counter(target.outcome for target in analysis.targets)
    return ", ".join(f"{outcomes[name]} {name}" for name in OUTCOMES if outcomes[name])


@dataclass(frozen=True, slots=True)
class Trouble:
    """A trial or a test that did not complete."""

    where: str
    """Its name: `c01/1` is a trial, `c01/1/tcp` a test."""
    status: str
    why: str


def troubles(analysis: RunAnalysis) -> list[Trouble]:
    """The trials that did not complete, and the tests that failed for other reasons than their trials. Of equal
    failures the first has the daemon's log."""
    found: list[Trouble] = []
    logged: set[str] = set()

    def add(where: str, status: str, error: str | None) -> None:
        why = why_ended(status, error)
        found.append(Trouble(where, status, without_log(why) if without_log(why) in logged else why))
        logged.add(without_log(why))

    for trial in analysis.trials:
        if trial.status != "done":
            add(trial.trial, trial.status, trial.error)
        for test in trial.tests:
            if test.status != "done" and without_log(test.error or "") != without_log(trial.error or ""):
                add(f"{trial.trial}/{test.test}", test.status, test.error)
    return found


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
