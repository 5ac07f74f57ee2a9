"""Draws a run's tables for a terminal of 80 columns or more.

Returns rich renderables and prints nothing; the caller decides where they go. Text from a plan, a daemon or a host is
never interpreted as markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.head_and_tail import HEAD_AND_TAIL
from leadline.analysis.model import Limit, RunAnalysis, Summary, Validity, Verdict
from leadline.report import figures, host_clocks, host_statistics, verdicts
from leadline.report.answers import answer_lines
from leadline.report.cross_checks import cross_check_lines
from leadline.report.ladders import ladder_blocks
from leadline.report.limits import limit_lines
from leadline.report.names import name_lines
from leadline.report.ratios import ratio_text, ratios_table
from leadline.report.reasons import (
    MOST_IN_FULL,
    advice_lines,
    limit_line,
    limit_word,
    own_reasons,
    reason_line,
    why_not_valid,
)
from leadline.report.scalings import scaling_table
from leadline.report.searches import searches_table
from leadline.report.tiers import slowest_tables, tiers_table

TONES = verdicts.TONES


def run_renderables(analysis: RunAnalysis) -> list[RenderableType]:
    """Everything about a run: details first, the answer and the verdict last, where a reader of a terminal looks
    first."""
    parts = [
        searches_table(analysis),
        cross_check_lines(analysis.cross_checks),
        baseline_table(analysis),
        given_system(analysis),
        client_table(analysis),
        server_table(analysis),
        tiers_table(analysis) or gateway_table(analysis),
        *slowest_tables(analysis),
        clocks_table(analysis),
        bring_up_table(analysis),
        fleet_table(analysis),
        *(scaling_table(found, found[0].axis, test) for test, found in analysis.scaling.items() if found),
        *ladder_blocks(analysis.ladders, verbose=True),
        why_not_valid(analysis),
        figures_table(analysis),
        limit_lines(analysis),
        table_notes(analysis),
        troubles(analysis),
        targets_table(analysis),
        answer_lines(analysis),
        verdict_lines(analysis),
    ]
    return [part for part in parts if part is not None]


def figures_table(analysis: RunAnalysis, *, is_brief: bool = False) -> RenderableType:
    """The headline figures per case and test; parameters get their own columns if the width allows it. `is_brief`
    leaves out intervals that round to none, and what limited doubted results."""
    return _FiguresTable(analysis, is_brief)


def table_notes(analysis: RunAnalysis) -> RenderableType | None:
    """Name the results whose usual averages would be wrong; None if there are none."""
    noted = [
        (f"{summary.case} {summary.test}", note)
        for summary in analysis.summaries
        for note in summary.validity.notes
        if note.code == HEAD_AND_TAIL
    ]
    shown = [Text.assemble((f"{where}: ", "bold"), note.text) for where, note in noted[:MOST_IN_FULL]]
    if len(noted) > MOST_IN_FULL:
        shown.append(Text(f"{len(noted) - MOST_IN_FULL} more in report.html"))
    if not shown:
        return None
    title = _heading("Head and tail", "what the usual averages would say instead")
    return Group(title, *(Padding(line, (0, 0, 0, 1), expand=False) for line in shown))


def baseline_table(analysis: RunAnalysis) -> RenderableType | None:
    """The ratio of each result's main figures to those of its baseline; None without a baseline in the plan."""
    return ratios_table(analysis) if analysis.baselines else None


def given_system(analysis: RunAnalysis) -> RenderableType | None:
    """The plan's label for the system on given hosts; None if the run brought its systems up itself."""
    labels = dict.fromkeys(trial.sut_version for trial in analysis.trials if trial.on_given_hosts and trial.sut_version)
    if not labels:
        return None
    return Text(f"System under test on given hosts, not brought up by this run: {', '.join(map(str, labels))}")


