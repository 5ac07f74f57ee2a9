"""Draws a replay: where its requests came from, what was left out, how late they were, and what differed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.model import TestResult
from leadline.analysis.replay_model import ReplayDifference, ReplayFindings
from leadline.report.page_tables import PageTable

_MAX_ROWS = 12
_MAX_PAGE_ROWS = 200
_CAUSES = {
    "writing_method": "have a method that changes something (--writes sends those whose bodies the source has)",
    "body_missing": "had a body that the source does not have",
    "not_chosen": "were not chosen",
    "not_a_request": "were no requests",
    "malformed": "do not have the format",
    "cut_off": "were cut off where they were written",
    "tls": "connections were encrypted",
    "gap": "had a gap in the capture",
    "unfinished": "were not complete",
    "upgraded": "connections became another protocol",
    "too_large": "were too large",
}


def source_rows(result: TestResult) -> list[tuple[str, str]]:
    """The source, what was left out of it, and how late its requests were, in a line each."""
    found = None if result.scenario is None else result.scenario.replay
    if found is None or result.scenario is None:
        return []
    length = "" if found.length_ms is None else f" over {quantities.seconds(found.length_ms / 1000)}"
    rows = [("source", f"{found.read:,} requests, {found.format}{length}")]
    rows.append(("sessions", f"{found.sessions:,}, by {found.sessions_by}"))
    if found.left_out:
        rows.append(
            ("left out", "; ".join(f"{count:,} {_CAUSES.get(cause, cause)}" for cause, count in _causes(found)))
        )
    rows.append(("sent behind its time", _behind(result, found)))
    if found.compared:
        share = quantities.share(found.differing / found.compared)
        unread = f"; the bodies of {found.not_compared:,} could not be compared" if found.not_compared else ""
        rows.append(("answers", f"{found.compared:,} compared, {found.differing:,} differ ({share}){unread}"))
    return rows


def _causes(found: ReplayFindings) -> Sequence[tuple[str, int]]:
    return sorted(found.left_out.items(), key=lambda item: -item[1])


def _behind(result: TestResult, found: ReplayFindings) -> str:
    """How far behind the source's times requests were sent."""
    p50, p99 = (result.value(f"behind_{name}_us") for name in ("p50", "p99"))
    text = f"p50 {quantities.microseconds(p50)}, p99 {quantities.microseconds(p99)}"
    text += f"; {found.waited:,} waited for the answer before them" if found.waited else ""
    text += f"; {found.reordered:,} lay too far back in the source and were sent at once" if found.reordered else ""
    dropped = 0 if result.scenario is None else sum(group.dropped for group in result.scenario.groups)
    return text + (f"; {dropped:,} were dropped, because too many waited" if dropped else "")


def difference_tables(result: TestResult) -> list[RenderableType]:
    """What differed, the most frequent first."""
    found = None if result.scenario is None else result.scenario.replay
    if found is None:
        return []
    real = [one for one in found.differences if not one.is_noise]
    tables: list[RenderableType] = []
    if real:
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
        for title in ("answers that differ", "part", "times", "before", "after"):
            table.add_column(title, max_width=26, no_wrap=True, justify="right" if title == "times" else "left")
        for one in real[:_MAX_ROWS]:
            table.add_row(one.label, one.part, f"{one.count:,}", *_values(one))
        tables += [Text(""), Padding(table, (0, 0, 0, 2), expand=False)]
    beside = _beside(found, len(real))
    if beside:
        tables += [Text(""), Padding(Text(beside, overflow="fold"), (0, 0, 0, 2))]
    return tables


def _values(one: ReplayDifference) -> tuple[str, str]:
    return ("not shown", "not shown") if one.before is None or one.after is None else (one.before, one.after)


def _beside(found: ReplayFindings, real: int) -> str:
    parts = []
    if real > _MAX_ROWS or found.more_differences:
        parts.append(f"{max(0, real - _MAX_ROWS) + found.more_differences:,} further differences (--json has them)")
    noise = sum(one.is_noise for one in found.differences)
    if noise:
        parts.append(f"{noise} parts differ by themselves and do not count")
    return "; ".join(parts)


def page_tables(result: TestResult) -> list[PageTable]:
    """What differed, and what was left out."""
    found = None if result.scenario is None else result.scenario.replay
    if found is None:
        return []
    tables = []
    if found.differences:
        rows = [
            (one.label, one.part, f"{one.count:,}", "yes" if one.is_noise else "", *_values(one))
            for one in found.differences
        ]
        columns = ("requests", "part", "times", "differs by itself", "before", "after")
        more = max(0, len(rows) - _MAX_PAGE_ROWS) + found.more_differences
        tables.append(PageTable("Answers that differ", columns, tuple(rows[:_MAX_PAGE_ROWS]), more))
    if found.left_out:
        causes = tuple((f"{count:,}", _CAUSES.get(cause, cause)) for cause, count in _causes(found))
        tables.append(PageTable("Not replayed", ("requests or records", "why"), causes, 0))
    return tables
