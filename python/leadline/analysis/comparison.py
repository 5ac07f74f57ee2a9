"""Compares figures of two systems: by how much they differ, and whether that is known.

A side is a run, or the cases of a run that share one parameter's value. Figures are compared over repeats, which alone
are independent; repeats of one run were measured in turn, so they are pairs. Repeats whose figure is not valid are left
out, and said to be. Bounds have no ratio. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from leadline.analysis.interleaving import Order, order_of
from leadline.analysis.ladder_comparison import compare_ladders
from leadline.analysis.ladder_model import Ladder
from leadline.analysis.machine_rules import is_judged_without
from leadline.analysis.main_figures import better_of, chosen_figures
from leadline.analysis.model import Bound, Metric, RunAnalysis, Summary, TestResult, Verdict
from leadline.analysis.plan_facts import environment_facts, flat, system_facts
from leadline.analysis.repeats import joint_side, judged_together
from leadline.analysis.scope import Family, family_of
from leadline.analysis.searches import FOUND_PER_S, SEARCHED
from leadline.plan.gateway_metrics import CPU, GATEWAYS, MEMORY, PER_GBPS, metric_of, of_gateway
from leadline.plan.metric_specs import Better
from leadline.plan.tags import split_figure
from leadline.plan.tier_metrics import PER_REQUEST
from leadline.quantities import counted
from leadline.statistics import Comparison, Estimate, compare, ratio_of_means, with_slow_changes
from leadline.statistics.estimate import CONFIDENCE
from leadline.statistics.ratios import LEAST_REPEATS, too_few

MARGIN = 0.05
"""Within this share of each other two figures are equivalent, unless the user says otherwise."""

Key = tuple[tuple[tuple[str, str], ...], str]
"""What makes figures of two sides the same: parameters (those that tell the sides apart left out), and the test."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison."""

    label: str
    analysis: RunAnalysis
    tests: Mapping[tuple[str, str], Mapping[str, Any]]
    """The parameters of each test, by case and name, as the run's manifest has them."""
    only: tuple[str, str] | None = None
    """A parameter, and the value that its cases have; None for all cases."""
    case: str | None = None
    """A single case, whose parameters do not matter; None for all cases."""
    cases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Each case as the run's manifest has it, by its name."""
    confidence: float = CONFIDENCE
    """With which intervals over its repeats are made, `precision.confidence_over_repeats`."""

    def results(self) -> dict[Key, list[TestResult]]:
        """The repeats of each test that came to their end."""
        found: dict[Key, list[TestResult]] = {}
        for trial in self.analysis.trials:
            if self.case is not None and trial.case != self.case:
                continue
            if self.only is not None and str(trial.parameters.get(self.only[0])) != self.only[1]:
                continue
            for result in trial.tests:
                if result.status == "done":
                    found.setdefault(self.key(result), []).append(result)
        return found

    def ladders(self) -> list[Ladder]:
        """The ladders of its cases."""
        found = [one for one in self.analysis.ladders if self.case is None or one.case == self.case]
        if self.case is not None:
            return [replace(one, parameters={}) for one in found]
        only = self.only
        return [one for one in found if only is None or str(one.parameters.get(only[0])) == only[1]]

    def key(self, result: TestResult) -> Key:
        """What the other side's figures must share with this one's."""
        if self.case is not None:
            return (), result.test
        apart = self.only[0] if self.only is not None else None
        parameters = sorted((name, str(value)) for name, value in result.parameters.items() if name != apart)
        return tuple(parameters), result.test


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """One figure of both sides. `ratio` is the candidate's mean by the baseline's, in no unit."""

    parameters: dict[str, str]
    test: str
    kind: str
    metric: str
    unit: str
    baseline: float | None
    candidate: float | None
    ratio: float | None
    low: float | None
    high: float | None
    word: Comparison
    reason: str | None
    """Why the word is `cannot tell`; None for the other words."""
    baseline_bound: str | None = None
    """The side of `baseline` on which the true figure lies, as `Metric.side`; None where it is exact."""
    candidate_bound: str | None = None
    """The same of `candidate`."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something in which the two sides differ beside their figures."""

    what: str
    baseline: str
    candidate: str
    blocking: bool
    """Whether figures of the two say nothing of each other: other hardware, or another load."""


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """All figures that two sides share, what they do not share, and what else differs."""

    baseline: str
    candidate: str
    margin: float
    figures: tuple[ComparedFigure, ...]
    differences: tuple[Difference, ...]
    missing: tuple[str, ...]
    """Tests of one side that the other does not have."""
    not_interleaved: str | None = None
    """How the two were measured, if not in turn: intervals then allow for slow changes of the machine."""

    @property
    def blocking(self) -> tuple[Difference, ...]:
        """What makes the comparison meaningless."""
        return tuple(one for one in self.differences if one.blocking)