def client_table(analysis: RunAnalysis) -> RenderableType | None:
    """The clients' transfer and rates, per case and test; None if no test transferred payload."""
    rows = host_statistics.client_rows(analysis)
    if not rows:
        return None
    table = titled_table("Client statistics", "rates of payload; means over the repeats")
    add_columns(
        table, left=("case", "test"), right=("clients", "transfer MB", "total Mbit/s", "MB/s", "average Mbit/s")
    )
    for row in rows:
        table.add_row(
            Text(row.case),
            Text(row.test),
            quantities.fixed(row.clients, 0),
            quantities.fixed(row.transfer_mb, 1),
            quantities.fixed(row.total_mbps, 1),
            quantities.fixed(row.total_mb_per_s, 2),
            quantities.fixed(row.average_mbps, 2),
        )
    return table


def server_table(analysis: RunAnalysis) -> RenderableType | None:
    """The use of the gateway's CPUs, per case and test; None if nothing was observed."""
    rows = host_statistics.server_rows(analysis)
    if not rows:
        return None
    table = titled_table("Server statistics", "s: real length; else percent of one CPU; means")
    add_columns(
        table,
        left=("case", "test"),
        right=("s", "usr", "sys", "softirq", "total", "wait", "SUT", "SUT MiB"),
    )
    for row in rows:
        table.add_row(
            Text(row.case),
            Text(row.test),
            quantities.fixed(row.real_length_s, 2),
            *(quantities.fixed(value, 1) for value in row.cpu_percents),
            quantities.fixed(row.sut_percent, 1),
            quantities.fixed(None if row.sut_memory_bytes is None else row.sut_memory_bytes / 2**20, 1),
        )
    shared = host_statistics.sharing_note(rows)
    return Group(table, Text(shared, style="dim")) if shared else table


def gateway_table(analysis: RunAnalysis) -> RenderableType | None:
    """What each gateway cost, per case and test; None if no test had one."""
    rows = host_statistics.gateway_rows(analysis)
    if not rows:
        return None
    table = titled_table("Gateways", "CPU in percent of one CPU; means over the repeats")
    table.padding = (0, 0, 0, 0)  # six figures: the names of the tests need the width
    several = len({row.host for row in rows}) > 1
    # With one client, its memory is that of the gateway.
    shown = len(rows[0].cells) - all(row.cells[-1] == row.cells[-2] for row in rows)
    titles = host_statistics.GATEWAY_TITLES[:shown]
    add_columns(table, left=("case", "test", *(["at"] if several else [])), right=titles)
    for row in rows:
        at = [Text(row.host.removeprefix("gateway-"))] if several else []
        table.add_row(Text(row.case), Text(row.test), *at, *row.cells[:shown])
    return Group(table, *(Text(note, style="dim") for note in host_statistics.gateway_notes(analysis)))


def clocks_table(analysis: RunAnalysis) -> RenderableType | None:
    """The clocks that are known least; None where all hosts read one clock."""
    rows = host_clocks.clock_rows(analysis)
    if not rows:
        return None
    table = titled_table("Clocks", "of hosts with clocks of their own; the worst over all tests")
    add_columns(table, left=("host",), right=host_clocks.TITLES)
    for row in rows[: host_clocks.MAX_ROWS]:
        table.add_row(Text(row.host), *row.cells)
    if len(rows) <= host_clocks.MAX_ROWS:
        return table
    rest = len(rows) - host_clocks.MAX_ROWS
    return Group(table, Text(f"{rest} more hosts, whose clocks are known better, are on the page", style="dim"))


def bring_up_table(analysis: RunAnalysis) -> RenderableType | None:
    """The bring-up of each case's clients, and the version of each system under test; None if no case has either."""
    rows = host_statistics.bring_up_rows(analysis)
    alone = [Text(f"{case}: {system}", style="dim") for case, system in host_statistics.versions_alone(analysis)]
    if not rows:
        return Group(*alone) if alone else None
    table = titled_table("Bring-up of clients", "clients counted over all repeats")
    add_columns(table, left=("case",), right=())
    add_columns(table, left=(), right=("connected", "partial", "failed", "time p50", "time max"))
    systems: list[Text] = []
    causes: list[Text] = []
    for row in rows:
        table.add_row(
            Text(row.case),
            str(row.connected),
            _alarm(row.partial),
            _alarm(row.failed),
            row.time_p50,
            quantities.seconds(row.time_max_s),
        )
        systems.append(Text(f"{row.case}: {row.system}", style="dim"))
        causes += [Text(f"{row.case}: {number} × {cause}", style="dim") for cause, number in row.causes.items()]
    return Group(table, *systems, *alone, *causes)


