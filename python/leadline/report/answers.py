"""Arranges the sentences of `analysis` for a terminal and for the top of the page. Makes none, computes no figure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline.analysis.model import Answer, Certainty, LimitedBy, RunAnalysis, TestAnswer, Verdict
from leadline.report import verdicts

MOST_IN_TERMINAL = 30
"""Cases whose sentences a terminal shows."""
MOST_AT_ONCE = 24
"""Cases whose sentences the page shows before it is asked for more."""


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One case's answer, and what is drawn beside it."""

    answer: Answer
    test: TestAnswer | None
    verdict: Verdict | None
    length: float | None
    """The ratio to the baseline, percent of the longest bar; None without a ratio."""
    low: float | None
    high: float | None
    baseline: float
    """Where the baseline's bar ends, percent."""


def answer_rows(analysis: RunAnalysis) -> list[AnswerRow]:
    """A row for each case; bars are drawn where ratios are known."""
    leads = [(answer, _lead(answer)) for answer in analysis.answers]
    ends = [end for _, test in leads for end in _drawn(test) if end is not None]
    longest = max([1.0, *ends])
    found = {(summary.case, summary.test): summary.validity.verdict for summary in analysis.summaries}
    rows = []
    for answer, test in leads:
        lengths = [None if ratio is None else max(0.0, ratio) / longest * 100 for ratio in _drawn(test)]
        verdict = found.get((answer.case, answer.lead or ""))
        rows.append(AnswerRow(answer, test, verdict, lengths[0], lengths[1], lengths[2], 100 / longest))
    return rows


def next_steps(answers: Iterable[Answer]) -> dict[str, list[str]]:
    """What to do next, each once, with the cases that it is about."""
    found: dict[str, list[str]] = {}
    for answer in answers:
        if answer.next_step is not None:
            found.setdefault(answer.next_step, []).append(answer.case)
    return found


def answer_lines(analysis: RunAnalysis, *, is_brief: bool = False) -> RenderableType | None:
    """The sentence of each case and what to do next, and its cost if there is room; None for a run without cases."""
    shown, rest = analysis.answers[:MOST_IN_TERMINAL], analysis.answers[MOST_IN_TERMINAL:]
    if not shown:
        return None
    table = Table.grid(padding=(0, 2, 0, 1))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for answer in shown:
        test = _lead(answer)
        more = [] if is_brief else [test.cost if test is not None else None, open_questions(answer)]
        rest_of_it = "".join(f" {text}" for text in more if text)
        table.add_row(Text(answer.case), Text.assemble(answer.sentence, (rest_of_it, "dim")))
    if rest:
        table.add_row(Text(""), Text(f"{len(rest)} more cases in report.html", style="dim"))
    lines: list[RenderableType] = [Text("What the figures say", style="bold underline"), table]
    for step, cases in next_steps(shown).items():
        whose = "" if len(cases) == len(shown) > 1 else f"{', '.join(cases)}: "
        said = step.partition("; ")[0] if is_brief else step
        lines.append(Padding(Text.assemble(("Next: ", "bold"), f"{whose}{said}"), (0, 0, 0, 1), expand=False))
    return Group(*lines)


def open_questions(answer: Answer) -> str:
    """Which of a case's tests leave a question open; empty if its own sentence says so, or none does."""
    names = [test.test for test in answer.tests if test.certainty is Certainty.CANNOT_TELL]
    return f"Not known: how it does in {', '.join(names)}." if names and answer.lead not in names else ""


def tone_of(row: AnswerRow) -> str:
    """The tone of the verdict on the sentence's test."""
    return verdicts.WORDINGS[row.verdict].tone if row.verdict is not None else "bad"


def _lead(answer: Answer) -> TestAnswer | None:
    return next((test for test in answer.tests if test.test == answer.lead), None)


def _drawn(test: TestAnswer | None) -> tuple[float | None, float | None, float | None]:
    """The ratio and its interval; none where the load was given, since that compares no capacity."""
    if test is None or test.limit is LimitedBy.OFFERED_RATE:
        return None, None, None
    return test.ratio, test.low, test.high