def compare_sides(
    baseline: Side, candidate: Side, *, margin: float = MARGIN, metrics: Sequence[str] = ()
) -> ComparedRuns:
    """Each figure that both sides have: those named, or the main ones of each kind of test that a repeat knows."""
    first, second = baseline.results(), candidate.results()
    paired = baseline.analysis is candidate.analysis
    # What made both sides end their repeats cancels in pairs.
    confidence = CONFIDENCE if paired else max(baseline.confidence, candidate.confidence)
    shared = [key for key in first if key in second]
    all_of = [[one for results in found.values() for one in results] for found in (first, second)]
    order = None if paired else order_of((baseline.label, candidate.label), *all_of)
    compared = (
        _compared(key, name, first[key], second[key], margin=margin, order=order, paired=paired, confidence=confidence)
        for key in shared
        for name in (*chosen_metrics(first[key][0].kind, metrics), *(() if metrics else costs_of_tiers(first[key][0])))
        if metrics or any(result.value(name) is not None for result in (*first[key], *second[key]))
    )
    figures = [one for one in compared if one is not None]
    figures += _compared_shares(baseline, candidate, shared, margin, metrics)
    missing = [f"{_named(key)}: only in {baseline.label}" for key in first if key not in second]
    missing += [f"{_named(key)}: only in {candidate.label}" for key in second if key not in first]
    return ComparedRuns(
        baseline=baseline.label,
        candidate=candidate.label,
        margin=margin,
        figures=tuple(figures),
        differences=() if paired else tuple(_differences(baseline, candidate, shared)),
        missing=tuple(missing),
        not_interleaved=None if order is None else order.text,
    )


def ratio_of_results(
    baseline: Sequence[TestResult], candidate: Sequence[TestResult], metric: str
) -> tuple[Estimate | None, str]:
    """The ratio of a figure over the repeats of two cases of one run, which were measured in turn, and why it or its
    interval is not known."""
    return _ratio(_repeats(baseline, metric), _repeats(candidate, metric), paired=True)


def compare_results(
    baseline: Sequence[TestResult], candidate: Sequence[TestResult], metric: str, *, margin: float = MARGIN
) -> ComparedFigure | None:
    """One figure of a test in two cases of one run, whose trials were interleaved; None if the baseline lacks it."""
    return _compared(((), candidate[0].test), metric, baseline, candidate, margin=margin, paired=True)


def chosen_metrics(kind: str, metrics: Sequence[str] = ()) -> tuple[str, ...]:
    """The figures to compare: those that are asked for, or the main ones and what gateways cost."""
    return chosen_figures(kind, metrics, [metric_of(host, one) for host in GATEWAYS for one in (CPU, PER_GBPS, MEMORY)])


def costs_of_tiers(result: TestResult | Summary) -> list[str]:
    """The names of the CPU time a request of each tier of a stack."""
    return [name for name in result.metrics if split_figure(name)[0] == PER_REQUEST]