def fleet_table(analysis: RunAnalysis) -> RenderableType | None:
    """The outcome of the VPN clients of each case and test; None without such tests."""
    rows = host_statistics.fleet_rows(analysis)
    if not rows:
        return None
    table = titled_table("VPN clients", "means over the repeats")
    add_columns(
        table,
        left=("case", "test"),
        right=("clients", "configured", "partial", "failed", "server CPU", "server memory"),
    )
    for row in rows:
        table.add_row(
            Text(row.case),
            Text(row.test),
            *(quantities.fixed(count, 0) for count in row.counts),
            quantities.metric(row.server_cpu_per_client_ms, "ms"),
            quantities.memory(row.server_memory_bytes),
        )
    causes = [
        Text(f"{row.case} {row.test}: {number} × {cause}", style="dim")
        for row in rows
        for cause, number in row.causes.items()
    ]
    return Group(table, *causes)


def troubles(analysis: RunAnalysis) -> RenderableType | None:
    """The trials and tests that did not complete, each with its error; None if all did."""
    lines = [
        Text.assemble((found.where, "bold"), f" {found.status}: {found.why}") for found in verdicts.troubles(analysis)
    ]
    if not lines:
        return None
    return Group(
        _heading("Trials that did not complete"), *(Padding(line, (0, 0, 0, 1), expand=False) for line in lines)
    )


def targets_table(analysis: RunAnalysis) -> RenderableType | None:
    """Each target with its outcome; None if the plan has none."""
    if not analysis.targets:
        return None
    table = titled_table("Targets", verdicts.target_tally(analysis))
    table.add_column("outcome", no_wrap=True)
    table.add_column("case", no_wrap=True)
    table.add_column("target", overflow="fold")
    table.add_column("reason", ratio=1, overflow="fold")
    for target in analysis.targets:
        wording = verdicts.outcome_wording(target)
        table.add_row(
            Text(f"{wording.mark} {wording.sentence}", style=TONES[wording.tone]),
            Text(target.case),
            Text(target.target),
            Text(target.reason),
        )
    return table


def verdict_lines(analysis: RunAnalysis) -> RenderableType:
    """The run's verdict with its reasons and notes, and the counts of trials and results."""
    tally = [verdicts.trial_tally(analysis), f"results: {verdicts.result_tally(analysis)}"]
    if analysis.targets:
        tally.append(f"targets: {verdicts.target_tally(analysis)}")
    headline = verdicts.headline(analysis)
    tone = f"bold {TONES[headline.wording.tone]}"
    head = Text.assemble((f"{headline.wording.mark} {headline.title}", tone), f": {headline.wording.sentence}")
    lines: list[RenderableType] = [head, *(reason_line(reason) for reason in own_reasons(analysis))]
    lines += [reason_line(note) for note in analysis.notes]
    if analysis.status != "done":
        lines.append(Text(verdicts.run_ending(analysis), style="bold red"))
    return Group(*lines, Text("; ".join(tally) + ".", style="dim"))


def verdict_block(validity: Validity, limit: Limit | None = None) -> RenderableType:
    """A verdict with its reasons indented below it."""
    wording = verdicts.WORDINGS[validity.verdict]
    mark = (f"{wording.mark} {validity.verdict.value}", f"bold {TONES[wording.tone]}")
    head = Text.assemble(mark, f": {verdicts.sentence_of(validity)}")
    lines = [limit_line(limit)] if limit is not None else []
    lines += [reason_line(reason) for reason in (*validity.reasons, *validity.notes)]
    return Group(head, *lines, *advice_lines(reason.code for reason in validity.reasons))


