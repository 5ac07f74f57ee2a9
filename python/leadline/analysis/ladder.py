"""The ladder of each case of a run: what each layer carries, as a share of what the layer below allows.

Owns the comparison: figures in one unit alone, over the same repeats, with the part that headers take shown apart from
what is lost. A figure that is only a lower bound does not say what its layer allows: what a layer above it carried says
more. `ladder_waterfall` draws the conclusion. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from leadline import quantities
from leadline.analysis.comparison import open_factors, widened
from leadline.analysis.ladder_model import HostCost, Ladder, LadderFigure, LadderLayer, Share
from leadline.analysis.ladder_waterfall import look_first, waterfalls
from leadline.analysis.model import Bound, LimitedBy, Metric, RunAnalysis, Summary, TestResult, TrialResult, Verdict
from leadline.analysis.repeats import comparable, joint_side
from leadline.plan.ladder import Chain, LadderKind, Packets, Rung, all_rungs
from leadline.registry import KINDS
from leadline.statistics import Estimate, mean_of_repeats, ratio_of_means

THE_LINK, THE_ROUTE = "the link", "the plain route"
_LEFT_OUT = "its plain route was left out of this run"


@dataclass(frozen=True, slots=True)
class Step:
    """One measured rung of a path."""

    rung: Rung
    summary: Summary | None
    values: Mapping[int, float]
    """The figure of each repeat."""
    payload_share: float | None
    """The payload in the bytes of its frames."""
    error: str | None
    results: tuple[TestResult, ...]
    note: str | None = None
    """What a reader of its figure has to know."""

    @property
    def metric(self) -> Metric:
        """Its figure over the repeats."""
        unknown = Metric(None, "bit/s" if self.rung.chain is Chain.PAYLOAD else "1/s")
        return (
            unknown if self.summary is None else self.summary.metrics.get(_figure_of(self.rung, self.summary), unknown)
        )

    @property
    def bound(self) -> Bound | None:
        """The side of its figure on which lies what the layer can carry. A rate that was offered and delivered is a
        lower bound of it."""
        if self.metric.is_least:
            return Bound.LEAST
        limit = None if self.summary is None else self.summary.limit
        offered = limit is not None and limit.by is LimitedBy.OFFERED_RATE and not self.is_found
        return Bound.LEAST if offered and self.metric.bound is None else self.metric.bound

    @property
    def open_factors(self) -> Mapping[int, float]:
        """How many times its value the figure of each repeat may be, where a search found it."""
        return {} if self.summary is None else open_factors(self.results, _figure_of(self.rung, self.summary))

    @property
    def is_found(self) -> bool:
        """Whether a search found its rate."""
        return self.summary is not None and _figure_of(self.rung, self.summary) != self.rung.metric


def _figure_of(rung: Rung, measured: Summary | TestResult) -> str:
    """The name of a rung's figure: of a test that searches, the rate that it found."""
    return rung.found_metric if rung.found_metric in measured.metrics else rung.metric


@dataclass(frozen=True, slots=True)
class Below:
    """What a layer's share is taken of."""

    name: str
    value: float
    payload_share: float | None
    values: Mapping[int, float] | None
    """Its figure in each repeat; None for a value that is not measured, or that another layer showed."""
    bound: Bound | None = None
    shown_by: str | None = None
    open_factors: Mapping[int, float] = field(default_factory=dict)
    """How many times its value the figure of each repeat may be, where a search found it."""


def of_run(analysis: RunAnalysis, cases: Mapping[str, Mapping[str, Any]]) -> tuple[Ladder, ...]:
    """The ladders of a run's cases, as its manifest describes them; cases that were skipped have none."""
    begun = {trial.case: trial for trial in analysis.trials if trial.status != "skipped"}
    cases = {name: _as_measured(case, begun[name]) if name in begun else case for name, case in cases.items()}
    paths = {
        name: list(_steps(analysis, name, case)) for name, case in cases.items() if case.get("ladder") and name in begun
    }
    return tuple(_ladder(name, cases[name], paths) for name in paths if paths[name])


def _as_measured(case: Mapping[str, Any], trial: TrialResult) -> Mapping[str, Any]:
    """A case of the manifest, with the name that its system has since the bring-up."""
    sut = case.get("sut") or {}
    if not trial.sut or trial.sut == sut.get("kind") or trial.on_given_hosts:
        return case
    parameters = {**(case.get("parameters") or {}), "sut": trial.parameters.get("sut", trial.sut)}
    return {**case, "sut": {**sut, "kind": trial.sut}, "parameters": parameters}


