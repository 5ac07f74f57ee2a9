"""Converts a run's analysis to the rows and sections of the page's templates: text, never markup."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from markupsafe import Markup, escape

from leadline import quantities
from leadline.analysis.model import (
    Answer,
    Limit,
    Metric,
    RunAnalysis,
    Summary,
    TestResult,
    TrialResult,
    Validity,
)
from leadline.report import charts, figures, host_statistics, ratios, scalings, verdicts
from leadline.report.measurement import ceiling_rows, engine_rows, warm_up
from leadline.report.scaling_plots import MOST_PLOTS, scaling_plots

MOST_COMPARED_CASES = 7

# Facts that are lists and get separate tables.
_OWN_LISTS = ("interfaces", "capabilities")
_SPOKEN_APART = ("own_cpus", "idle_poll", "wake_up")
_MEASURED = ("clock resolution", "clock max error")

_BETWEEN_BACKTICKS = re.compile(r"`([^`]+)`")
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=[%A-Za-zµ]+/?s?)(?!(?:to|of|in|and|against|more) )")

_ACRONYMS = {
    "cpu": "CPU",
    "cpus": "CPUs",
    "id": "ID",
    "tcp": "TCP",
    "mtu": "MTU",
    "tso": "TSO",
    "gso": "GSO",
    "gro": "GRO",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """The length of a figure's bar relative to the longest, and its interval, in percent."""

    length: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One case's figures in the table of one test."""

    case: str
    parameters: tuple[str, ...]
    lead: str
    interval: str
    bar: Bar | None
    others: tuple[str, ...]
    repeats: int
    failed: str
    """`1 of 3 failed`; empty if all repeats completed."""
    validity: Validity
    limit: Limit | None
    ratio: ratios.RatioCell | None = None
    """The leading figure by the baseline's."""
    intervals: tuple[str, ...] = ()
    """The interval of each figure, or why it has none; the leading one first."""


@dataclass(frozen=True, slots=True)
class FigureTable:
    """One test over all cases, and the latency curves that compare them."""

    test: str
    title: str
    lead: str
    others: tuple[str, ...]
    rows: tuple[FigureRow, ...]
    curves: tuple[dict[str, Any], ...]

    def intervals_of(self, row: FigureRow) -> list[tuple[str, str, str]]:
        """Title, value and interval of each figure of a row that is known."""
        rows = zip((self.lead, *self.others), (row.lead, *row.others), row.intervals, strict=True)
        return [(title, value, interval) for title, value, interval in rows if interval]


@dataclass(frozen=True, slots=True)
class ScalingTable:
    """How one test's figures grow with the number of clients: figure, smallest and largest value, exponent, interval,
    result."""

    title: str
    numbers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: dict[str, list[str]]
    laws: tuple[str, ...]
    plots: tuple[dict[str, Any], ...] = ()
    undrawn: int = 0
    """How many further figures have no plot, because the page has enough."""


