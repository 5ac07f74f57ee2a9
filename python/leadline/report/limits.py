"""Draws what limited each result of a run, for a terminal: every word with its results, and the evidence of the first.

The page and the documents have the evidence of all. Arranges the results of `analysis`; computes no figure.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from leadline.analysis.model import LimitedBy, RunAnalysis, Summary

_TITLE, _NOTE = "Limits", "what limited each result, and how that is known of the first"
_MOST_NAMED = 12


def limit_lines(analysis: RunAnalysis) -> RenderableType | None:
    """Two lines for each part that was a limit; None if no result has one."""
    found: dict[LimitedBy, list[Summary]] = {}
    for summary in analysis.summaries:
        if summary.limit is not None:
            found.setdefault(summary.limit.by, []).append(summary)
    lines: list[RenderableType] = []
    for by in sorted(found, key=list(LimitedBy).index):
        first = found[by][0]
        assert first.limit is not None
        lines.append(_indented(Text.assemble((f"{by.value}: ", "bold"), _named(found[by])), 1))
        lines.append(_indented(Text(first.limit.evidence, style="dim"), 3))
    if not lines:
        return None
    head = Text.assemble((_TITLE, "bold underline"), (f"  {_NOTE}", "dim"))
    return Group(head, *lines)


def _indented(line: Text, columns: int) -> RenderableType:
    return Padding(line, (0, 0, 0, columns), expand=False)


def _named(summaries: Sequence[Summary]) -> str:
    """`c01 tcp-up, tcp-down; c02 udp`."""
    by_case: dict[str, list[str]] = {}
    for summary in summaries[:_MOST_NAMED]:
        by_case.setdefault(summary.case, []).append(summary.test)
    named = "; ".join(f"{case} {', '.join(tests)}" for case, tests in by_case.items())
    more = len(summaries) - _MOST_NAMED
    return f"{named} and {more} more" if more > 0 else named
