"""Analyses one test: its figures, and the verdict on them, from its hosts' data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from leadline import quantities
from leadline.analysis import (
    cpu_waits,
    dealt_loads,
    explained_rates,
    full_cpus,
    gateway_intervals,
    gateways,
    head_and_tail,
    host_metrics,
    latency_drift,
    limits,
    metrics,
    outages,
    percentile_precision,
    read_waits,
    repeat_causes,
    rough_figures,
    stability,
    tiers,
    tunnels,
    unreadable_histograms,
    validity,
    wake_ups,
    window,
)
from leadline.analysis import histograms as hdr
from leadline.analysis.durations import Sample, curve
from leadline.analysis.flow_spans import spans_of
from leadline.analysis.flows import Flow, build_flows
from leadline.analysis.host_clocks import host_clocks
from leadline.analysis.host_costs import host_costs
from leadline.analysis.intervals import DecodedParts, Parts, decoded_parts, parts_of, with_intervals
from leadline.analysis.machine_rules import notes_without_machine
from leadline.analysis.model import (
    Ceiling,
    Distribution,
    Generator,
    Interval,
    Metric,
    Percentiles,
    Series,
    TestResult,
    Verdict,
    Window,
)
from leadline.analysis.packet_model import PacketFindings
from leadline.analysis.rate_parts import rate_parts
from leadline.analysis.scenario_model import ScenarioFindings
from leadline.analysis.test_data import TestData
from leadline.analysis.time_marks import ends_in_stall, time_marks
from leadline.plan.targets import has_metric
from leadline.registry import KINDS

# Histograms of completed operations, and of the ages of outstanding ones.
_LATENCIES = ("latency", f"latency{metrics.CENSORED}")
# The numbers of operations of which shares are.
_TOTALS = ("sent", "requests_due")


class FiguresKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def primary(self) -> str:
        """The leading figure of a test."""

    @property
    def decisive(self) -> tuple[str, ...]:
        """The main figures beside the leading one."""

    @property
    def counted(self) -> str | None:
        """What the leading figure counts; None for bits."""

    @property
    def curves(self) -> tuple[str, ...]:
        """The histograms whose percentiles are drawn; pages show the first one by default."""

    def window(self, data: TestData, flows: Sequence[Flow]) -> tuple[Window | None, tuple[Series, ...]]:
        """The time over which rates are taken, and additional lines to draw."""

    def figures(
        self, data: TestData, flows: Sequence[Flow], steady: Window | None, histograms: metrics.Histograms
    ) -> dict[str, Metric]:
        """Every metric; unknown ones are None."""

    def with_histograms(self, data: TestData, histograms: metrics.Histograms) -> metrics.Histograms:
        """The histograms of the whole test, and those of its parts if the kind has parts."""

    def distributions(
        self, data: TestData, steady: Window | None, histograms: metrics.Histograms
    ) -> tuple[Distribution, ...]:
        """Distributions of times, if the kind shows more than percentiles."""

    def generator(self, data: TestData, cost: Generator) -> Generator:
        """The cost of generating, refined by the kind."""

    def ceiling(self, data: TestData, steady: Window | None, histograms: metrics.Histograms) -> Ceiling | None:
        """The generator's maximum rate for this load; None if it is unknown."""

    def scenario_findings(self, data: TestData) -> ScenarioFindings | None:
        """The groups of users, requests and transactions of a scenario; None for other kinds."""

    def packet_findings(self, data: TestData) -> PacketFindings | None:
        """Raw frames by size and by flow; None for other kinds."""


def analyse_test(data: TestData) -> TestResult:
    """Figures, verdict, intervals, tables and curves of one test. Works with partial data of an interrupted test."""
    return analyse_repeat(data)[0]