def _compared(
    key: Key,
    metric: str,
    first: Sequence[TestResult],
    second: Sequence[TestResult],
    *,
    margin: float,
    paired: bool,
    order: Order | None = None,
    confidence: float = CONFIDENCE,
) -> ComparedFigure | None:
    better = better_of(first[0].kind, metric)
    if not any(metric in result.metrics for result in first):
        return None
    if of_gateway(metric) and all(one.metrics[metric].value is None for one in first if metric in one.metrics):
        return None  # The memory of a kernel is never known.
    sides = _repeats(first, metric), _repeats(second, metric)
    common = _common(*sides)
    if paired and all(one.values for one in common):
        sides = common
    unit = next(result.metrics[metric].unit for result in first if metric in result.metrics)
    estimate, reason = _ratio(*sides, paired, confidence, order)
    word = Comparison.CANNOT_TELL
    if estimate is not None and estimate.low is not None:
        word = compare(estimate, margin=margin, higher_is_better=better is not Better.LOWER)
        if better is Better.NEITHER and word in (Comparison.FASTER, Comparison.SLOWER):
            word, reason = Comparison.CANNOT_TELL, "they differ, but neither way of this figure is better"
        elif word is Comparison.CANNOT_TELL:
            narrower = ", or search with a smaller width" if any(one.open_factors for one in sides) else ""
            reason = f"the interval holds 1 and reaches beyond the margin: repeat both more often{narrower}"
    means = [sum(one.values.values()) / len(one.values) if one.values else None for one in sides]
    return ComparedFigure(
        parameters=dict(key[0]),
        test=key[1],
        kind=first[0].kind,
        metric=metric,
        unit=unit,
        baseline=means[0],
        candidate=means[1],
        ratio=estimate.value if estimate is not None else None,
        low=estimate.low if estimate is not None else None,
        high=estimate.high if estimate is not None else None,
        word=word,
        reason=reason if word is Comparison.CANNOT_TELL else None,
        baseline_bound=sides[0].bound,
        candidate_bound=sides[1].bound,
    )


def _compared_shares(
    baseline: Side, candidate: Side, shared: Sequence[Key], margin: float, metrics: Sequence[str]
) -> Iterator[ComparedFigure]:
    """The shares of the ladders of both sides, of the tests that they have."""
    kinds = {result.test: result.kind for trial in baseline.analysis.trials for result in trial.tests}
    tests = {test for _, test in shared}
    apart = baseline.only[0] if baseline.only is not None else None
    sides = baseline.ladders(), candidate.ladders()
    for one in compare_ladders(*sides, margin=margin, metrics=metrics, apart=apart):
        if one.test in tests:
            yield ComparedFigure(
                parameters=one.parameters,
                test=one.test,
                kind=kinds[one.test],
                metric=one.metric,
                unit="ratio",
                baseline=one.baseline,
                candidate=one.candidate,
                ratio=one.estimate.value if one.estimate is not None else None,
                low=one.estimate.low if one.estimate is not None else None,
                high=one.estimate.high if one.estimate is not None else None,
                word=one.word,
                reason=one.reason,
                baseline_bound=one.baseline_bound,
                candidate_bound=one.candidate_bound,
            )


@dataclass(frozen=True, slots=True)
class _Repeats:
    """One figure in the repeats of one side, by the repeat's number."""

    total: int
    """How many repeats there are, also those whose figure cannot be believed."""
    values: Mapping[int, float]
    """The figures that can be believed, exact ones and bounds."""
    bounds: Mapping[int, Bound]
    """The side on which the true figure lies, of those that are bounds."""
    open_factors: Mapping[int, float]
    """How many times its value each may be, where a search found it."""

    @property
    def bound(self) -> Bound | None:
        """The side on which the true mean lies; None if all figures are exact."""
        return joint_side(self.bounds.values())

    def only(self, numbers: Sequence[int]) -> _Repeats:
        """The same of some of the repeats, in this order."""
        bounds = {one: self.bounds[one] for one in numbers if one in self.bounds}
        return replace(self, values={one: self.values[one] for one in numbers}, bounds=bounds)