def _ladder(name: str, case: Mapping[str, Any], paths: Mapping[str, Sequence[Step]]) -> Ladder:
    described = case["ladder"]
    baseline = described.get("baseline")
    why_alone = described.get("why_alone")
    if baseline is not None and baseline not in paths:
        baseline, why_alone = None, _LEFT_OUT
    link_bps = (case.get("link") or {}).get("rate_bps")
    steps = paths[name]
    layers = tuple(_layers(steps, paths.get(baseline, ()), link_bps))
    sut = case.get("sut") or {}
    made = Ladder(
        case=name,
        parameters={str(key): str(value) for key, value in (case.get("parameters") or {}).items()},
        sut=str(described.get("path") or sut.get("kind") or ""),
        baseline=baseline,
        why_alone=why_alone,
        layers=layers,
        notes=(*(step.note for step in steps if step.note is not None), *_notes(layers)),
    )
    below = {step.rung.test: carried(steps_of, step) for steps_of in [paths.get(baseline, ())] for step in steps_of}
    made = replace(made, waterfalls=waterfalls(made, link_bps, _route_layers(paths.get(baseline, ()), link_bps), below))
    return replace(made, look_first=look_first(made))


def _route_layers(steps: Sequence[Step], link_bps: float | None) -> tuple[LadderLayer, ...]:
    """The plain route's own layers, of which the lowest stands below a tunnel's."""
    return tuple(_layers(steps, (), link_bps))


def _steps(analysis: RunAnalysis, case: str, record: Mapping[str, Any]) -> Iterator[Step]:
    """The rungs of a case, from the bottom up."""
    tests = {test.get("name"): test for test in record.get("tests") or ()}
    known = set(record["ladder"].get("tests") or ())
    for kind, rung in all_rungs():
        test = tests.get(rung.test)
        if rung.test not in known or test is None or test.get("kind") != kind:
            continue
        summary = next((one for one in analysis.summaries if (one.case, one.test) == (case, rung.test)), None)
        trials = [trial for trial in analysis.trials if trial.case == case]
        results = tuple(one for trial in trials for one in trial.tests if one.test == rung.test)
        error = next((one.error for one in results if one.error and one.status == "failed"), None)
        error = error or next((trial.error for trial in trials if trial.error), None)
        values = _values(results, rung)
        missing = None if values else error or "it was not measured"
        share = _payload_share(kind, test, record["ladder"])
        note = _flooded(kind, rung, test, summary) or _at_once(rung, summary)
        yield Step(rung, summary, values, share, missing, results, note)


def _flooded(kind: str, rung: Rung, test: Mapping[str, Any], summary: Summary | None) -> str | None:
    """The note that a load without a rate was more than could arrive; None if it was not."""
    found: LadderKind = KINDS.get(kind)
    if not rung.is_offered or test.get("rate_bps") or test.get("search") or found.shortfall is None or summary is None:
        return None
    name, words = found.shortfall
    lost = summary.metrics[name].value if name in summary.metrics else None
    if lost is None or lost < _MUCH_LOST:
        return None
    return (
        f"{rung.title}: sent as fast as possible, with {quantities.share(lost)} {words}; its figure is what arrived. "
        "A rate that holds may be higher: give `rate`, or a test of this name with `search`"
    )


def _at_once(rung: Rung, summary: Summary | None) -> str | None:
    """The note that a plan's own load had several requests outstanding, where the layers below have one; None if it had
    not."""
    users = summary.metrics.get("users_most") if summary is not None else None
    if users is None or users.value is None or users.value <= 1:
        return None
    return (
        f"{rung.title}: {users.value:.0f} users at once, where the layers below have one request outstanding: its "
        "share of them is that of as many"
    )


def _values(results: Sequence[TestResult], rung: Rung) -> dict[int, float]:
    """The figure of each repeat that counts in the summary."""
    found = {one.repeat: one.metrics.get(_figure_of(rung, one)) for one in _counted(results)}
    return {number: figure.value for number, figure in found.items() if figure is not None and figure.value is not None}


def _counted(results: Sequence[TestResult]) -> list[TestResult]:
    return comparable([one for one in results if one.status == "done"])[0]


def _payload_share(kind: str, test: Mapping[str, Any], described: Mapping[str, Any]) -> float | None:
    largest, overhead = described.get("largest_bytes"), described.get("overhead_bytes")
    if largest is None or overhead is None:
        return None
    found: LadderKind = KINDS.get(kind)
    return found.payload_share(test, Packets(int(largest), int(overhead), int(test.get("ip") or 4)))


