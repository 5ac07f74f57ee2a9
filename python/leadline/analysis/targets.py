"""Judges a plan's targets: met, missed, or undecided if the result allows neither.

A result that is not valid decides a target only if its bound is certain. A generator or receiver at its limit makes a
rate a lower bound: above a `>` target it is certainly met, above a `<` target certainly missed; otherwise the target
is undecided. The same holds for a figure that is itself a lower bound because operations were outstanding at the end
(`Metric.censored`). A figure without samples decides nothing, so its target is not met; nor is that of a mean over
repeats of which one has no sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from leadline.analysis.model import Metric, Summary, TargetResult, TestResult, Validity, Verdict
from leadline.plan.source import Mark, Node
from leadline.plan.targets import Target, has_metric, read_target

MET, MISSED, UNDECIDED = "met", "missed", "undecided"

_BOUNDED = frozenset({Verdict.GENERATOR_LIMITED, Verdict.RECEIVER_LIMITED})
# Counts are of the whole test.
_GROWING_UNITS = frozenset({"count", "bytes"})
_RATES = ("_bps", "_per_s")
_WORST_FIRST = (MISSED, UNDECIDED, MET)


def parse_targets(texts: Iterable[str], kinds: Mapping[str, str], option: str = "--target") -> list[Target]:
    """Parse `[TEST.]METRIC < VALUE` for tests of these kinds, by name; raises `PlanError`, which names the option."""
    return [read_target(Node(text, Mark(f"{option} {text!r}", None)), kinds) for text in texts]


def judge_summaries(targets: Iterable[Target], summaries: Sequence[Summary]) -> tuple[TargetResult, ...]:
    """Each target for each case. A target without a test applies to every test that has the metric: the worst result
    counts."""
    cases = dict.fromkeys(summary.case for summary in summaries)
    return tuple(
        judge(target, case, [summary for summary in summaries if summary.case == case])
        for target in targets
        for case in cases
    )


def judge(target: Target, case: str, results: Iterable[Summary | TestResult]) -> TargetResult:
    """One target over the results of one case, or over a single measurement."""
    outcomes = [
        _judge_one(target, case, result.metrics.get(target.metric), result.validity, _gap(target, result))
        for result in results
        if (result.test == target.test if target.test else has_metric(result.kind, target.metric))
    ]
    if not outcomes:
        return TargetResult(target.text, case, UNDECIDED, None, "no test has this figure")
    return min(outcomes, key=lambda outcome: _WORST_FIRST.index(outcome.outcome))


def missed_so_far(
    target: Target, test: str, metrics: Mapping[str, Metric], generator_limited: bool, steady: bool = True
) -> TargetResult | None:
    """The target as missed by a running test's current figures; None if they meet it or it is still open.

    A figure that only grows (a count, a maximum) or only shrinks (a minimum) can miss a bound before the end. A
    generator at its limit gives lower bounds of rates, as at the end. If the load changes its speed by plan (not
    `steady`), the mean rate is unknown before the end.
    """
    metric = metrics.get(target.metric)
    value = metric.value if metric is not None else None
    if metric is None or value is None or target.test not in (None, test) or target.met_by(value):
        return None
    is_open = metric.censored and not _certain_of_bound(target, value)
    if is_open or (not steady and target.metric.endswith(_RATES)):
        return None
    grows, shrinks = (
        metric.unit in _GROWING_UNITS or target.metric.endswith("_max_us"),
        target.metric.endswith("_min_us"),
    )
    if (target.op in (">", ">=") and grows) or (target.op in ("<", "<=") and shrinks):
        return None
    if target.op == "==" and ((grows and value < target.value) or (shrinks and value > target.value)):
        return None
    if generator_limited and not _certain_from_below(target, meets=False):
        return None
    words = _compared(value, target, meets=False)
    return TargetResult(target.text, "c01", MISSED, value, words)


def _compared(value: float, target: Target, meets: bool) -> str:
    return f"{_figure(value)} {'' if meets else 'is not '}{target.op} {_figure(target.value)}"


def _figure(value: float) -> str:
    """Six digits, without an exponent for large numbers."""
    text = f"{value:.6g}"
    return f"{value:.0f}" if "e+" in text else text


def _gap(target: Target, result: Summary | TestResult) -> int:
    return result.gaps.get(target.metric, 0) if isinstance(result, Summary) else 0


def _judge_one(target: Target, case: str, metric: Metric | None, validity: Validity, gap: int) -> TargetResult:
    value = metric.value if metric is not None else None
    if value is None:
        return TargetResult(target.text, case, UNDECIDED, None, "the figure is unknown")
    if gap:
        return TargetResult(target.text, case, UNDECIDED, value, f"the figure is unknown in {gap} of the repeats")
    if metric is not None and metric.censored and not _certain_of_bound(target, value):
        return TargetResult(target.text, case, UNDECIDED, value, f"known only to be at least {_figure(value)}")
    meets = target.met_by(value)
    outcome = MET if meets else MISSED
    least = "at least " if metric is not None and metric.censored else ""
    words = least + _compared(value, target, meets)
    if validity.verdict is Verdict.VALID:
        return TargetResult(target.text, case, outcome, value, words)
    if validity.verdict in _BOUNDED and _certain_from_below(target, meets):
        return TargetResult(target.text, case, outcome, value, f"at least {words.removeprefix(least)}")
    return TargetResult(target.text, case, UNDECIDED, value, f"the result is {validity.verdict.value}")


def _certain_of_bound(target: Target, bound: float) -> bool:
    """Whether a figure of at least `bound` is certainly on one side of the target."""
    if target.op in (">", ">="):
        return target.met_by(bound)
    return not target.met_by(bound) and (target.op != "==" or bound > target.value)


def _certain_from_below(target: Target, meets: bool) -> bool:
    """Whether a rate that could only be higher stays on its side of the target."""
    if not target.metric.endswith(_RATES):
        return False
    return meets if target.op in (">", ">=") else not meets and target.op in ("<", "<=")