def analyse_repeat(data: TestData) -> tuple[TestResult, metrics.Histograms]:
    """The same, with the histograms: percentiles over several repeats are those of all of them merged."""
    flows = build_flows(data)
    kind: FiguresKind = KINDS.find(data.spec.kind)
    whole, lines = kind.window(data, flows)
    steady = window.without_warm_up(data.spec, flows, whole)
    merged = kind.with_histograms(data, _with_backlog(data, flows, metrics.merged_histograms(data)))
    decoded = decoded_parts(data)
    parts = parts_of(decoded)
    intervals = _with_latency(data, steady, window.intervals(flows, steady, data.spec), decoded)
    evidence = validity.Evidence(data, flows, steady, merged, kind.ceiling(data, steady, merged))
    clients = metrics.client_statistics(data, flows, steady)
    figures = _figures(data, flows, steady, merged)
    crossed = gateways.statistics_of(data, steady, gateways.Traffic.of(clients, figures))
    of_gateways = gateway_intervals.with_bounds(gateways.figures(crossed), crossed, data, flows, steady)
    of_stack = tiers.statistics_of(data, steady, figures.get("requests_per_s", Metric(None, "1/s")).value)
    figures = with_intervals(
        {**figures, **tiers.with_gateways(of_gateways, of_stack)}, data, flows, steady, histograms=merged, parts=parts
    )
    imprecise = _find_imprecise(data, figures, parts, flows, steady, merged=merged)
    found = outages.outages(data.link_changes, data.samples, steady, flows)
    out = outages.reason_of(found, steady, _rate_before(found[:1], data, flows, steady)) if steady is not None else None
    judge = partial(
        validity.assess,
        evidence,
        figures,
        (*gateways.notes(crossed), *outages.error_notes(data.samples), *stability.notes(data, flows, steady)),
        spared=explained_rates.find_spared_lacks(evidence, next(limits.full_path(evidence, is_least=True), None)),
        unmoved=cpu_waits.find_unmoved_figures(evidence, figures),
    )
    against = [*imprecise, *read_waits.judge_reads(figures, merged), *([out] if out is not None else [])]
    judged = judge(against)
    limit = limits.limit_of(evidence, judged.validity.reasons, kind.primary)
    lead = judged.metrics.get(kind.primary)
    doubt = limits.doubt_by(limit, evidence) if lead is not None and lead.verdict is Verdict.VALID else None
    judged = judge([*against, doubt]) if doubt is not None else judged
    judged = full_cpus.bound_rates(judged, limit, data, len(flows))
    naive = head_and_tail.naive_rates(data.spec, flows, steady, judged.metrics)
    rough = notes_without_machine(rough_figures.note(judged.metrics, kind.decisive, data.stability_spread))
    notes = (*head_and_tail.note(naive, judged.metrics, steady), *rough, *judged.validity.notes)
    result = TestResult(
        case=data.case,
        repeat=data.repeat,
        test=data.spec.name,
        kind=data.spec.kind,
        parameters=data.parameters,
        status=data.status,
        error=data.error or (f"{data.failures[0][0]}: {data.failures[0][1]}" if data.failures else None),
        metrics=judged.metrics,
        validity=replace(judged.validity, notes=notes),
        window=steady,
        generator=_generator(kind, evidence),
        errors=metrics.error_counts(data),
        intervals=intervals,
        clients=clients,
        server=host_metrics.server_statistics(data, steady),
        percentiles=_curves(kind, merged),
        series=(*lines, *host_metrics.series(data, steady)),
        error_examples=metrics.error_examples(data),
        distributions=kind.distributions(data, steady, merged),
        limit=limit,
        fleet=tunnels.findings(data),
        started_at_s=data.start_wall_ns / 1e9 if data.start_wall_ns is not None else None,
        gateways=crossed,
        tiers=of_stack,
        slowest_traced=tiers.slowest_requests(data),
        naive=naive,
        clocks=host_clocks(data, flows),
        host_costs=host_costs(data, flows, steady, crossed),
        flow_spans=spans_of(flows, steady),
        time_marks=time_marks(data, steady, intervals, counts_operations=data.spec.counts_units),
        wake_ups=wake_ups.wake_ups(data),
        scenario=kind.scenario_findings(data),
        packets=kind.packet_findings(data),
        circumstances=repeat_causes.circumstances(data, steady),
        rate_parts=rate_parts(data.spec, flows, steady),
        dealt=dealt_loads.dealt_load(data),
        build_profiles={host: facts.get("build_profile") for host, facts in data.facts.items()},
    )
    return result, merged


def _find_imprecise(
    data: TestData,
    figures: Mapping[str, Metric],
    parts: Parts,
    flows: Sequence[Flow],
    steady: Window | None,
    *,
    merged: metrics.Histograms,
) -> list[validity.Finding]:
    """What the histograms, and latencies that drift, say against figures."""
    return [
        *latency_drift.findings(data, figures, parts, flows, steady),
        *(percentile_precision.findings(data, figures, parts, merged) if data.asked else ()),
        *unreadable_histograms.findings(figures, merged),
    ]