def _layers(steps: Sequence[Step], route: Sequence[Step], link_bps: float | None) -> Iterator[LadderLayer]:
    same = {step.rung.test: step for step in route}
    for step in steps:
        chain = [one for one in steps if one.rung.chain is step.rung.chain and one.values]
        lower = [one for one in chain if one.rung.height < step.rung.height]
        beside = same.get(step.rung.test)
        if lower:
            below: Below | None = carried(steps, lower[-1])
        elif beside is not None and beside.values:
            below = replace(carried(route, beside), name=THE_ROUTE)
        else:
            below = _of_link(link_bps) if step.rung.chain is Chain.PAYLOAD else None
        yield _layer(step, carried(steps, step), below, beside, route)


def _of_link(link_bps: float | None) -> Below | None:
    return None if not link_bps else Below(THE_LINK, float(link_bps), 1.0, None)


def carried(steps: Sequence[Step], step: Step) -> Below:
    """What a layer carries. Where its own figure is doubted, a layer above it may have shown more.

    A valid figure stays: a layer above that carries more then spares work, and that is a finding.
    """
    metric = step.metric
    factors = step.open_factors
    own = Below(step.rung.title, metric.value or 0.0, step.payload_share, step.values, step.bound, open_factors=factors)
    if metric.verdict is Verdict.VALID and own.bound is None:
        return own
    best = own
    for above in steps:
        if above.rung.chain is not step.rung.chain or above.rung.height <= step.rung.height:
            continue
        if above.rung.is_given:
            continue  # Its load is the plan's own, with more at once than a ladder's.
        value = (above.metric.value or 0.0) * _factor(above.payload_share, step.payload_share)
        if value > best.value:
            best = Below(own.name, value, own.payload_share, None, Bound.LEAST, above.rung.title)
    return best


def _factor(upper: float | None, lower: float | None) -> float:
    """Bits of a lower layer for each bit of an upper one."""
    return lower / upper if upper and lower else 1.0


def _layer(step: Step, own: Below, below: Below | None, beside: Step | None, route: Sequence[Step]) -> LadderLayer:
    share = _share_of(step, own, below)
    headers, headers_reason = _headers(step, below)
    limit = step.summary.limit if step.summary is not None else None
    return LadderLayer(
        test=step.rung.test,
        layer=step.rung.layer,
        title=step.rung.title,
        chain=step.rung.chain.value,
        figure=_figure(step),
        error=step.error,
        below=None if below is None else below.name,
        allowed=None if below is None else below.value,
        allowed_by=None if below is None else below.shown_by,
        share=share,
        headers=headers,
        headers_reason=headers_reason,
        lost=_lost(share, headers),
        baseline=None if beside is None else _figure(beside),
        share_of_baseline=None if beside is None else _share_of_route(step, own, beside, route),
        limited_by=None if limit is None else limit.by.value,
        evidence=None if limit is None else limit.evidence,
        costs=costs_of(step.results),
        baseline_costs=() if beside is None else costs_of(beside.results),
    )


def _figure(step: Step) -> LadderFigure:
    metric = step.metric
    if not step.values:
        return LadderFigure(None, metric.unit, verdict=metric.verdict.value)
    bound = step.bound
    return LadderFigure(
        metric.value,
        metric.unit,
        metric.low,
        metric.high,
        None if bound is None else bound.value,
        metric.verdict.value,
        len(step.values),
    )


def _share_of_route(step: Step, own: Below, beside: Step, route: Sequence[Step]) -> Share:
    if not beside.values:
        return Share(None, reason=beside.error or "the plain route has no figure")
    return _share_of(step, own, carried(route, beside))


def _share_of(step: Step, own: Below, below: Below | None) -> Share:
    if not step.values:
        return Share(None, reason=step.error)
    if below is None:
        lowest = "the rate of the link is not known" if step.rung.chain is Chain.PAYLOAD else "it is the lowest layer"
        return Share(None, reason=lowest)
    return _share_of_layer(step, own, below) if below.value > 0 else Share(None, reason=f"{below.name} carried nothing")


