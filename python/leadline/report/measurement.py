"""Draws one measurement for a terminal, as the single-test commands print it.

`analysis` has decided the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.model import CeilingBasis, Generator, Metric, TestResult, Window
from leadline.plan.percentiles import histogram_of
from leadline.registry import KINDS
from leadline.report import figures, verdicts
from leadline.report.brief import brief_verdict, spoken
from leadline.report.headlines import directions
from leadline.report.text import TONES, verdict_block

_LONGEST_EXAMPLE = 200
_NOTABLE_CUT = 0.01
"""From this share on a short summary says what is cut off."""
_UNBOUNDED = 1000
"""More columns than any table here has."""


class SummarisedKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def operation(self) -> str:
        """The divisor of the generator's CPU time."""

    def figure_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The figures without times, as pairs of a name and a line."""

    def brief_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The figures of the short summary, as pairs of a name and a line."""

    def brief_tables(self, result: TestResult) -> list[RenderableType]:
        """The tables of the short summary."""

    def failure_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The failures, as pairs of a name and a line."""

    def time_tables(self, result: TestResult) -> list[RenderableType]:
        """The tables of times."""


def measurement(result: TestResult, *, verbose: bool = False) -> RenderableType:
    """The figures, then the headline and the verdict, which stay on a small screen. `verbose` draws all figures and
    tables, the generator's cost, and every reason."""
    kind: SummarisedKind = KINDS.find(result.kind)
    if verbose:
        generator = _generator_rows(result.generator, kind.operation)
        rows = [*kind.figure_rows(result), *generator, *kind.failure_rows(result)]
        tables = kind.time_tables(result)
    else:
        rows = [*kind.brief_rows(result), *(kind.failure_rows(result) if result.errors else [])]
        tables = kind.brief_tables(result)
    parts: list[RenderableType] = []
    for block in ([_pairs(rows)] if rows else [], tables):
        parts += [*block, Text("")] if block else []
    parts.append(_headline(result, verbose=verbose))
    if result.status != "done":
        parts.append(Text(f"{result.status}: {verdicts.why_ended(result.status, result.error)}", style="bold red"))
    judged = verdict_block if verbose else brief_verdict
    return Group(*parts, judged(result.validity, result.limit))


def _headline(result: TestResult, *, verbose: bool) -> Text:
    """`941 Mbit/s  TCP throughput ±0.6 %  over 10.0 s`."""
    table = figures.table_of(result.kind, result.metrics)
    return Text.assemble(
        (
            figures.written(table.rate, result.metrics),
            f"bold {TONES[verdicts.WORDINGS[result.validity.verdict].tone]}",
        ),
        f"  {table.title}",
        f" ({both})" if (both := directions(result.metrics)) else "",
        _uncertainty(result.metrics.get(table.rate.metric), verbose=verbose),
        (f"  {_length(result, verbose=verbose)}", "dim"),
    )


def _uncertainty(metric: Metric | None, *, verbose: bool) -> str:
    """` ±0.6 %`: half of the leading figure's 95 % interval; empty without one, or where it rounds to none."""
    half = quantities.plus_minus(metric.value, metric.low, metric.high) if metric is not None else ""
    return f" {half}" if half and (verbose or half != quantities.NO_WIDTH) else ""


def brief_rows(result: TestResult) -> list[tuple[str, str]]:
    """The figures of the kind's table, without latencies; of those after the first one, zeros and unknown ones are left
    out."""
    listed = [figure for figure in figures.table_of(result.kind, result.metrics).others if not _is_latency(figure)]
    values = {
        figure.metric: result.metrics[figure.metric].value for figure in listed if figure.metric in result.metrics
    }
    return [
        (figure.title, figures.written(figure, result.metrics))
        for number, figure in enumerate(listed)
        if number == 0 or values.get(figure.metric)
    ]


def latency_row(metrics: Mapping[str, Metric], times: str = "latency") -> list[tuple[str, str]]:
    """A histogram's times in one line, with the percentiles that were asked for; empty without known ones."""
    shown = [(metrics[name], title) for name, title in _time_columns(metrics, times) if title != "min"]
    known = [
        f"{title} {figures.bounded(quantities.microseconds(one.value), one)}"
        for one, title in shown
        if one.value is not None
    ]
    return [(times, ", ".join(known))] if known else []


def _is_latency(figure: figures.Figure) -> bool:
    return figure.metric.startswith("latency_")