@dataclass(frozen=True, slots=True)
class CaseSection:
    """The section of one case."""

    case: str
    label: str
    parameters: dict[str, str]
    summaries: tuple[Summary, ...]
    trials: tuple[TrialResult, ...]
    client_rows: tuple[host_statistics.ClientRow, ...]
    server_rows: tuple[host_statistics.ServerRow, ...]
    sharing: str | None
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts with equal facts, such as the namespaces of one machine."""

    hosts: tuple[str, ...]
    facts: dict[str, str]
    missing: tuple[tuple[str, str], ...]
    interfaces: tuple[tuple[str, dict[str, str]], ...]


def figure_tables(analysis: RunAnalysis) -> list[FigureTable]:
    """One table per test, in the order in which the tests ran."""
    cases = figures.case_parameters(analysis)
    names = figures.varying(cases)
    tables = []
    for test in dict.fromkeys(summary.test for summary in analysis.summaries):
        found = {summary.case: summary for summary in analysis.summaries if summary.test == test}
        summaries = [found[case] for case in cases if case in found]
        kind = figures.table_of(summaries[0].kind, summaries[0].metrics)
        longest = _longest(summaries, kind.rate.metric)
        rows = []
        for summary in summaries:
            values = tuple(figures.parameter(cases[summary.case].get(name)) for name in names)
            failed = verdicts.failed_repeats(analysis, summary)
            rows.append(_figure_row(summary, kind, values, longest, failed))
        lead = kind.rate.title
        titles = tuple(figure.title for figure in kind.others)
        tables.append(FigureTable(test, kind.title, lead, titles, tuple(rows), _compared(analysis, test, cases)))
    return tables


def scaling_tables(analysis: RunAnalysis) -> list[ScalingTable]:
    """One table per test that ran with several numbers of clients."""
    tables, left = [], MOST_PLOTS
    for title, found in analysis.scaling.items():
        if not found:
            continue
        plots = scaling_plots(found)
        tables.append(
            ScalingTable(
                title,
                tuple(f"{number:g}" for number in scalings.ends_of(found)),
                tuple(scalings.scaling_row(one, scalings.ends_of(found)) for one in found),
                scalings.notes_of(found),
                tuple(scalings.law_lines(found)),
                tuple(plots[:left]),
                max(0, len(plots) - left),
            )
        )
        left = max(0, left - len(plots))
    return tables


def case_sections(analysis: RunAnalysis) -> list[CaseSection]:
    """One section per case, failed ones included."""
    cases = figures.case_parameters(analysis)
    return [_case_section(analysis, case, cases) for case in cases]


def host_groups(analysis: RunAnalysis) -> list[HostGroup]:
    """Hosts with equal facts together; interfaces, which differ between namespaces, are listed per host."""
    groups: dict[str, list[str]] = {}
    for host, facts in analysis.hosts.items():
        common = {name: value for name, value in facts.items() if name not in (*_OWN_LISTS, "clock")}
        source = _clock(facts).get("source")
        groups.setdefault(repr((sorted(common.items()), source)), []).append(host)
    return [_host_group(analysis, hosts) for hosts in groups.values()]


def unlike_hosts(analysis: RunAnalysis) -> tuple[tuple[str, ...], list[tuple[str, tuple[str, ...]]]] | None:
    """The groups of hosts, and each fact in which they differ with its value in each group; None if all are alike."""
    groups = host_groups(analysis)
    # What each agent measured of its clock differs from one start to the next without meaning, on one machine too.
    names = dict.fromkeys(name for group in groups for name in group.facts if name not in _MEASURED)
    rows = [(name, tuple(group.facts.get(name, quantities.UNKNOWN) for group in groups)) for name in names]
    unlike = [(name, values) for name, values in rows if len(set(values)) > 1]
    if not unlike:
        return None
    titles = tuple(", ".join(group.hosts[:3]) + (" ..." if len(group.hosts) > 3 else "") for group in groups)
    return titles, unlike


def spoken_fact(name: str) -> str:
    """`interfaces wan tso` as `interfaces wan TSO`."""
    return " ".join(_spoken(word) for word in name.split(" "))


def observer_costs(analysis: RunAnalysis) -> list[tuple[str, str]]:
    """The cost of observing as a share of one CPU, per host."""
    return [(host, quantities.share(cost)) for host, cost in sorted(analysis.observer_cpu_share.items())]


def started(analysis: RunAnalysis) -> str:
    """`12 April 2026, 09:15:00 UTC`; a text that is not an ISO 8601 date stays as it is."""
    try:
        at = datetime.fromisoformat(analysis.started_at)
    except ValueError:
        return analysis.started_at
    zone = {"": "", "+0000": " UTC"}.get(at.strftime("%z"), f" {at:%z}")
    return f"{at.day} {at:%B %Y, %H:%M:%S}{zone}"


def headline(test: TestResult) -> str:
    """A test's leading figure with its name: `18.4 Gbit/s throughput`."""
    kind = figures.table_of(test.kind, test.metrics)
    return f"{figures.written(kind.rate, test.metrics)} {kind.rate.title}"


