"""The short forms of verdicts and reasons for a terminal: one cause in one sentence.

`--verbose`, `leadline report` and the page have every reason with its evidence. Makes no figure and no reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from leadline import quantities
from leadline.analysis.advice import ADVICE
from leadline.analysis.machine_rules import RULES_OFF
from leadline.analysis.model import Limit, LimitedBy, Reason, RunAnalysis, Summary, Validity, Verdict
from leadline.report import verdicts
from leadline.report.reason_groups import ReasonGroup, named_figures, reason_groups
from leadline.report.reasons import limited_by, where_text

MAX_CAUSES = 3
"""Causes that the end of a run or a ladder names; the others are counted."""
_IN_BRACKETS = re.compile(r" \([^()]*\)")
_ROOM = 145
"""Columns of two lines that a mark and a verdict leave."""
_UNITS = ("_per_s", "_bps", "_us", "_ms", "_ratio")


def first_statement(text: str) -> str:
    """The first statement of a reason, without the evidence in brackets."""
    return _IN_BRACKETS.sub("", text.partition("; ")[0])


def first_statements(text: str) -> str:
    """The statements of a reason that two lines have room for, without the evidence in brackets; one at least."""
    first, *others = _IN_BRACKETS.sub("", text).split("; ")
    for other in others:
        if len(first) + len(other) > _ROOM:
            break
        first = f"{first}; {other}"
    return first


def deciding_reason(validity: Validity) -> Reason | None:
    """The reason that gave a result its verdict; None for a valid one, or where no reason is known."""
    if validity.verdict is Verdict.VALID or not validity.reasons:
        return None
    own = (reason for reason in validity.reasons if reason.verdict in (validity.verdict, None))
    return next(own, validity.reasons[0])


def brief_verdict(validity: Validity, limit: Limit | None = None) -> RenderableType:
    """A verdict with its one reason, and what to do about it; for a valid result what limited it, and the first doubt
    about one of its other figures."""
    wording = verdicts.WORDINGS[validity.verdict]
    mark = (f"{wording.mark} {validity.verdict.value}", f"bold {verdicts.TONES[wording.tone]}")
    reason = deciding_reason(validity)
    lines: list[RenderableType] = []
    if validity.verdict is Verdict.VALID:
        doubt = next(iter(validity.reasons), None)
        lines.append(Text.assemble(mark, _valid_because(limit, validity)))
        if doubt is not None:
            lines.append(_indented(Text.assemble((f"{_doubted(doubt)}: ", "bold"), first_statements(doubt.text))))
    else:
        lines.append(Text.assemble(mark, f": {wording.sentence if reason is None else first_statements(reason.text)}"))
        if reason is not None and reason.code in ADVICE:
            lines.append(_indented(Text.assemble(("To do: ", "bold"), ADVICE[reason.code].partition("; ")[0])))
    note = _note(validity)
    if note is not None:
        lines.append(_indented(Text(f"note: {first_statements(note.text)}", style="dim")))
    return Group(*lines, *_hidden(validity, note))


def brief_reasons(analysis: RunAnalysis) -> list[RenderableType]:
    """The causes for which results are not valid: each in one sentence, with the results that it decided."""
    groups = _deciding_groups(analysis)
    order = list(dict.fromkeys(summary.case for summary in analysis.summaries))
    lines = [_group_line(group, order) for group in groups[:MAX_CAUSES]]
    if len(groups) > MAX_CAUSES:
        rest = quantities.counted(sum(len(group.results) for group in groups[MAX_CAUSES:]), "result")
        more = quantities.counted(len(groups) - MAX_CAUSES, "more cause")
        lines.append(_indented(Text(f"{more} of {rest}", style="dim")))
    return lines


def common_cause(analysis: RunAnalysis) -> str | None:
    """The one cause for which no result of a run is valid; None where there is more than one, or a valid result."""
    groups = _deciding_groups(analysis)
    is_common = len(groups) == 1 and groups[0].code and len(groups[0].results) == len(analysis.summaries)
    return groups[0].text if is_common else None


def _deciding_groups(analysis: RunAnalysis) -> list[ReasonGroup]:
    """The deciding reasons of all results that are not valid, those with most results first."""
    decided: list[Summary] = []
    for summary in analysis.summaries:
        if summary.validity.verdict is Verdict.VALID:
            continue
        reason = deciding_reason(summary.validity)
        # Whatever figures it names, it decided on the whole result.
        kept = () if reason is None else (replace(reason, text=first_statement(reason.text), metrics=()),)
        decided.append(replace(summary, validity=Validity(summary.validity.verdict, kept)))
    return sorted(reason_groups(decided), key=lambda group: -len(group.results))


def _group_line(group: ReasonGroup, order: Sequence[str]) -> RenderableType:
    mark = ("", "")
    if group.verdict is not None:
        wording = verdicts.WORDINGS[group.verdict]
        mark = (f" {wording.mark} {group.verdict.value}", verdicts.TONES[wording.tone])
    return _indented(Text.assemble((where_text(group.results, order), "bold"), mark, f": {group.text}"))


def _valid_because(limit: Limit | None, validity: Validity) -> str:
    """`: limited by the link: lan of gateway carried 99.1 of 100 Mbit/s`."""
    if limit is not None and limit.by is not LimitedBy.UNKNOWN:
        return f": {limited_by(limit)}: {first_statements(limit.evidence)}"
    if validity.reasons:
        return ""
    unknown = " What limited them is not known." if limit is not None else ""
    return f": {verdicts.sentence_of(validity)}{unknown}"


def _doubted(reason: Reason) -> str:
    """`jitter is doubted`, by this reason."""
    names = [spoken(name) for name in named_figures(reason.metrics)]
    if len(names) == 1:
        return f"{names[0]} is doubted"
    return f"{', '.join(names) or 'other figures'} are doubted"


def spoken(metric: str) -> str:
    """`bytes_received` as `bytes received`; without the unit at the end, which the value has."""
    for unit in _UNITS:
        metric = metric.removesuffix(unit)
    return metric.replace("_", " ")


def _note(validity: Validity) -> Reason | None:
    """The one note that is worth a line: that rules are off; of the others none beside doubts, which are worse."""
    off = next((note for note in validity.notes if note.code == RULES_OFF), None)
    return off or (None if validity.reasons else next(iter(validity.notes), None))


def _hidden(validity: Validity, note: Reason | None) -> list[RenderableType]:
    """How many reasons and notes only `--verbose` shows."""
    reasons = len(validity.reasons) - bool(validity.reasons)
    notes = len(validity.notes) - (note is not None)
    parts = [quantities.counted(reasons, "more reason")] if reasons else []
    parts += [quantities.counted(notes, "more note" if note else "note")] if notes else []
    return [_indented(Text(f"{', '.join(parts)}: --verbose", style="dim"))] if parts else []


def _indented(text: Text) -> RenderableType:
    return Padding(text, (0, 0, 0, 2), expand=False)