def figure_rows(result: TestResult, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """The figures of the kind's table first, then all others except latencies, which have their own table. `names`
    are names in words that differ from the metrics' names.
    """
    kind = figures.table_of(result.kind, result.metrics)
    listed = [figure for figure in kind.others if not figure.metric.startswith("latency_")]
    rows = [(figure.title, figures.written(figure, result.metrics)) for figure in listed]
    shown = {kind.rate.metric, "throughput_up_bps", "throughput_down_bps", *(figure.metric for figure in listed)}
    for name, metric in result.metrics.items():
        if name not in shown and not name.startswith("latency_"):
            rows.append((names.get(name) or spoken(name), quantities.metric(metric.value, metric.unit)))
    return rows


def _generator_rows(generator: Generator | None, operation: str) -> list[tuple[str, str]]:
    if generator is None:
        return [("generator", "its cost is unknown")]
    cpu = f"{quantities.seconds(generator.cpu_s)} of CPU in {quantities.seconds(generator.wall_s)}"
    if generator.spun_s is not None:
        cpu += f" ({quantities.seconds(generator.spun_s)} of it in busy waiting for the next send)"
    busiest = f"busiest thread {quantities.share(generator.busiest_thread)}"
    rows = [("generator", f"{cpu}, {busiest}")]
    known = []
    if generator.late_p99_us is not None:
        known.append(f"sends late by p99 {quantities.microseconds(generator.late_p99_us)}")
    if generator.cpu_ns_per_unit is not None:
        known.append(f"{quantities.microseconds(generator.cpu_ns_per_unit / 1e3)} of CPU per {operation}")
    if known:
        rows.append(("", ", ".join(known)))
    return rows + ceiling_rows(generator) + engine_rows(generator)


def latency_tables(result: TestResult) -> list[RenderableType]:
    """The latency's table; empty without latencies."""
    timed = any(metric.startswith("latency_") for metric in result.metrics)
    return [_latency_table(result.metrics)] if timed else []


def ceiling_rows(generator: Generator) -> list[tuple[str, str]]:
    """The rate at its limit; with the users of a scenario, and as an estimate, if it follows from an idle generator's
    cost."""
    if generator.ceiling_per_s is None:
        return []
    rate = quantities.per_second(generator.ceiling_per_s)
    if generator.ceiling_basis is not CeilingBasis.THIS_RUN or not generator.ceiling_extrapolated:
        return [("", f"its ceiling for such requests is {rate}")]
    users = generator.ceiling_users
    with_users = "" if users is None else f", {math.floor(users):,} users like these"
    return [("", f"the generator would carry about {rate}{with_users}")]


def engine_rows(generator: Generator | None) -> list[tuple[str, str]]:
    """How the threads waited for their sockets, and why not by the faster engine."""
    if generator is None or generator.engine is None:
        return []
    why = f": {generator.engine_reason}" if generator.engine_reason else ""
    return [("", f"engine {generator.engine}{why}")]


def error_rows(result: TestResult) -> list[tuple[str, str]]:
    """Errors by name, the most frequent first, each with the first example if there is one."""
    if not result.errors:
        return [("errors", "none")]
    named = sorted(result.errors.items(), key=lambda item: -item[1])
    rows = []
    for row, (name, number) in enumerate(named):
        cut = cut_example(result.error_examples.get(name, ""))
        rows.append(("errors" if row == 0 else "", f"{number:,} × {name}{f': {cut}' if cut else ''}"))
    return rows


def cut_example(text: str) -> str:
    """The text of a failure, cut to a line or two."""
    return text if len(text) <= _LONGEST_EXAMPLE else f"{text[:_LONGEST_EXAMPLE]}…"


class _LatencyTable:
    """The distribution of the latency: on one line if the terminal is wide enough, else in a column."""

    def __init__(self, metrics: dict[str, Metric]) -> None:
        shown = [(metrics[name], title) for name, title in _time_columns(metrics, "latency")]
        self._titles = [title for _, title in shown]
        self._rows: list[tuple[str, Sequence[str | Text]]]
        self._rows = [("latency", [figures.bounded(quantities.microseconds(one.value), one) for one, _ in shown])]
        if any(one.low is not None and one.high is not None for one, _ in shown):
            self._rows += [("95 % from", [_bound(one.low) for one, _ in shown])]
            self._rows += [("to", [_bound(one.high) for one, _ in shown])]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = self._table(self._titles, self._rows)
        if Measurement.get(console, options.update(width=_UNBOUNDED), wide).maximum <= options.max_width:
            yield wide
            return
        columns = zip(self._titles, *(cells for _, cells in self._rows), strict=True)
        yield self._table([name for name, _ in self._rows], [(title, cells) for title, *cells in columns])

    def _table(self, titles: Sequence[str], rows: Sequence[tuple[str, Sequence[str | Text]]]) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("", style="dim", no_wrap=True)
        for title in titles:
            table.add_column(title, justify="right", no_wrap=True)
        for name, cells in rows:
            table.add_row(name, *cells)
        return table


def _latency_table(metrics: dict[str, Metric]) -> RenderableType:
    return Padding(_LatencyTable(metrics), (0, 0, 0, 2), expand=False)


def _bound(bound: float | None) -> Text:
    return Text("" if bound is None else quantities.microseconds(bound), style="dim")


def _time_columns(metrics: Mapping[str, Metric], times: str) -> list[tuple[str, str]]:
    """The known times and the requested percentiles in ascending order, as metric and title."""
    parsed = {name: found for name in metrics if (found := histogram_of(name)) is not None}
    known = {found.percentile: name for name, found in parsed.items() if found.histogram == times}
    percentiles = [(known[percentile], f"p{percentile:g}") for percentile in sorted(known)]
    named = [(f"{times}_{key}_us", key) for key in ("min", "mean")], [(f"{times}_max_us", "max")]
    return [(name, title) for name, title in (*named[0], *percentiles, *named[1]) if name in metrics]


def _pairs(rows: list[tuple[str, str]]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return Padding(table, (0, 0, 0, 2), expand=False)


def _length(result: TestResult, *, verbose: bool) -> str:
    window = result.window
    if window is None:
        return ""
    is_cut = window.cut_share >= (0 if verbose else _NOTABLE_CUT) and window.cut_share > 0
    cut = f", {quantities.share(window.cut_share)} cut at head and tail" if is_cut else ""
    return f"over {quantities.seconds(window.length_s)}{cut}{warm_up(window)}"


def warm_up(window: Window) -> str:
    """How much of what is cut was a warm-up that the plan had left in; empty if none was found."""
    return f" ({quantities.seconds(window.warm_up_ns / 1e9)} of it warm-up)" if window.warm_up_ns else ""