def circumstances(test: TestResult) -> list[str]:
    """The context of a test's figures: its steady window, the cost of generating, and its errors."""
    said = []
    if test.window is not None:
        cut = quantities.share(test.window.cut_share)
        said.append(f"steady for {quantities.seconds(test.window.length_s)}, {cut} cut off{warm_up(test.window)}")
    if test.generator is not None:
        said.append(f"busiest generating thread {quantities.share(test.generator.busiest_thread)}")
        if test.generator.late_p99_us is not None:
            said.append(f"sends late by p99 {quantities.microseconds(test.generator.late_p99_us)}")
        said += [line for _, line in (*ceiling_rows(test.generator), *engine_rows(test.generator))]
    errors = [f"{number:,} × {name}" for name, number in sorted(test.errors.items(), key=lambda item: -item[1])]
    return [*said, f"errors: {', '.join(errors) or 'none'}"]


def error_examples(test: TestResult) -> list[tuple[str, str, str]]:
    """Name, count and the first example of each error that has one, the most frequent first."""
    named = sorted(test.errors.items(), key=lambda item: -item[1])
    return [(name, f"{count:,}", test.error_examples[name]) for name, count in named if name in test.error_examples]


def _figure_row(
    summary: Summary, kind: figures.FigureTable, parameters: tuple[str, ...], longest: float, failed: str
) -> FigureRow:
    lead = summary.metrics.get(kind.rate.metric, Metric(None, ""))
    return FigureRow(
        case=summary.case,
        parameters=parameters,
        lead=figures.written(kind.rate, summary.metrics),
        interval=quantities.plus_minus(lead.value, lead.low, lead.high, summary.repeats),
        bar=_bar(lead, longest),
        others=tuple(figures.written(figure, summary.metrics) for figure in kind.others),
        repeats=summary.repeats,
        failed=failed,
        validity=summary.validity,
        limit=summary.limit,
        ratio=ratios.ratio_cell(summary, kind.rate.metric),
        intervals=tuple(figures.interval_words(figure, summary.metrics) for figure in (kind.rate, *kind.others)),
    )


def _bar(lead: Metric, longest: float) -> Bar | None:
    if lead.value is None or longest <= 0:
        return None
    bounds = [None if bound is None else max(0.0, bound) / longest * 100 for bound in (lead.low, lead.high)]
    return Bar(max(0.0, lead.value) / longest * 100, bounds[0], bounds[1])


def _longest(summaries: list[Summary], metric: str) -> float:
    found = [summary.metrics[metric] for summary in summaries if metric in summary.metrics]
    ends = [value for lead in found for value in (lead.value, lead.high) if value is not None]
    return max(ends, default=0.0)


