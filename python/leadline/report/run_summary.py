"""Draws the end of `leadline run`: what only some plans have, then the answer, which a small screen keeps.

The tables of clients, servers and gateways, the comparisons with their intervals and every reason are those of
`leadline report` and of the page. Arranges the results of `analysis`; computes no figure.
"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from leadline import quantities
from leadline.analysis.advice import ADVICE
from leadline.analysis.model import RunAnalysis, Verdict
from leadline.report import verdicts
from leadline.report.answers import answer_lines, next_steps
from leadline.report.brief import brief_reasons, common_cause, first_statements
from leadline.report.cross_checks import cross_check_lines
from leadline.report.ladders import ladder_blocks
from leadline.report.reasons import own_reasons
from leadline.report.scalings import scaling_table
from leadline.report.searches import searches_table
from leadline.report.text import bring_up_table, figures_table, fleet_table, given_system, targets_table, troubles
from leadline.report.tiers import tiers_table


def run_summary(analysis: RunAnalysis) -> list[RenderableType]:
    """The figures, the sentence of each case and the verdict, after the tables that only some plans have."""
    parts = [
        given_system(analysis),
        searches_table(analysis),
        cross_check_lines(analysis.cross_checks),
        bring_up_table(analysis) if _has_failed_clients(analysis) else None,
        fleet_table(analysis),
        *(scaling_table(found, found[0].axis, test) for test, found in analysis.scaling.items() if found),
        *ladder_blocks(analysis.ladders),
        tiers_table(analysis),
        troubles(analysis),
        targets_table(analysis),
        figures_table(analysis, is_brief=True),
        answer_lines(analysis, is_brief=True),
        brief_verdict_lines(analysis),
    ]
    return [part for part in parts if part is not None]


def brief_verdict_lines(analysis: RunAnalysis) -> RenderableType:
    """The run's verdict, the causes for which results are not valid, and the counts of trials and results."""
    headline = verdicts.headline(analysis)
    own = own_reasons(analysis)
    common = None if own else common_cause(analysis)
    causes = [] if common else [*(_cause(reason.text) for reason in own), *brief_reasons(analysis)]
    # Where causes follow, they and the counts say it all. Beside one, or beside advice against what is doubted, nothing
    # says that all can be believed.
    is_doubted = any(step in ADVICE.values() for step in next_steps(analysis.answers))
    is_silent = causes or (analysis.validity.verdict is Verdict.VALID and is_doubted)
    head = Text.assemble(
        (f"{headline.wording.mark} {headline.title}", f"bold {verdicts.TONES[headline.wording.tone]}"),
        "" if is_silent else f": {common or headline.wording.sentence}",
    )
    ending = [Text(verdicts.run_ending(analysis), style="bold red")] if analysis.status != "done" else []
    return Group(head, *causes, *ending, Text(_tally(analysis), style="dim"))


def _tally(analysis: RunAnalysis) -> str:
    targets = [f"targets: {verdicts.target_tally(analysis)}"] if analysis.targets else []
    notes = [quantities.counted(len(analysis.notes), "note")] if analysis.notes else []
    counts = [verdicts.trial_tally(analysis), f"results: {verdicts.result_tally(analysis)}", *targets, *notes]
    return f"{'; '.join(counts)}. All tables and reasons: `leadline report`, or --verbose."


def _cause(text: str) -> RenderableType:
    return Padding(Text(first_statements(text)), (0, 0, 0, 2), expand=False)


def _has_failed_clients(analysis: RunAnalysis) -> bool:
    found = (trial.bring_up for trial in analysis.trials)
    return any(one.partial or one.failed for one in found if one is not None)