def _rate_before(found: Sequence[outages.Outage], data: TestData, flows: Sequence[Flow], steady: Window) -> str:
    """What the load had carried when its first outage began, as a clause; empty where that is not known."""
    rates = window.named_rates(data.spec, flows)
    if not found or not rates:
        return ""
    name, (_, factor, curves) = next(iter(rates.items()))
    begin_ns, end_ns = steady.first_start_ns, found[0].start_ns
    if not curves or end_ns <= begin_ns:
        return ""
    rate = factor * sum(curve.growth(begin_ns, end_ns) for curve in curves) / ((end_ns - begin_ns) / window.NS_PER_S)
    kind: FiguresKind = KINDS.find(data.spec.kind)
    if name.endswith("_bps"):
        return f"until then it carried {quantities.bit_rate(rate)}"
    counted = f" {kind.counted}" if kind.counted else ""
    return f"until then it carried {quantities.per_second(rate).removesuffix('/s').rstrip()}{counted}/s"


def figures_so_far(data: TestData, histograms: Mapping[str, hdr.Histogram], parts: Parts) -> dict[str, Metric]:
    """The metrics of a running test from its data so far, those that targets ask for with their intervals.
    `histograms` are merged by the caller, and `parts` are what each second has of them."""
    flows = build_flows(data)
    steady = window.steady_window(flows, data.spec.warmup_ns, data.start_at_ns)
    kind: FiguresKind = KINDS.find(data.spec.kind)
    merged = kind.with_histograms(data, metrics.Histograms(histograms))
    figures = _figures(data, flows, steady, merged)
    asked = {name: figures[name] for name in (*data.asked, *_TOTALS) if name in figures}
    return {**figures, **with_intervals(asked, data, flows, steady, histograms=merged, parts=parts)}


def _with_backlog(data: TestData, flows: Sequence[Flow], merged: metrics.Histograms) -> metrics.Histograms:
    """Marks a backlog: more requests were left unsent than any end leaves, so they queued behind each other."""
    unsent, clients = metrics.counter(data, "unsent") or 0, data.connections or max(1, len(data.hosts))
    paced = data.spec.paced or data.spec.inside_gap_s is not None
    backlog = paced and unsent > validity.leftover(max(clients, len(flows)))
    unaged = metrics.counter(data, "unsent_without_age") or 0
    return replace(merged, backlog=backlog, unaged=unaged, stall_at_end=ends_in_stall(data.spec, flows))


def _figures(
    data: TestData, flows: Sequence[Flow], steady: Window | None, merged: metrics.Histograms
) -> dict[str, Metric]:
    kind: FiguresKind = KINDS.find(data.spec.kind)
    found = kind.figures(data, flows, steady, merged)
    asked = [name for name in (*data.spec.asked, *data.asked) if name not in found and has_metric(data.spec.kind, name)]
    return {**found, **metrics.asked_percentiles(asked, merged)}


def _generator(kind: FiguresKind, evidence: validity.Evidence) -> Generator | None:
    cost = metrics.generator_cost(evidence.data, evidence.flows, evidence.histograms, evidence.ceiling)
    return None if cost is None else kind.generator(evidence.data, cost)


def _curves(kind: FiguresKind, merged: metrics.Histograms) -> tuple[Percentiles, ...]:
    samples = {name: merged.sample(name) for name in kind.curves}
    return tuple(curve(name, sample) for name, sample in samples.items() if sample.count or sample.censored)


def _with_latency(
    data: TestData, steady: Window | None, intervals: Sequence[Interval], decoded: DecodedParts
) -> tuple[Interval, ...]:
    """Add the median and the p99 that agents reported in each interval. They report once a second: most have none."""
    parts = [one for one in decoded if one[0].report["metric"] in _LATENCIES]
    if steady is None or not intervals or not parts:
        return tuple(intervals)
    step_s = intervals[0].end_s - intervals[0].start_s
    found: dict[tuple[int, str], list[hdr.Histogram]] = {}
    for part, histogram in parts:
        # A progress event ends its interval, so half a step earlier is inside it.
        middle_s = (part.end_ns - data.spec.interval_ns / 2 - steady.first_start_ns) / 1e9
        index = min(max(0, int(middle_s / step_s)), len(intervals) - 1)
        found.setdefault((index, str(part.report["metric"])), []).append(histogram)
    return tuple(
        _timed(interval, Sample(*(hdr.merge(found.get((index, name), ())) for name in _LATENCIES)))
        for index, interval in enumerate(intervals)
    )


def _timed(interval: Interval, latency: Sample) -> Interval:
    found = {f"latency_p{share:g}_us": latency.percentile(share) for share in (50.0, 99.0)}
    censored = tuple(name for name, figure in found.items() if figure.is_bound)
    values = {name: figure.value_us for name, figure in found.items()}
    return replace(interval, values={**interval.values, **values}, censored=censored)
