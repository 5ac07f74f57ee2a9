"""Prints why results are not valid: each cause with its figures and the results that it concerns; advice once per code.

`analysis` makes a reason's text and has the advice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from leadline.analysis.advice import ADVICE
from leadline.analysis.model import Limit, LimitedBy, Reason, RunAnalysis, Summary, Verdict
from leadline.report import verdicts
from leadline.report.reason_groups import ReasonGroup, named_figures, reason_groups

# Reasons of a run that only count the results' verdicts, as the headline does.
_COUNTS = "results-"
# Verdicts that say themselves what the limit was.
_NAMES_A_LIMIT = (Verdict.GENERATOR_LIMITED, Verdict.RECEIVER_LIMITED)
# One or two screens; of further reasons only the codes are shown.
MOST_IN_FULL = 20


def why_not_valid(analysis: RunAnalysis) -> RenderableType | None:
    """The reasons for which results are not valid, each once with the results that it concerns, and advice; None if all
    are valid."""
    doubted = [summary for summary in analysis.summaries if summary.validity.verdict is not Verdict.VALID]
    if not doubted:
        return None
    lines: list[RenderableType] = [Text("Why results are not valid", style="bold underline")]
    order = list(dict.fromkeys(summary.case for summary in analysis.summaries))
    groups = reason_groups(doubted)
    for group in groups[:MOST_IN_FULL]:
        lines += _in_full(group, order)
    rest = groups[MOST_IN_FULL:]
    if rest:
        named = "; ".join(f"{group.code or 'no reason'}: {where_text(group.results, order)}" for group in rest)
        lines.append(_indented(Text(f"{len(rest)} more, in full in report.html: {named}"), 1))
    lines += advice_lines(code for summary in doubted for code in _codes(summary))
    return Group(*lines)


def reasons_of_results(analysis: RunAnalysis) -> list[tuple[str, ReasonGroup]]:
    """The reasons of results that are not valid, each once, with the names of its results; the run's own reasons are
    left out."""
    said = {reason.code for reason in (*analysis.validity.reasons, *analysis.notes)}
    doubted = [summary for summary in analysis.summaries if summary.validity.verdict is not Verdict.VALID]
    order = list(dict.fromkeys(summary.case for summary in analysis.summaries))
    groups = [group for group in reason_groups(doubted) if group.code and group.code not in said]
    return [(where_text(group.results, order), group) for group in groups]


def advice_lines(codes: Iterable[str]) -> list[RenderableType]:
    """The advice for these reasons, once per code."""
    known = [code for code in dict.fromkeys(codes) if code in ADVICE]
    if not known:
        return []
    lines = [_indented(Text.assemble((f"{code}: ", "dim"), ADVICE[code]), 2) for code in known]
    return [_indented(Text("What to do", style="bold"), 1), *lines]


def reason_line(reason: Reason, indent: int = 2) -> RenderableType:
    """A reason's code and text, and which figures it concerns where that is not all of them."""
    return _indented(Text.assemble((f"{reason.code}: ", "dim"), reason.text, (concerned(reason), "dim")), indent)


def limit_line(limit: Limit, indent: int = 2) -> RenderableType:
    """`limited by the link: lan of gateway (sent) carried 99.1 of 100 Mbit/s, headers included`."""
    return _indented(Text.assemble((f"{limited_by(limit)}: ", "dim"), limit.evidence), indent)


def limit_word(summary: Summary) -> str:
    """The part that limited a test, for a cell beside its verdict; empty if that names it, or it is not known."""
    limit = summary.limit
    if limit is None or limit.by is LimitedBy.UNKNOWN or summary.validity.verdict in _NAMES_A_LIMIT:
        return ""
    return "offered" if limit.by is LimitedBy.OFFERED_RATE else limit.by.value


def limited_by(limit: Limit) -> str:
    """The limit in words."""
    return "what limited it is not known" if limit.by is LimitedBy.UNKNOWN else f"limited by the {limit.by.value}"


def concerned(reason: Reason) -> str:
    """` (jitter_us only)`: the figures that a reason concerns; empty where it is all of them, or too many to name."""
    return _only(reason.metrics)


def _only(metrics: Sequence[str]) -> str:
    named = named_figures(metrics)
    return f" ({', '.join(named)} only)" if named else ""


def own_reasons(analysis: RunAnalysis) -> list[Reason]:
    """The run's reasons without those that count the results."""
    return [reason for reason in analysis.validity.reasons if not reason.code.startswith(_COUNTS)]


def _in_full(group: ReasonGroup, order: Sequence[str]) -> list[RenderableType]:
    """What it is and which results it concerns, then the evidence."""
    marked = ("", "")
    if group.verdict is not None:
        wording = verdicts.WORDINGS[group.verdict]
        marked = (f"  {wording.mark} {group.verdict.value}", verdicts.TONES[wording.tone])
    head = Text.assemble((where_text(group.results, order), "bold"), marked)
    code = f"{group.code}: " if group.code else ""
    return [_indented(head, 1), _indented(Text.assemble((code, "dim"), group.text, (_only(group.metrics), "dim")), 3)]


def where_text(results: Sequence[Summary], order: Sequence[str]) -> str:
    """`c01 to c04 tcp-up, udp; c07 udp`: cases that have the same tests together."""
    tests: dict[str, list[str]] = {}
    for one in results:
        tests.setdefault(one.case, []).append(one.test)
    alike: dict[tuple[str, ...], list[str]] = {}
    for case, names in tests.items():
        alike.setdefault(tuple(dict.fromkeys(names)), []).append(case)
    return "; ".join(f"{_cases(cases, order)} {', '.join(names)}" for names, cases in alike.items())


def _cases(cases: Sequence[str], order: Sequence[str]) -> str:
    """The cases, with `to` between the ends of three or more that follow each other in the run."""
    runs: list[list[str]] = []
    for case in sorted(cases, key=order.index):
        if runs and order.index(runs[-1][-1]) + 1 == order.index(case):
            runs[-1].append(case)
        else:
            runs.append([case])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def _codes(summary: Summary) -> list[str]:
    return list(dict.fromkeys(reason.code for reason in summary.validity.reasons))


def _indented(text: Text, by: int) -> RenderableType:
    return Padding(text, (0, 0, 0, by), expand=False)
