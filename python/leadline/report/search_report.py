"""Draws a capacity search for a terminal: each trial with its deciding reason, and the rate found with its bounds.

`trial.capacity_search` has decided the bounds.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.model import Metric, Validity, Verdict
from leadline.analysis.search_findings import Trial
from leadline.report import verdicts
from leadline.report.brief import brief_verdict, first_statement
from leadline.report.searches import outcome
from leadline.report.text import TONES, verdict_block


def found_rate(
    rate: Metric, reference: tuple[str, Metric] | None, conditions: str, validity: Validity, *, verbose: bool = False
) -> RenderableType:
    """The interval, the rate reached without a rate (its name first) if it is to be shown, the rate found, and the
    verdict. The trials are printed above, each when it ends."""
    tone = TONES[verdicts.WORDINGS[validity.verdict].tone]
    headline = Text.assemble((_headline(rate, validity), f"bold {tone}"), f"  highest rate with {conditions}")
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    facts.add_row("between", interval(rate))
    if reference is not None:
        facts.add_row(reference[0], quantities.rate_in_full(reference[1].value))
    judged = verdict_block if verbose else brief_verdict
    return Group(Padding(facts, (0, 0, 0, 2), expand=False), Text(""), headline, judged(validity))


def interval(rate: Metric) -> str:
    """Both bounds, as far as they are known."""
    if rate.low is None and rate.high is None:
        return "unknown"
    low = "no rate that holds" if rate.low is None else f"{quantities.rate_in_full(rate.low)}, which holds,"
    high = "no known limit" if rate.high is None else f"{quantities.rate_in_full(rate.high)}, which does not"
    return f"{low} and {high}"


def trials_head() -> RenderableType:
    """The column titles above the trials."""
    return _trials_grid(Text("rate"), Text("for"), Text(""), Text("because"), style="dim")


def trial_row(trial: Trial, *, verbose: bool = False) -> RenderableType:
    """One trial, in the columns of `trials_head`, with the first statement of its reason or with all of it; printed
    when it ends."""
    length = quantities.seconds(trial.duration_s)
    why = trial.why if verbose else first_statement(trial.why)
    return _trials_grid(Text(quantities.rate_in_full(trial.rate_per_s)), Text(length), Text(outcome(trial)), Text(why))


def trial_line(number: int, trial: Trial) -> str:
    """One trial as a line of progress."""
    where = f"{quantities.rate_in_full(trial.rate_per_s)} for {quantities.seconds(trial.duration_s)}"
    return f"trial {number}: {where} {outcome(trial)}: {trial.why}"


def _headline(rate: Metric, validity: Validity) -> str:
    if rate.value is None:
        if rate.high is None:
            return "unknown"
        return "none" if validity.verdict is Verdict.VALID else f"< {quantities.rate_in_full(rate.high)}"
    # Without a settled upper bound, the rate is a lower bound.
    least = rate.high is None or validity.verdict is not Verdict.VALID
    return f"{'≥ ' if least else ''}{quantities.rate_in_full(rate.value)}"


def _trials_grid(rate: Text, length: Text, outcome: Text, why: Text, style: str = "") -> RenderableType:
    """One line of the trials; its widths are fixed, because the following lines are unknown."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True, min_width=_RATE_WIDTH, style=style)
    table.add_column(justify="right", no_wrap=True, min_width=_LENGTH_WIDTH, style=style)
    table.add_column(no_wrap=True, min_width=_OUTCOME_WIDTH, style=style)
    table.add_column(overflow="fold", style=style)
    table.add_row(rate, length, outcome, why)
    return Padding(table, (0, 0, 0, 2), expand=False)


_RATE_WIDTH = len("1,234,567/s")
_LENGTH_WIDTH = len("10.0 s")
_OUTCOME_WIDTH = len("generator-limited")
