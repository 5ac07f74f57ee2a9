"""Draws a scenario for a terminal of 80 columns: groups of users, transactions, requests, failures, slow requests."""

from __future__ import annotations

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.model import TestResult
from leadline.analysis.scenario_model import GroupFindings, LabelFindings, ScenarioFindings, shown_names
from leadline.kinds.http.advice import certificate_advice

_MOST_LABELS = 60
_MOST_FAILURES = 12
_NAME = 26
_SHOWN = ("p50", "p95", "p99", "max")


def group_rows(result: TestResult) -> list[tuple[str, str]]:
    """Each group's iterations in a line."""
    found = result.scenario
    if found is None:
        return []
    rows = [(f"iterations of {group.name}"[:30], _iterations(group)) for group in found.groups]
    if len(found.groups) == 1:
        rows = [("iterations", _iterations(found.groups[0]))]
    if found.users_memory_bytes is not None:
        users = sum(group.users_most for group in found.groups)
        each = f", about {quantities.transfer(found.users_memory_bytes / users)} each" if users else ""
        rows.append(("users' memory", quantities.transfer(found.users_memory_bytes) + each))
    return rows


def _iterations(group: GroupFindings) -> str:
    """What became of the iterations that were due; counts of 0 are left out, but for the first ones."""
    begun = [f"{group.begun:,} begun"] if group.begun != group.due else []
    parts = [f"{group.due:,} due", *begun, f"{group.completed:,} completed"]
    named = {
        "failed": group.failed,
        "interrupted": group.interrupted,
        "late": group.late,
        "dropped": group.dropped,
        "not begun": group.not_begun,
    }
    parts += [f"{count:,} {word}" for word, count in named.items() if count]
    return f"{', '.join(parts)}; at most {group.users_most:,} users"


def label_tables(result: TestResult) -> list[RenderableType]:
    """The tables of transactions and requests, of failures, checks and misses, and of slow requests."""
    found = result.scenario
    if found is None:
        return []
    tables: list[RenderableType] = []
    for title, is_transaction in (("transaction", True), ("request", False)):
        labels = [label for label in found.labels if label.is_transaction == is_transaction]
        if labels:
            tables += [*([Text("")] if tables else []), _labels(title, labels)]
    failures = [*list(_failures(found))[:_MOST_FAILURES], *_advice(found)]
    if failures:
        tables += [Text(""), *(Padding(Text(line, overflow="fold"), (0, 0, 0, 2)) for line in failures)]
    beside = _beside(found)[:_MOST_FAILURES]
    if beside:
        tables += [Text(""), *(Padding(Text(line, overflow="fold"), (0, 0, 0, 2)) for line in beside)]
    if found.slowest:
        tables += [Text(""), _slowest(found)]
    return tables


def _labels(title: str, labels: list[LabelFindings]) -> RenderableType:
    table = _table(title, "count", "1/s", "failed", *_SHOWN)
    for label, shown in zip(labels[:_MOST_LABELS], shown_names(labels), strict=False):
        rate = "" if label.per_s is None else f"{label.per_s:,.1f}"
        name = shown if len(shown) <= _NAME else shown[: _NAME - 1] + "…"
        failed = f"{label.failed:,}" if label.failed else ""
        table.add_row(name, f"{label.ended:,}", rate, failed, *(_latency(label, name) for name in _SHOWN))
    if len(labels) > _MOST_LABELS:
        table.add_row(f"and {len(labels) - _MOST_LABELS} more", *[""] * 7)
    return Padding(table, (0, 0, 0, 2), expand=False)


def _latency(label: LabelFindings, name: str) -> str:
    """A figure of the latency; as a lower bound if it is one."""
    key = f"latency_{name}_us"
    return quantities.at_least(_short(getattr(label, key)), key in label.censored).replace(" ", "")


def _short(microseconds: float | None) -> str:
    return quantities.microseconds(microseconds).replace(" ", "")


def _failures(found: ScenarioFindings) -> list[str]:
    """Lines on errors, checks that failed, and extractions that found nothing."""
    lines = []
    for label in found.labels:
        if label.is_transaction:
            continue
        for cause, count in label.errors.items():
            example = label.error_examples.get(cause, "")
            lines.append(f"{label.name}: {count:,} x {cause}" + (f" ({example})" if example else ""))
        if label.interrupted:
            lines.append(f"{label.name}: {label.interrupted:,} were outstanding when their iteration was interrupted")
        lines += [f"{label.name}: check '{one.name}' failed {one.failed:,} times" for one in label.checks if one.failed]
        lines += [f"{label.name}: {name} was not found {count:,} times" for name, count in label.misses.items()]
    return lines


def _advice(found: ScenarioFindings) -> list[str]:
    """What can be done about the failures, once for all names."""
    causes = dict.fromkeys(cause for label in found.labels for cause in label.errors)
    return list(dict.fromkeys(f"{cause}: {advice}" for cause in causes if (advice := certificate_advice(cause))))


def _beside(found: ScenarioFindings) -> list[str]:
    """Lines on what is in no count of requests: answers of caches, resources of pages, single requests not kept."""
    lines = []
    for label in found.labels:
        counts = {
            "from caches": label.cached,
            "resources fetched": label.resources,
            "redirects followed": label.redirects,
        }
        parts = [f"{count:,} {words}" for words, count in counts.items() if count]
        if parts:
            lines.append(f"{label.name}: beside its requests {', '.join(parts)}")
    if found.left_out:
        lines.append(f"{found.left_out:,} single requests and transactions were not kept: they ended too fast")
    return lines


def _slowest(found: ScenarioFindings) -> RenderableType:
    table = _table("slowest requests", "latency", "until sent", "first byte", "status")
    for one in found.slowest[:5]:
        status = one.error or ("" if one.status is None else str(one.status))
        first = _short(one.first_byte_us) if one.first_byte_us is not None else ""
        table.add_row(one.name[:_NAME], _short(one.latency_us), _short(one.before_sent_us), first, status)
    return Padding(table, (0, 0, 0, 2), expand=False)


def _table(first: str, *titles: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(first, style="dim", max_width=_NAME, no_wrap=True)
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    return table