def _repeats(results: Sequence[TestResult], metric: str) -> _Repeats:
    """A figure in the repeats of one side."""
    found = ((result.repeat, result.metrics.get(metric)) for result in judged_together(results))
    valid = {repeat: one for repeat, one in found if one is not None and one.verdict is Verdict.VALID}
    known = {repeat: _or_its_bound(one) for repeat, one in valid.items() if (one.value, one.high) != (None, None)}
    return _Repeats(
        len(results),
        {repeat: one.value for repeat, one in known.items() if one.value is not None},
        {repeat: one.side for repeat, one in known.items() if one.side is not None},
        open_factors(results, metric),
    )


def _or_its_bound(metric: Metric) -> Metric:
    """The figure; of one that is unknown and has an upper end, as of a search in which no rate held, that end."""
    return metric if metric.value is not None else replace(metric, value=metric.high, bound=Bound.MOST)


def open_factors(results: Iterable[TestResult], metric: str) -> dict[int, float]:
    """How many times its value a rate of a search may be, by the repeat's number: a search leaves open what lies
    between the rate that holds and the one that does not. The other rates of its load go with the rate found. Empty for
    figures of another family, and of tests that did not search."""
    if family_of(metric) is not Family.RATE:
        return {}
    searched = metric if metric in SEARCHED else FOUND_PER_S
    found = {one.repeat: one.metrics[searched] for one in results if searched in one.metrics}
    return {
        repeat: math.inf if rate.high is None else rate.high / rate.value
        for repeat, rate in found.items()
        if rate.value
    }


def _common(baseline: _Repeats, candidate: _Repeats) -> tuple[_Repeats, _Repeats]:
    """Both sides, with the repeats that both have."""
    both = [number for number in baseline.values if number in candidate.values]
    return baseline.only(both), candidate.only(both)


def _ratio(
    baseline: _Repeats,
    candidate: _Repeats,
    paired: bool,
    confidence: float = CONFIDENCE,
    order: Order | None = None,
) -> tuple[Estimate | None, str]:
    """The ratio of the means with its interval, and why there is none."""
    sides = _common(baseline, candidate) if paired else (baseline, candidate)
    first, second = (one.values for one in sides)
    left_out = [one.total - len(one.values) for one in sides]
    doubts = (
        f"not valid: {counted(left_out[0], 'repeat')} of the baseline, {left_out[1]} compared with it; "
        if any(left_out)
        else ""
    )
    if not first or not second:
        return None, f"{doubts}no repeat is left that can be compared"
    if any(one.bound is not None for one in sides):
        # The true figures lie beyond their bounds, and how far is not known: the bounds' ratio says nothing of theirs.
        return None, f"{doubts}{_known_as_bounds(*sides)}"
    if not any((*first.values(), *second.values())):
        return _of_zeros(min(len(first), len(second)), doubts)
    if not any(first.values()):
        return None, f"{doubts}the baseline is 0: there is no ratio to it"
    estimate = ratio_of_means(list(first.values()), list(second.values()), paired=paired, confidence=confidence)
    if order is not None:
        before, after = ([side[number] for number in sorted(side)] for side in (first, second))
        estimate = with_slow_changes(estimate, before, after, order.load_change)
    estimate = widened(estimate, (first, second), [one.open_factors for one in sides])
    return estimate, f"{doubts}{estimate.reason or ''}".removesuffix("; ")


def _known_as_bounds(baseline: _Repeats, candidate: _Repeats) -> str:
    """Which sides are bounds: `only a bound is known of the baseline (at least): a bound has no ratio`."""
    named = {"the baseline": baseline.bound, "the other side": candidate.bound}
    bounds = " and of ".join(f"{name} ({bound.value})" for name, bound in named.items() if bound is not None)
    return f"only a bound is known of {bounds}: a bound has no ratio"


def widened(ratio: Estimate, sides: Sequence[Mapping[int, float]], factors: Sequence[Mapping[int, float]]) -> Estimate:
    """The ratio of two sides' figures with an interval that also has what their searches left open, by the
    `open_factors` of both."""
    if ratio.low is None or ratio.high is None:
        return ratio
    baseline, candidate = (
        sum(value * of_side.get(number, 1.0) for number, value in values.items()) / sum(values.values())
        for values, of_side in zip(sides, factors, strict=True)
    )
    if math.isinf(max(baseline, candidate)):
        return replace(ratio, low=None, high=None, reason="a search did not bound its rate from above")
    return replace(ratio, low=ratio.low / baseline, high=ratio.high * candidate)