def _compared(analysis: RunAnalysis, test: str, cases: Mapping[str, dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Every trial's latency curve of a test, one group per case; none if they would be too many to distinguish."""
    if not 1 < len(cases) <= MOST_COMPARED_CASES:
        return ()
    found = []
    for group, case in enumerate(cases):
        label = figures.case_label(case, dict(cases))
        for trial in analysis.trials:
            for result in trial.tests if trial.case == case else ():
                latency = next((one for one in result.percentiles if one.metric == "latency" and one.points), None)
                if result.test == test and latency is not None:
                    found.append(charts.curve(label, latency, group))
    return tuple(found)


def _case_section(analysis: RunAnalysis, case: str, cases: dict[str, dict[str, Any]]) -> CaseSection:
    trials = tuple(trial for trial in analysis.trials if trial.case == case)
    tests = [(trial, test) for trial in trials for test in trial.tests]
    clients = [
        host_statistics.client_row(f"{trial.repeat}", test.test, [test.clients])
        for trial, test in tests
        if test.clients is not None
    ]
    servers = [
        host_statistics.server_row(f"{trial.repeat}", test.test, [test.server])
        for trial, test in tests
        if test.server is not None
    ]
    return CaseSection(
        case=case,
        label="  ".join(figures.case_label(case, cases).split("  ")[1:]),
        parameters={name: figures.parameter(value) for name, value in cases[case].items()},
        summaries=tuple(summary for summary in analysis.summaries if summary.case == case),
        trials=trials,
        client_rows=tuple(clients),
        server_rows=tuple(servers),
        sharing=host_statistics.sharing_note(servers),
        answer=next((answer for answer in analysis.answers if answer.case == case), None),
    )


def _host_group(analysis: RunAnalysis, hosts: list[str]) -> HostGroup:
    facts = analysis.hosts[hosts[0]]
    plain = {name: value for name, value in facts.items() if name not in (*_OWN_LISTS, *_SPOKEN_APART)}
    plain |= _spoken_apart(facts)
    clocks = [_clock(analysis.hosts[host]) for host in hosts]
    if _clock(facts):
        plain["clock"] = {name: _worst([clock.get(name) for clock in clocks]) for name in _clock(facts)}
    missing = {
        (str(capability.get("name")), str(capability.get("reason") or "unknown reason"))
        for host in hosts
        for capability in _records(analysis.hosts[host].get("capabilities"))
        if capability.get("available") is False
    }
    interfaces = [
        (host, _flat({name: value for name, value in interface.items() if name != "name"}, ""))
        for host, interface in _interfaces(analysis, hosts)
    ]
    return HostGroup(tuple(hosts), _flat(plain, ""), tuple(sorted(missing)), tuple(interfaces))


def _spoken_apart(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts that their name and value alone do not tell: numbers of CPUs read as counts of them."""
    found: dict[str, Any] = {}
    if own := facts.get("own_cpus"):
        found["pinned to"] = f"CPU {own[0]}" if len(own) == 1 else f"CPUs {', '.join(map(str, own))}"
    if polling := facts.get("idle_poll"):
        found["idle CPUs"] = (
            "polled" if polling.get("held") else f"asleep: {polling.get('reason') or 'polling refused'}"
        )
    wake_up = facts.get("wake_up")
    if isinstance(wake_up, Mapping):
        found["wake up"] = {name: value for name, value in wake_up.items() if name != "cpus"}
        between = wake_up.get("cpus")
        if isinstance(between, list | tuple) and len(between) == 2:
            first, second = between
            found["wake up"]["measured"] = f"CPU {first}" if first == second else f"CPU {first} to CPU {second}"
    return found


def _clock(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    clock = facts.get("clock")
    return clock if isinstance(clock, Mapping) else {}


def _worst(values: list[Any]) -> Any:
    """The common value of facts that hosts of one machine measured separately: the coarsest step, the largest error;
    else the first one's."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return max(numbers) if numbers else values[0]


def _interfaces(analysis: RunAnalysis, hosts: list[str]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{host} {interface.get('name', '')}".strip(), interface)
        for host in hosts
        for interface in _records(analysis.hosts[host].get("interfaces"))
    ]


def _records(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list | tuple) else []


def _flat(facts: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Nested facts as `clock source: tsc`; the unit at the end of a name is applied to the value."""
    found: dict[str, str] = {}
    for name, value in facts.items():
        spoken = f"{prefix}{_spoken(name)}"
        if isinstance(value, Mapping):
            found |= _flat(value, f"{spoken} ")
        elif value is None:
            found[spoken] = "unknown"
        elif name.endswith("_bytes") and isinstance(value, int | float):
            found[spoken] = quantities.memory(value)
        elif name.endswith("_hz") and isinstance(value, int | float):
            found[spoken] = f"{value / 1e9:.3g} GHz"
        elif name.endswith("_us") and isinstance(value, int | float):
            found[spoken] = quantities.microseconds(value)
        elif name.endswith("_ns") and isinstance(value, int | float):
            found[spoken] = quantities.microseconds(value / 1e3)
        else:
            found[spoken] = figures.parameter(value)
    return found


def _spoken(name: str) -> str:
    """`cpu_model` as `CPU model`; without the unit at the end, which the value has."""
    words = name.split("_")
    if len(words) > 1 and words[-1] in ("bytes", "hz", "us", "ns"):
        words.pop()
    return " ".join(_ACRONYMS.get(word, word) for word in words)


def unbroken(text: str) -> str:
    """The text with numbers and their units on one line."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)


def coded(text: str) -> Markup:
    """The text with what stands between backticks as code."""
    return Markup(_BETWEEN_BACKTICKS.sub(r"<code>\1</code>", str(escape(text))))


def wording(validity: Validity) -> verdicts.Wording:
    """The wording of a verdict."""
    return replace(verdicts.WORDINGS[validity.verdict], sentence=verdicts.sentence_of(validity))