@dataclass(frozen=True, slots=True)
class _FiguresTable:
    """Chooses one of its two layouts when the width is known."""

    analysis: RunAnalysis
    is_brief: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = self._wide()
        needed = Measurement.get(console, options.update(max_width=10_000), wide).maximum
        yield wide if needed <= options.max_width else self._narrow(options.max_width)

    def _wide(self) -> Table:
        """The wide layout: every varying parameter has its own column."""
        cases = figures.case_parameters(self.analysis)
        names = figures.varying(cases)
        table = titled_table(_FIGURES_TITLE, _FIGURES_NOTE)
        compared = (_RATIO,) if self._is_compared else ()
        add_columns(table, left=("case", *names, "test"), right=("rate", "±95 %", *compared, "lost", "p50", "p99"))
        table.add_column("verdict, limit", no_wrap=True)
        for case, parameters in cases.items():
            values = [Text(figures.parameter(parameters.get(name))) for name in names]
            rows = self._rows(case)
            for row in rows:
                table.add_row(Text(case), *values, *row)
            if len(rows) > 1:
                table.add_section()
        return table

    def _narrow(self, width: int) -> Group:
        """The narrow layout: a line for the case, its tests below it; rich's tables have no cells that span
        columns. Intervals get a line of their own below a case's tests if the width leaves them no column."""
        cases = figures.case_parameters(self.analysis)
        compared = (_RATIO,) if self._is_compared else ()
        head = [Text(title, style="bold") for title in ("test", "rate", "±95 %", *compared, *_LAST_TITLES)]
        blocks = {case: self._rows(case) for case in cases}
        widths = _widths([head, *(row for rows in blocks.values() for row in rows)])
        intervals, gap = {}, _GAP
        if _length(widths, gap) > width:
            intervals = {
                case: ", ".join(f"{row[0]} {row[2]}" for row in rows if row[2]) for case, rows in blocks.items()
            }
            head, blocks = _without(2, head, blocks)
            widths = _widths([head, *(row for rows in blocks.values() for row in rows)])
            gap = _GAP if _length(widths, _GAP) <= width else 1
        if compared and _length(widths, gap) > width:
            # The table of ratios has them, with their intervals.
            head, blocks = _without([cell.plain for cell in head].index(_RATIO), head, blocks)
            widths = _widths([head, *(row for rows in blocks.values() for row in rows)])
            gap = _GAP if _length(widths, _GAP) <= width else 1
        lines: list[RenderableType] = [_heading(_FIGURES_TITLE, _FIGURES_NOTE), *_fitted(head, widths, width, gap)]
        for case, rows in blocks.items():
            lines.append(Text(f" {figures.case_label(case, cases)}", style="cyan"))
            lines += [line for row in rows for line in _fitted(row, widths, width, gap)]
            if intervals.get(case):
                lines.append(Padding(Text(f"95 %: {intervals[case]}", style="dim"), (0, 0, 0, 1), expand=False))
        return Group(*lines)

    def _rows(self, case: str) -> list[list[Text]]:
        """test, rate, interval, ratio to the baseline if the plan has one, lost, p50, p99, verdict of each test of a
        case; a case without results shows why."""
        rows = [
            _figure_cells(
                summary, self._is_compared, verdicts.failed_repeats(self.analysis, summary), is_brief=self.is_brief
            )
            for summary in self.analysis.summaries
            if summary.case == case
        ]
        if rows:
            return rows
        ends = Counter(trial.status for trial in self.analysis.trials if trial.case == case)
        why = ", ".join(f"{number} × {status}" for status, number in ends.items()) or "not run"
        style = "yellow" if set(ends) == {"skipped"} else "red"
        empty = 6 if self._is_compared else 5
        return [[Text(quantities.UNKNOWN), *(Text("") for _ in range(empty)), Text(why, style=style)]]

    @property
    def _is_compared(self) -> bool:
        return bool(self.analysis.baselines)


def _without(
    column: int, head: list[Text], blocks: dict[str, list[list[Text]]]
) -> tuple[list[Text], dict[str, list[list[Text]]]]:
    """The rows of a table without one column."""
    rows = {case: [row[:column] + row[column + 1 :] for row in block] for case, block in blocks.items()}
    return head[:column] + head[column + 1 :], rows


def _widths(rows: Sequence[Sequence[Text]]) -> list[int]:
    """The width of each column."""
    return [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]


