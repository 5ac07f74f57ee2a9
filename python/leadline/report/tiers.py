"""The tiers of stacks in tables: CPU time, times of requests by tier, and the slowest requests.

Arranges the results of `analysis`. Computes no figure but means over repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.model import RunAnalysis, TestResult
from leadline.analysis.tier_model import TierStatistics
from leadline.report import figures
from leadline.report.page_tables import PageTable

COLUMNS = ("CPU", "a request", "memory", "time", "p99", "own", "opened")
"""The figures of a tier: CPU time, the same a request, memory, mean and p99 of the time in it and those behind it, mean
of its own time, connections that it opened to the next tier for a request."""
_EXPLAINED = (
    "CPU in percent of one CPU, and a request; time: in a tier and those behind it, mean and p99; own: without those "
    "behind it; opened: connections to the next tier, a request."
)
_TIMES = (
    "Times are of requests that HAProxy logged: its own, and what the service says of itself and of Redis, as it saw "
    "it (Server-Timing). The users' line is the load's own."
)
_SHOWN_SLOWEST = 5


def tiers_table(analysis: RunAnalysis) -> RenderableType | None:
    """Each tier's figures, means over the repeats; None without a stack."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for title in ("case", "test", "tier"):
        table.add_column(title, overflow="fold")
    for title in COLUMNS:
        table.add_column(title, justify="right", no_wrap=True)
    notes: dict[str, None] = {}
    for (case, test), results in _by_test(analysis).items():
        for number, (name, cells) in enumerate(tier_rows(results)):
            table.add_row(*((case, test) if number == 0 else ("", "")), name, *cells)
        notes.update(dict.fromkeys(tier_notes(results)))
    if not table.row_count:
        return None
    lines = [Text(line, style="dim") for line in (_EXPLAINED, _TIMES, *notes)]
    return Group(Text("Tiers", style="bold underline"), Padding(table, (0, 0, 0, 1), expand=False), *lines)


def page_tables_of_tiers(result: TestResult) -> list[PageTable]:
    """The tiers of one test, and the slowest requests by tier; none without a stack."""
    if not result.tiers:
        return []
    found = [PageTable("Tiers", ("tier", *COLUMNS), tuple((name, *cells) for name, cells in tier_rows([result])))]
    if result.slowest_traced:
        names = [tier.tier for tier in result.tiers]
        rows = [
            (row.trace or "-", *(quantities.microseconds(row.times_us.get(name)) for name in names), str(row.status))
            for row in result.slowest_traced
        ]
        found.append(PageTable("Slowest logged requests by tier", ("traceparent", *names, "status"), tuple(rows)))
    return found


def slowest_table(result: TestResult) -> RenderableType | None:
    """The slowest logged requests with their times by tier; None if none was logged."""
    if not result.slowest_traced:
        return None
    names = [tier.tier for tier in result.tiers]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("traceparent", overflow="fold")
    for name in (*names, "status"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in result.slowest_traced[:_SHOWN_SLOWEST]:
        times = [quantities.microseconds(row.times_us.get(name)) for name in names]
        table.add_row(row.trace or "-", *times, str(row.status))
    title = Text.assemble((f"Slowest logged requests of {result.case} {result.test}", "bold underline"))
    return Group(title, Padding(table, (0, 0, 0, 1), expand=False))


def slowest_tables(analysis: RunAnalysis) -> list[RenderableType]:
    """A table of the slowest requests of each case and test whose requests have traces, of the last repeat."""
    last: dict[tuple[str, str], TestResult] = {}
    for trial in analysis.trials:
        for test in trial.tests:
            if any(row.trace for row in test.slowest_traced):
                last[trial.case, test.test] = test
    return [table for test in last.values() if (table := slowest_table(test)) is not None]


def tier_rows(results: Sequence[TestResult]) -> list[tuple[str, tuple[str, ...]]]:
    """The users' own line, then each tier: its name and the texts of its figures."""
    whole_us = _mean(_end_to_end_us(result) for result in results)
    p99_us = _mean(result.value("latency_p99_us") for result in results)
    by_tier: dict[str, list[TierStatistics]] = {}
    for result in results:
        for tier in result.tiers:
            by_tier.setdefault(tier.tier, []).append(tier)
    first = next(iter(by_tier.values()), [])
    inside_us = _mean(tier.time_mean_us for tier in first)
    own_us = whole_us - inside_us if whole_us is not None and inside_us is not None else None
    if own_us is not None and own_us < 0:
        own_us = None  # The logged requests are others than those of the window.
    unknown = quantities.UNKNOWN
    users = (unknown, unknown, unknown, *map(quantities.microseconds, (whole_us, p99_us, own_us)), unknown)
    return [("users", users), *((name, _cells(repeats)) for name, repeats in by_tier.items())]


def _cells(repeats: Sequence[TierStatistics]) -> tuple[str, ...]:
    opened = [
        one.counters["opened"] / one.counters["requests"]
        for one in repeats
        if one.counters.get("requests") and "opened" in one.counters
    ]
    return (
        quantities.percent(_mean(one.cpu_percent for one in repeats)),
        quantities.microseconds(_mean(one.cpu_us_per_request for one in repeats)),
        quantities.memory(_mean(one.memory_bytes for one in repeats)),
        quantities.microseconds(_mean(one.time_mean_us for one in repeats)),
        quantities.microseconds(_mean(one.time_p99_us for one in repeats)),
        quantities.microseconds(_mean(one.own_mean_us for one in repeats)),
        quantities.fixed(_mean(opened), 2) if opened else quantities.UNKNOWN,
    )


def tier_notes(results: Sequence[TestResult]) -> list[str]:
    """Little's law for the users, and why figures are unknown."""
    found = []
    for result in results[-1:]:
        rate, whole_us = result.value("requests_per_s"), _end_to_end_us(result)
        users = result.value("users_most")
        if rate is not None and whole_us is not None:
            busy = quantities.significant(rate * whole_us / 1e6) + (
                f" of {quantities.count(users)} users" if users else ""
            )
            product = f"{quantities.per_second(rate)} x {quantities.microseconds(whole_us)}"
            where = f"{result.case} {result.test}"
            found.append(f"{where}: {product} = {busy} inside of a request at a time (Little's law).")
        for tier in result.tiers:
            for why in dict.fromkeys(filter(None, (tier.cpu_unknown, tier.time_unknown))):
                found.append(f"{result.case} {result.test} {tier.tier}: {why}.")
    return found


def _end_to_end_us(result: TestResult) -> float | None:
    """The mean time of a request as its user sees it, with connecting."""
    return result.value("latency_mean_us")


def _by_test(analysis: RunAnalysis) -> dict[tuple[str, str], list[TestResult]]:
    order = {case: number for number, case in enumerate(figures.case_parameters(analysis))}
    found: dict[tuple[str, str], list[TestResult]] = {}
    for trial in sorted(analysis.trials, key=lambda trial: order.get(trial.case, 0)):
        for test in trial.tests:
            if test.tiers:
                found.setdefault((trial.case, test.test), []).append(test)
    return found


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