def _of_zeros(repeats: int, doubts: str) -> tuple[Estimate, str]:
    """The ratio of two counts that are 0 in every repeat: they are the same, as any other figure that never differs."""
    if repeats < LEAST_REPEATS:
        reason = too_few(repeats)
        return Estimate(1.0, None, None, repeats, reason), doubts + reason
    return Estimate(1.0, 1.0, 1.0, repeats), doubts.removesuffix("; ")


_HARDWARE = {"cpu_model": "CPU model", "cpus": "number of CPUs", "architecture": "architecture"}
_SOFTWARE = {
    "kernel": "kernel",
    "distribution": "distribution",
    "agent_version": "agent",
    "build_profile": "agent's build profile",
    "tcp_congestion": "TCP",
}


def _differences(baseline: Side, candidate: Side, shared: Sequence[Key]) -> Iterator[Difference]:
    """Hardware, software, what the plans ask for, and the parameters of the tests that both sides have."""
    for names, blocking in ((_HARDWARE, True), (_SOFTWARE, False)):
        for name, words in names.items():
            first, second = (_facts(side.analysis, name) for side in (baseline, candidate))
            if first != second and first and second:
                yield Difference(words, ", ".join(first), ", ".join(second), blocking)
    if baseline.analysis.version != candidate.analysis.version:
        yield Difference("Leadline", baseline.analysis.version, candidate.analysis.version, blocking=False)
    first_rules, second_rules = ("off" if is_judged_without(side.analysis) else "on" for side in (baseline, candidate))
    if "off" in (first_rules, second_rules):
        what = "rules about the machine (LEADLINE_MACHINE_RULES)"
        yield Difference(what, first_rules, second_rules, blocking=False)
    yield from dict.fromkeys(_plan_differences(baseline, candidate, shared))
    loads = [_loads(side) for side in (baseline, candidate)]
    for key in shared:
        facts = [dict(flat(load.get(key, {}))) for load in loads]
        yield from _unlike(facts, f"{_named(key)}: ", blocking=True)


def _plan_differences(baseline: Side, candidate: Side, shared: Sequence[Key]) -> Iterator[Difference]:
    """What surrounds the system under test makes another plan; the system itself is what is compared."""
    of_cases = [_cases(side) for side in (baseline, candidate)]
    for key in shared:
        cases = [found.get(key, {}) for found in of_cases]
        if all(cases):
            yield from _unlike([dict(environment_facts(case)) for case in cases], "", blocking=True)
            yield from _unlike([dict(system_facts(case)) for case in cases], "", blocking=False)


def _unlike(facts: Sequence[Mapping[str, str]], prefix: str, *, blocking: bool) -> Iterator[Difference]:
    """Each fact in which two sides differ."""
    first, second = facts
    for name in sorted(first.keys() | second.keys()):
        if first.get(name) != second.get(name):
            yield Difference(f"{prefix}{name}", first.get(name, "none"), second.get(name, "none"), blocking)


def _cases(side: Side) -> dict[Key, Mapping[str, Any]]:
    """The case of each test, as the manifest has it."""
    results = (result for trial in side.analysis.trials for result in trial.tests)
    return {side.key(result): side.cases.get(result.case, {}) for result in results}


def _loads(side: Side) -> dict[Key, Mapping[str, Any]]:
    """The parameters of each test."""
    results = (result for trial in side.analysis.trials for result in trial.tests)
    return {side.key(result): side.tests.get((result.case, result.test), {}) for result in results}


def _facts(analysis: RunAnalysis, name: str) -> list[str]:
    """What a run's machines say of one fact; each value once."""
    return sorted({str(facts[name]) for facts in analysis.hosts.values() if facts.get(name) is not None})


def _named(key: Key) -> str:
    parameters = " ".join(f"{name}={value}" for name, value in key[0])
    return f"{key[1]} ({parameters})" if parameters else key[1]