def _figure_cells(summary: Summary, is_compared: bool, failed: str, *, is_brief: bool) -> list[Text]:
    verdict = summary.validity.verdict
    kind = figures.table_of(summary.kind, summary.metrics)
    others = {figure.title: figure for figure in kind.others}
    lead = summary.metrics.get(kind.rate.metric)
    interval = quantities.plus_minus(lead.value, lead.low, lead.high, summary.repeats) if lead is not None else ""
    if is_brief and interval == quantities.NO_WIDTH:
        interval = ""
    cells = [Text(summary.test), Text(figures.written(kind.rate, summary.metrics)), Text(interval)]
    if is_compared:
        ratio = summary.ratios.get(kind.rate.metric)
        cells.append(Text("" if ratio is None else ratio_text(ratio)))
    for title in ("lost", "p50", "p99"):
        cells.append(Text(figures.written(others[title], summary.metrics) if title in others else ""))
    failed = f", {failed}" if failed else ""
    wording = verdicts.WORDINGS[verdict]
    # A line of 80 columns has room for one of them; a doubted result has its cause below, which matters more.
    is_left_out = failed or (is_brief and verdict is not Verdict.VALID)
    word = "" if is_left_out else limit_word(summary)
    limited = (f", {word}", "dim") if word else ""
    return [*cells, Text.assemble((f"{wording.mark} {verdict.value}{failed}", TONES[wording.tone]), limited)]


def _fitted(cells: list[Text], widths: list[int], width: int, gap: int) -> list[Text]:
    """The row within the width: a name that is too long goes on below, and so does a verdict where the name would be
    left hardly any room beside it."""
    without_verdict = width - 1 - sum(widths[1:-1]) - gap * (len(widths) - 2)
    room = max(without_verdict - gap - widths[-1], min(_LEAST_NAME, without_verdict), 1)
    room = min(room, widths[0])
    first, *rest = (Text(line, cells[0].style) for line in name_lines(cells[0].plain, room))
    line = _aligned([first, *cells[1:]], [room, *widths[1:]], gap)
    below = [Text.assemble(" ", one) for one in rest]
    if line.cell_len <= width:
        return [line, *below]
    return [_aligned([first, *cells[1:-1]], [room, *widths[1:-1]], gap), *below, Text.assemble("   ", cells[-1])]


def _aligned(cells: list[Text], widths: list[int], gap: int) -> Text:
    """One line: the first and the last cell left-aligned, figures right-aligned."""
    line, between = Text(" ", no_wrap=True, overflow="ellipsis"), " " * gap
    for position, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        padding = " " * (width - cell.cell_len)
        if position in (0, len(cells) - 1):
            line.append_text(Text.assemble(cell, padding, between))
        else:
            line.append_text(Text.assemble(padding, cell, between))
    line.rstrip()
    return line


def _length(widths: Sequence[int], gap: int) -> int:
    """The length of a line with columns of these widths."""
    return 1 + sum(widths) + gap * (len(widths) - 1)


def titled_table(title: str, note: str) -> Table:
    """An empty table in the common style."""
    return Table(
        title=_heading(title, note),
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=True,
        padding=(0, 1, 0, 0),
        show_edge=False,
        header_style="bold",
    )


def add_columns(table: Table, *, left: Sequence[str], right: Sequence[str]) -> None:
    """Add columns of words, then columns of numbers. If the width is too small, words are broken: numbers never."""
    for title in left:
        table.add_column(Text(title), overflow="fold")
    for title in right:
        table.add_column(Text(title), justify="right", no_wrap=True)


def _heading(title: str, note: str = "") -> Text:
    return Text.assemble((title, "bold underline"), (f"  {note}" if note else "", "dim"))


def _alarm(number: int) -> Text:
    return Text(str(number), style="red" if number else "")


_RATIO = "ratio"
_FIGURES_TITLE = "Figures"
_GAP, _LEAST_NAME = 2, 16
"""Columns between two cells, and those that a name gets before its verdict moves below it."""
_LAST_TITLES = ("lost", "p50", "p99", "verdict, limit")
_FIGURES_NOTE = "means over the repeats, inside the steady window"
