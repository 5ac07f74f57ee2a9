"""Judges a plan's targets: met, missed, or undecided if the result allows neither.

The 95 % interval of a figure decides: a target is met or missed where all of it lies on one side. A figure without
one decides nothing, unless it is an exact count. A figure that is not valid decides only where its bound is certain
(`Metric.bound`): a generator at its limit bounds a rate from below, so one whose interval is above a `>` target is met
for sure, one that is above a `<` target is missed for sure; everything else stays open. So it is with a figure that is
a lower bound itself, as operations were outstanding at the end (`Metric.censored`). A figure without a sample decides
nothing, so its target is not met; nor is that of a mean over repeats of which one has no sample. The rate of a search
in which none held is at most the lowest one tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from leadline.analysis import stability
from leadline.analysis.model import Bound, Metric, Summary, TargetResult, TestResult, Verdict
from leadline.analysis.scope import PERCENTILE_UNCERTAIN
from leadline.analysis.searches import SEARCHED
from leadline.plan.gateway_metrics import CPU, GATEWAYS, metric_of, of_gateway, split_name
from leadline.plan.source import Mark, Node
from leadline.plan.targets import Target, has_metric, read_target
from leadline.statistics import Decision, decide
from leadline.statistics.decision import Operator

MET, MISSED, UNDECIDED = "met", "missed", "undecided"

# What leaves a wide interval, which decides.
_IMPRECISE = frozenset(
    {
        stability.REPEATS_DISAGREE,
        stability.TOO_FEW_REPEATS,
        stability.INTERVALS_DISAGREE,
        stability.PRECISION_UNKNOWN,
        PERCENTILE_UNCERTAIN,
    }
)
# Counts are of the whole test.
_GROWING_UNITS = frozenset({"count", "bytes"})
_RATES = ("_bps", "_per_s")
_SHARE = "ratio"
_EXTREMES = ("_min_us", "_max_us", "_min_ms", "_max_ms")
_SHARES_OF_FLEETS = frozenset({"failed_ratio", "unconfigured_ratio"})
_WORST_FIRST = (MISSED, UNDECIDED, MET)


def parse_targets(texts: Iterable[str], kinds: Mapping[str, str], option: str = "--target") -> list[Target]:
    """Parse `[TEST.]METRIC < VALUE` for tests of these kinds, by name; raises `PlanError`, which names the option."""
    return [read_target(Node(text, Mark(f"{option} {text!r}", None)), kinds) for text in texts]


def judge_summaries(targets: Iterable[Target], summaries: Sequence[Summary]) -> tuple[TargetResult, ...]:
    """Each target for each case. A target without a test applies to every test that has the metric: the worst result
    counts. One on a gateway applies to the cases that have it, where there is such a case."""
    cases: dict[str, list[Summary]] = {}
    for summary in summaries:
        cases.setdefault(summary.case, []).append(summary)
    return tuple(
        judge(target, case, of_case)
        for target in targets
        for applies in [{case for case, of_case in cases.items() if _other_gateways(target, of_case) is None}]
        for case, of_case in cases.items()
        if case in applies or not applies
    )


def judge(target: Target, case: str, results: Iterable[Summary | TestResult]) -> TargetResult:
    """One target over the results of one case, or over a single measurement."""
    results = tuple(results)
    elsewhere = _other_gateways(target, results)
    if elsewhere is not None:
        return TargetResult(target.text, case, UNDECIDED, None, elsewhere)
    outcomes = [
        _judge_one(target, case, result.metrics.get(target.metric), _gap(target, result))
        for result in results
        if (result.test == target.test if target.test else has_metric(result.kind, target.metric))
    ]
    if not outcomes:
        return TargetResult(target.text, case, UNDECIDED, None, "no test has this figure")
    return min(outcomes, key=lambda outcome: _WORST_FIRST.index(outcome.outcome))


def settles(targets: Iterable[Target], test: str, metric: str, low: float | None, high: float | None) -> bool:
    """Whether each of the targets on a figure of a test, one or more, is decided by an interval."""
    of_figure = [one for one in targets if one.metric == metric and one.test in (None, test)]
    return bool(of_figure) and all(_is_certain(one, low, high) for one in of_figure)


def missed_so_far(
    target: Target, test: str, metrics: Mapping[str, Metric], generator_limited: bool, steady: bool = True
) -> TargetResult | None:
    """The target as missed by a running test's current figures; None if they meet it or it is still open.

    The end of the interval that is nearer to the target decides; the value does where the interval has no such end.
    A figure that only grows (a count, a maximum) or only shrinks (a minimum) can miss a bound before the end. A
    generator at its limit gives lower bounds of rates, as at the end. If the load changes its speed by plan (not
    `steady`), the mean rate is unknown before the end.
    """
    metric = metrics.get(target.metric)
    value = metric.value if metric is not None else None
    if metric is None or value is None or target.test not in (None, test) or target.met_by(value):
        return None
    nearest = {"<": metric.low, "<=": metric.low, ">": metric.high, ">=": metric.high}.get(target.op)
    is_open = metric.censored and not _is_certain(target, value, None)
    if is_open or (nearest is not None and target.met_by(nearest)) or (not steady and target.figure.endswith(_RATES)):
        return None
    grows, shrinks = (
        metric.unit in _GROWING_UNITS or target.figure.endswith("_max_us"),
        target.figure.endswith("_min_us"),
    )
    if (target.op in (">", ">=") and grows) or (target.op in ("<", "<=") and shrinks):
        return None
    if target.op == "==" and ((grows and value < target.value) or (shrinks and value > target.value)):
        return None
    if generator_limited and not _certain_from_below(target, meets=False):
        return None
    words = _compared(value, target, metric.unit, meets=False)
    return TargetResult(target.text, "c01", MISSED, value, words)


def _other_gateways(target: Target, results: Sequence[Summary | TestResult]) -> str | None:
    """What to say of a target on a gateway that a case does not have, although it has another one; None if it may."""
    if not of_gateway(target.metric):
        return None
    known = [host for host in GATEWAYS if any(metric_of(host, CPU) in result.metrics for result in results)]
    asked, figure = split_name(target.metric)
    if not known or asked in known:
        return None
    better = " or ".join(metric_of(host, figure) for host in sorted(known))
    return f"this case has no gateway called '{asked}'; its own is {better}"


def _compared(value: float, target: Target, unit: str, meets: bool) -> str:
    return f"{_figure(value, unit)} {'' if meets else 'is not '}{target.op} {_figure(target.value, unit)}"


def _figure(value: float, unit: str) -> str:
    """Six digits in the metric's own unit, a share in percent, bits per second with a decimal prefix; without an
    exponent for large numbers."""
    if unit in _BIT_RATES:
        step, prefix = next((one for one in _PREFIXES if abs(value) >= one[0]), (1.0, ""))
        return f"{value / step:.6g} {prefix}bit/s"
    factor, written = _SHOWN.get(unit, (1.0, unit))
    text = f"{factor * value:.6g}"
    text = f"{factor * value:.0f}" if "e+" in text else text
    return f"{text} {written}".rstrip()


_SHOWN = {"us": (1.0, "µs"), "1/s": (1.0, "/s"), "bytes": (1.0, "B"), "percent": (1.0, "%"), "ratio": (100.0, "%")}
_SHOWN |= dict.fromkeys(("count", "1"), (1.0, ""))
"""How messages write the units of metrics: a factor, and the unit."""


_BIT_RATES = frozenset({"bit/s", "bps"})
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def _gap(target: Target, result: Summary | TestResult) -> int:
    """The number of repeats whose figure is unknown; 0 for a rate that searches found: its interval holds for all."""
    if isinstance(result, TestResult) or target.metric in SEARCHED:
        return 0
    return result.gaps.get(target.metric, 0)


def _judge_one(target: Target, case: str, metric: Metric | None, gap: int) -> TargetResult:
    value = metric.value if metric is not None else None
    if metric is not None and value is None and metric.high is not None and metric.verdict is Verdict.VALID:
        # No rate of a search held: the figure is below the lowest one.
        is_certain = _is_certain(target, None, metric.high)
        outcome, reason = _beyond(target, metric.unit, "at most", metric.high, is_certain)
    elif metric is None or value is None:
        outcome, reason = UNDECIDED, "the figure is unknown"
    elif gap:
        outcome, reason = UNDECIDED, f"the figure is unknown in {gap} of the repeats"
    else:
        outcome, reason = _decided(target, metric, value)
    return TargetResult(target.text, case, outcome, value, reason)


def _decided(target: Target, metric: Metric, value: float) -> tuple[str, str]:
    """The outcome and why, of a figure that is known."""
    low, high = (value, value) if _is_exact(target, metric) else (metric.low, metric.high)
    if metric.is_least:
        low = value if low is None and metric.censored else low
        is_certain = low is not None and _is_certain(target, low, None)
        return _beyond(target, metric.unit, "at least", value if low is None else low, is_certain)
    if metric.bound is Bound.MOST:
        is_certain = high is not None and _is_certain(target, None, high)
        return _beyond(target, metric.unit, "at most", value if high is None else high, is_certain)
    if _IMPRECISE.issuperset(metric.reasons) and (low is not None or high is not None or not metric.reasons):
        return _by_interval(target, metric, value, low, high)
    return UNDECIDED, f"the figure is {metric.verdict.value} ({', '.join(metric.reasons)})"


def _beyond(target: Target, unit: str, words: str, end: float, is_certain: bool) -> tuple[str, str]:
    """The outcome of a figure of which one end alone is known."""
    if not is_certain:
        return UNDECIDED, f"known only to be {words} {_figure(end, unit)}"
    outcome = MET if target.met_by(end) else MISSED
    return outcome, f"{words} {_compared(end, target, unit, outcome == MET)}"


def _by_interval(
    target: Target, metric: Metric, value: float, low: float | None, high: float | None
) -> tuple[str, str]:
    """What the whole 95 % interval says: a side that is not bounded may be as far away as it likes."""
    outcome = MET if target.met_by(value) else MISSED
    words = _compared(value, target, metric.unit, outcome == MET)
    if _is_certain(target, low, high):
        return outcome, words
    if low is None and high is None:
        return UNDECIDED, f"{words}, but it has no interval: {metric.unbounded or 'its precision is not known'}"
    least, most = (None if bound is None else _figure(bound, metric.unit) for bound in (low, high))
    wide = f"{least} to {most}" if least and most else f"({least} or more)" if least else f"({most} or less)"
    return UNDECIDED, f"{words}, but the 95 % interval {wide} leaves it open"


def _is_exact(target: Target, metric: Metric) -> bool:
    """Whether the value alone decides: what one test counted, the extremes of all its values, and shares of a fleet
    whose clients all tried. An equation is one with the count itself."""
    if metric.low is not None or metric.high is not None:
        is_all_or_none = metric.value == metric.low == 0 or metric.value == metric.high == 1
        return target.op == "==" and metric.unit == _SHARE and is_all_or_none
    if of_gateway(target.metric):
        return False
    return (
        metric.unit in _GROWING_UNITS
        or target.figure.endswith(_EXTREMES)
        or target.figure in _SHARES_OF_FLEETS
        or (target.op == "==" and metric.unit == _SHARE)
    )


def _is_certain(target: Target, low: float | None, high: float | None) -> bool:
    """Whether a figure that lies between these bounds is certainly on one side of the target."""
    # The plan's pattern for targets lets no other operator through.
    return decide(cast(Operator, target.op), target.value, low, high) is not Decision.UNDECIDED


def _certain_from_below(target: Target, meets: bool) -> bool:
    """Whether a rate that could only be higher stays on its side of the target."""
    if not target.figure.endswith(_RATES):
        return False
    return meets if target.op in (">", ">=") else not meets and target.op in ("<", "<=")
