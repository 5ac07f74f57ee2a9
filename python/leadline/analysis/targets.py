"""Judges a plan's targets: met, missed, or undecided where the result does not allow either.

A result that is not valid decides a target only where its bound is certain. A generator or receiver at its limit bounds
what was measured from below: a rate that is above a `>` target already is met for sure, one that is above a `<` target
is missed for sure; everything else stays open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from leadline.analysis.model import Metric, Summary, TargetResult, TestResult, Validity, Verdict
from leadline.plan.source import Mark, Node
from leadline.plan.targets import METRICS, Target, read_target

MET, MISSED, UNDECIDED = "met", "missed", "undecided"

_BOUNDED = frozenset({Verdict.GENERATOR_LIMITED, Verdict.RECEIVER_LIMITED})
_WORST_FIRST = (MISSED, UNDECIDED, MET)


def parse_targets(texts: Iterable[str], kinds: Mapping[str, str]) -> list[Target]:
    """Reads `[TEST.]METRIC < VALUE` for tests of these kinds, by name; raises `PlanError`."""
    return [read_target(Node(text, Mark("target", None)), kinds) for text in texts]


def judge_summaries(targets: Iterable[Target], summaries: Sequence[Summary]) -> tuple[TargetResult, ...]:
    """Each target for each case. One that names no test holds for every test that has the metric: the worst counts."""
    cases = dict.fromkeys(summary.case for summary in summaries)
    return tuple(
        judge(target, case, [summary for summary in summaries if summary.case == case])
        for target in targets
        for case in cases
    )


def judge(target: Target, case: str, results: Iterable[Summary | TestResult]) -> TargetResult:
    """One target over the results of one case, or over a single measurement."""
    outcomes = [
        _judge_one(target, case, result.metrics.get(target.metric), result.validity)
        for result in results
        if (result.test == target.test if target.test else target.metric in METRICS.get(result.kind, ()))
    ]
    if not outcomes:
        return TargetResult(target.text, case, UNDECIDED, None, "no test has this figure")
    return min(outcomes, key=lambda outcome: _WORST_FIRST.index(outcome.outcome))


def _judge_one(target: Target, case: str, metric: Metric | None, validity: Validity) -> TargetResult:
    value = metric.value if metric is not None else None
    if value is None:
        return TargetResult(target.text, case, UNDECIDED, None, "the figure is not known")
    meets = target.met_by(value)
    outcome = MET if meets else MISSED
    words = f"{value:.6g} is {'' if meets else 'not '}{target.op} {target.value:.6g}"
    if validity.verdict is Verdict.VALID:
        return TargetResult(target.text, case, outcome, value, words)
    if validity.verdict in _BOUNDED and _certain_from_below(target, meets):
        return TargetResult(target.text, case, outcome, value, f"at least {words}")
    return TargetResult(target.text, case, UNDECIDED, value, f"the result is {validity.verdict.value}")


def _certain_from_below(target: Target, meets: bool) -> bool:
    """Whether a rate that could only be higher keeps its side of the target."""
    if not target.metric.endswith(("_bps", "_per_s")):
        return False
    return meets if target.op in (">", ">=") else not meets and target.op in ("<", "<=")