def _share_of_layer(step: Step, own: Below, below: Below) -> Share:
    """The share of a layer that carried something."""
    bound = _ratio_bound(below.bound, own.bound)
    word = None if bound is None else bound.value
    if own.shown_by is not None:
        # A layer above carried more through this one than its own doubted figure says.
        reason = f"the figure of {own.name} comes from a layer above it ({own.shown_by})"
        return Share(own.value / below.value, None, None, word, reason)
    if below.values is None:
        return _share_of_value(step, below, word)
    shared = sorted(step.values.keys() & below.values.keys())
    lower, upper = ({number: values[number] for number in shared} for values in (below.values, step.values))
    if sum(lower.values()) <= 0:
        return Share(None, reason=f"{below.name} carried nothing in a repeat that has both")
    ratio = ratio_of_means(list(lower.values()), list(upper.values()), paired=True)
    ratio = widened(ratio, (lower, upper), (below.open_factors, step.open_factors))
    return Share(ratio.value, ratio.low, ratio.high, word, ratio.reason)


def _share_of_value(step: Step, below: Below, bound: str | None) -> Share:
    """The share of a value that is exact (the link's rate), or that another layer showed."""
    metric = step.metric
    assert metric.value is not None, "a step with values has a mean"
    low, high = (None if end is None else end / below.value for end in (metric.low, metric.high))
    if below.shown_by is None:
        return Share(metric.value / below.value, low, high, bound, metric.unbounded)
    reason = f"the figure of {below.name} comes from a layer above it ({below.shown_by})"
    return Share(metric.value / below.value, None, None, bound, reason)


def _ratio_bound(lower: Bound | None, upper: Bound | None) -> Bound | None:
    """The side of a ratio on which the true one lies, from the sides of its parts."""
    return joint_side((lower.inverted if lower is not None else None, upper))


def _headers(step: Step, below: Below | None) -> tuple[float | None, str | None]:
    """The part of what is allowed that this layer's headers take."""
    if step.rung.chain is not Chain.PAYLOAD:
        return None, "requests are counted, not their bytes"
    if below is None:
        return None, "the layer below is not known"
    if step.payload_share is None or below.payload_share is None:
        return None, "the sizes of the packets are not known"
    return 1 - step.payload_share / below.payload_share, None


def _lost(share: Share, headers: float | None) -> Share:
    """What is allowed, without headers, and is not carried."""
    left = 1 - (headers or 0.0)
    if share.value is None or left <= 0:
        return Share(None, reason=share.reason)
    turned = {Bound.LEAST.value: Bound.MOST.value, Bound.MOST.value: Bound.LEAST.value}
    bound = None if share.bound is None else turned.get(share.bound, share.bound)
    low = None if share.high is None else 1 - share.high / left
    high = None if share.low is None else 1 - share.low / left
    return Share(1 - share.value / left, low, high, bound, share.reason)


def costs_of(results: Sequence[TestResult]) -> tuple[HostCost, ...]:
    """What a test cost each host: means over the repeats that count in its summary."""
    done = _counted(results)
    hosts = dict.fromkeys(cost.host for one in done for cost in one.host_costs)
    return tuple(_mean_cost([cost for one in done for cost in one.host_costs if cost.host == host]) for host in hosts)


_COSTS = ("cpu_percent", "ns_per_byte", "ns_per_packet", "ns_per_operation")


def _mean_cost(costs: Sequence[HostCost]) -> HostCost:
    """The means with Student's t-interval over the repeats."""
    means = {name: _mean([getattr(cost, name) for cost in costs]) for name in _COSTS}
    known = {name: mean for name, mean in means.items() if mean is not None}
    bounds = {
        name: (max(0.0, mean.low), mean.high)
        for name, mean in known.items()
        if mean.low is not None and mean.high is not None
    }
    reason = next((mean.reason for mean in known.values() if mean.reason is not None), None)
    return HostCost(
        costs[0].host,
        costs[0].source,
        **{name: None if mean is None else mean.value for name, mean in means.items()},
        reason=next((cost.reason for cost in costs if cost.reason), None),
        bounds=bounds,
        unbounded=None if bounds else reason,
    )


def _mean(figures: Sequence[float | None]) -> Estimate | None:
    known = [figure for figure in figures if figure is not None]
    return mean_of_repeats(known) if known else None


def _notes(layers: Sequence[LadderLayer]) -> Iterator[str]:
    """What a reader of the shares has to know."""
    for layer in layers:
        if layer.allowed_by is not None and layer.below is not None:
            least = quantities.metric(layer.allowed, layer.figure.unit)
            yield f"{layer.below}: its own figure is doubted, and {layer.allowed_by} showed that it carries {least}"
    if any((layer.lost.value or 0) < -_MORE for layer in layers):
        yield "more than 100 %: a layer above can spare work, as TCP's segments do that the kernel handles together"


_MORE = 0.02
_MUCH_LOST = 0.01
"""Share of a load that did not arrive, from where on a note says so."""
