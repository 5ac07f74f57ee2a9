"""Summarises a case's repeats: means with 95 % intervals, and a verdict on whether the repeats agree.

The interval is Student's t over the repeats' values (n - 1 degrees of freedom), and that of a rate no narrower than the
parts of its repeats allow. Repeats are interleaved with the other cases, so they are as independent as one machine
allows. A percentile is that of the merged histograms of all repeats, never a mean of percentiles; half of its interval
is that of the repeats' own percentiles. A single repeat has the intervals of its test, which do not contain what
differs from one start to the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

from leadline.analysis import machine_rules, rate_parts, repeat_causes, rough_figures, stability
from leadline.analysis.metrics import Histograms, of_all_repeats, percentile_named
from leadline.analysis.model import Bound, Limit, Metric, Reason, Summary, TestResult, Validity, Verdict
from leadline.analysis.outages import outage_in
from leadline.analysis.scope import PERCENTILE_UNCERTAIN, Family, Judged, family_of
from leadline.analysis.searches import SEARCHED
from leadline.analysis.targets import settles
from leadline.analysis.validity import ENDS_FULL, worst
from leadline.plan.tags import split_figure
from leadline.plan.targets import Target
from leadline.quantities import counted
from leadline.registry import KINDS
from leadline.statistics import mean_of_repeats, share_of_total, total_of_none
from leadline.statistics.estimate import CONFIDENCE

WITHIN_TEST = "interval-within-test"
SHARE = "ratio"
_LIMITED = frozenset({Verdict.GENERATOR_LIMITED, Verdict.RECEIVER_LIMITED})
_NO_SHARES = ("buffer_delay_", "transfer_time_", "line_use_")
"""How the names of ratios that may be above 1 begin."""
_INCREASES = ("increase_", "latency_increase_")
_OF_PARTS = frozenset({PERCENTILE_UNCERTAIN, stability.INTERVALS_DISAGREE, stability.PRECISION_UNKNOWN})
"""Doubts about how well a test knows a figure from its own parts."""
LEAST_REPEATS = 2
"""Number of completed repeats that is enough for a figure if other repeats failed."""


class PrimaryKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def primary(self) -> str:
        """The test's leading figure, by which repeats are compared."""

    @property
    def decisive(self) -> tuple[str, ...]:
        """The figures, beside the primary one, whose verdicts determine the verdict of a test."""


def summarise(
    results: Sequence[TestResult],
    *,
    planned: int,
    limit: float,
    case: str,
    test: str,
    kind: str,
    parameters: Mapping[str, Any],
    named: Collection[str] = (),
    targets: Sequence[Target] = (),
    confidence: float = CONFIDENCE,
    histograms: Mapping[tuple[str, int, str], Histograms] = MappingProxyType({}),
) -> Summary:
    """One test of one case over its repeats. Repeats that failed or were interrupted are counted, but not averaged;
    nor are disturbed ones, where two others are left, and incomplete ones, if they are the fewer.
    Only if none completed, an interrupted one is shown.

    `planned` is how many trials of the case began; `limit` is the plan's `limits.stability.spread`, which holds for the
    primary figure and those that targets have `named`, unless their interval decides the `targets` on them.
    `histograms` are those of each repeat, by case, repeat and test.
    """
    done = [result for result in results if result.status == "done"]
    began = max(planned, len(results))
    failed = began - len(done)
    # If no repeat completed, the figures of an interrupted one are shown as incomplete.
    done = done or [result for result in results if result.status == "interrupted" and result.window is not None][:1]
    done, left_out = comparable(done)
    noted: tuple[Reason, ...] = ()
    if len(done) > LEAST_REPEATS:
        noted = _of_few_repeats(done)
        answered = _answered_by_repeats(done)
        done = [_judged_by_repeats(result, answered) for result in done]
    names = dict.fromkeys(name for result in done for name in result.metrics)
    metrics = {name: mean_with_interval([result.metrics.get(name) for result in done], confidence) for name in names}
    metrics |= _no_narrower_than_parts(metrics, done, confidence)
    known = [histograms.get((result.case, result.repeat, result.test)) for result in done]
    metrics |= _merged_percentiles(metrics, [one for one in known if one is not None], len(done))
    metrics |= {
        name: _between(metrics[name], [result.metrics[name] for result in done if name in result.metrics])
        for name in SEARCHED & names.keys()
    }
    metrics = {name: _possible(name, mean) for name, mean in metrics.items()}
    measured: PrimaryKind = KINDS.find(kind)
    settled = {
        name
        for name in named
        if name != measured.primary and name in metrics
        if settles(targets, test, name, metrics[name].low, metrics[name].high)
    }
    judged = _judged(metrics, done, limit, measured, [name for name in named if name not in settled])
    judged = _with_rough_figures(judged, measured, limit)
    if failed:
        judged = _without_some(judged, failed, began, done)
    if len(done) == 1 and any(metric.low is not None for metric in metrics.values()):
        text = "one repeat: its intervals are those of the test, and do not contain what differs between starts"
        judged = _with_note(judged, Reason(WITHIN_TEST, text))
    for note in (*reversed(noted), *left_out):
        judged = _with_note(judged, note)
    unknown = {name: sum(result.value(name) is None for result in done) for name in names}
    return Summary(
        case=case,
        test=test,
        kind=kind,
        parameters=dict(parameters),
        repeats=len(done),
        failed=failed,
        metrics=judged.metrics,
        validity=judged.validity,
        limit=_limit_of_most(done),
        gaps={name: number for name, number in unknown.items() if 0 < number < len(done)},
    )


def comparable(done: list[TestResult]) -> tuple[list[TestResult], list[Reason]]:
    """The repeats whose figures are of the same load on quiet machines, and a note on those that are left out.

    Disturbed ones say nothing of the system. Incomplete ones had another load than the others; if they are half of the
    repeats, though, the others are the exception, and all are kept.
    """
    notes, planned = list[Reason](), len(done)
    whole = [result for result in done if outage_in(result.validity.reasons) is None]
    if LEAST_REPEATS <= len(whole) < planned:
        why = next(reason.text for result in done if (reason := outage_in(result.validity.reasons)) is not None)
        notes.append(
            Reason(
                "repeats-with-outage", f"{planned - len(whole)} of {planned} repeats had an outage: left out ({why})"
            )
        )
        done = whole
    undisturbed = [result for result in done if result.validity.verdict is not Verdict.DISTURBED]
    if LEAST_REPEATS <= len(undisturbed) < planned:
        text = f"{planned - len(undisturbed)} of {planned} repeats were disturbed: left out"
        notes.append(Reason("repeats-disturbed", text))
        done = undisturbed
    complete = [result for result in done if result.validity.verdict is not Verdict.INCOMPLETE]
    some = len(done) - len(complete)
    if some and len(complete) >= LEAST_REPEATS and 2 * some < len(done):
        first = next(result for result in done if result.validity.verdict is Verdict.INCOMPLETE)
        why = next((f" ({reason.text})" for reason in first.validity.reasons), "")
        notes.append(Reason("repeats-incomplete", f"{some} of {planned} repeats were incomplete: left out{why}"))
        done = complete
    return done, notes


def _of_few_repeats(done: Sequence[TestResult]) -> tuple[Reason, ...]:
    """Notes on limits of the sender or the receiver that fewer than half of the repeats had."""
    if not _limited_in_few(done):
        return ()
    limited = [[reason for reason in one.validity.reasons if reason.verdict in _LIMITED] for one in done]
    return tuple(replace(reason, verdict=None, metrics=()) for reason in _merged(limited))


def _limited_in_few(done: Sequence[TestResult]) -> bool:
    return 0 < 2 * sum(any(reason.verdict in _LIMITED for reason in one.validity.reasons) for one in done) < len(done)


def judged_together(results: Sequence[TestResult]) -> list[TestResult]:
    """The repeats of a test without the doubts about single ones that the interval over them answers: to leave out
    the uneven ones would choose among them."""
    undisturbed = [result for result in results if result.validity.verdict is not Verdict.DISTURBED]
    if len(undisturbed) <= LEAST_REPEATS:
        return list(results)
    answered = _answered_by_repeats(undisturbed)
    return [_judged_by_repeats(result, answered) for result in results]


def joint_side(sides: Iterable[Bound | None]) -> Bound | None:
    """The side on which a figure lies that is made of several with these sides; None if all of them are exact."""
    found = {side for side in sides if side is not None}
    if not found:
        return None
    return next(iter(found)) if len(found) == 1 else Bound.NONE


def mean_with_interval(metrics: Iterable[Metric | None], confidence: float = CONFIDENCE) -> Metric:
    """Mean and t-interval of the known values; a single one keeps its own. It has every reason against each."""
    known = [metric for metric in metrics if metric is not None]
    unit = known[0].unit if known else ""
    values = [metric.value for metric in known if metric.value is not None]
    if not values:
        reasons = (metric.unknown for metric in known if metric.unknown is not None)
        return _with_reasons(Metric(None, unit, unknown=next(reasons, None)), known)
    mean = mean_of_repeats(values, confidence)
    if len(known) == 1:
        has_interval = known[0].low is not None or known[0].high is not None
        return known[0] if has_interval else replace(known[0], unbounded=known[0].unbounded or mean.reason)
    if any(metric.censored for metric in known):
        # A mean with a lower bound in it is a lower bound; the spread of the repeats is then unknown.
        least = Metric(mean.value, unit, censored=True, unbounded="some repeats are lower bounds")
        return _with_reasons(least, known)
    bounded = Metric(mean.value, unit, mean.low, mean.high, unbounded=mean.reason)
    return _with_reasons(_of_all_operations(bounded, known, confidence), known)


def _possible(name: str, mean: Metric) -> Metric:
    """The figure with the part of its interval that it can have: nothing but an increase is below 0, no share above
    1."""
    low, high = mean.low, mean.high
    if low is not None and not split_figure(name)[0].startswith(_INCREASES):
        low = max(0.0, low)
    if high is not None and mean.unit == SHARE and not name.startswith(_NO_SHARES):
        high = max(min(1.0, high), mean.value or 0.0)
    return replace(mean, low=low, high=high)


def _of_all_operations(mean: Metric, repeats: Sequence[Metric], confidence: float) -> Metric:
    """The mean with the interval of all repeats' operations together, where it is the share of none of them, or of
    all: repeats that are all alike have a t-interval without width, which says nothing of what is rare."""
    if mean.unit != SHARE or mean.value not in (0, 1):
        return mean
    beyond = [one.high if mean.value == 0 else one.low and 1 - one.low for one in repeats]
    totals = [total_of_none(one) for one in beyond if one is not None and 0 < one < 1]
    if not totals:
        return mean
    together = share_of_total(mean.value * sum(totals), sum(totals), confidence)
    return replace(mean, low=together.low, high=together.high)


def _no_narrower_than_parts(
    means: Mapping[str, Metric], done: Sequence[TestResult], confidence: float
) -> dict[str, Metric]:
    """The rates whose interval over the repeats would be narrower than the parts of all repeats allow."""
    found = dict[str, Metric]()
    for name in sorted({name for result in done for name in result.rate_parts} & means.keys()):
        if len(done) >= LEAST_REPEATS and means[name].low is not None:
            mean = rate_parts.mean_of_results(done, name, confidence)
            found[name] = means[name] if mean is None else replace(means[name], low=mean.low, high=mean.high)
    return found


def _merged_percentiles(
    means: Mapping[str, Metric], histograms: Sequence[Histograms], repeats: int
) -> dict[str, Metric]:
    """The percentiles of all repeats' values together, with the interval of the repeats' own around them."""
    if repeats < LEAST_REPEATS or len(histograms) < repeats:
        return {}
    merged, found = of_all_repeats(histograms), dict[str, Metric]()
    for name, mean in means.items():
        whole = percentile_named(name, merged)
        if whole is None or whole.value is None or mean.value is None:
            continue
        bounded = replace(mean, value=whole.value, censored=whole.censored, low=None, high=None)
        bounded = replace(bounded, bound=_side(mean.bound, bounded))
        if not whole.censored and mean.low is not None and mean.high is not None:
            half = (mean.high - mean.low) / 2
            bounded = replace(bounded, low=max(0.0, whole.value - half), high=whole.value + half)
        found[name] = bounded
    return found


def _answered_by_repeats(done: Sequence[TestResult]) -> frozenset[str]:
    """Doubts about single repeats that the interval over the repeats answers: how far parts of a test differ is in how
    far repeats do. A rate that moves to another level in half of them or more has no one mean. A sender or a receiver
    that was the limit in fewer than half of them was so by chance: to leave those repeats out would choose among them,
    and what they are lower by is in how far repeats differ."""
    moved = sum(any(one.code == stability.CHANGE_POINT for one in result.validity.reasons) for result in done)
    answered = _OF_PARTS | ({stability.CHANGE_POINT} if 2 * moved < len(done) else frozenset())
    if not _limited_in_few(done):
        return answered
    return answered | {one.code for each in done for one in each.validity.reasons if one.verdict in _LIMITED}


def _judged_by_repeats(result: TestResult, answered: frozenset[str]) -> TestResult:
    """A repeat without the doubts that are `answered` by the interval over the repeats."""
    reasons = tuple(reason for reason in result.validity.reasons if reason.code not in answered)
    if len(reasons) == len(result.validity.reasons):
        return result
    kind: PrimaryKind = KINDS.find(result.kind)
    metrics = {name: _without_doubts(metric, answered) for name, metric in result.metrics.items()}
    of_figures = [metrics[name].verdict for name in (kind.primary, *kind.decisive) if name in metrics]
    # A reason that names no figure concerns the whole test. A search's is of the rate found, which does not lead.
    of_test = [reason.verdict for reason in reasons if reason.verdict is not None and not reason.metrics]
    verdict = worst((*of_figures, *of_test))
    return replace(result, metrics=metrics, validity=replace(result.validity, verdict=verdict, reasons=reasons))


def _without_doubts(metric: Metric, answered: frozenset[str]) -> Metric:
    """A figure whose only doubts are `answered`; that the CPUs of the ends were the limit is none, and stays."""
    left = tuple(code for code in metric.reasons if code == ENDS_FULL)
    if len(left) == len(metric.reasons) or not answered.issuperset(set(metric.reasons) - set(left)):
        return metric
    return replace(metric, verdict=Verdict.VALID, reasons=left, bound=Bound.LEAST if left else None)


def _with_rough_figures(judged: Judged, kind: PrimaryKind, limit: float) -> Judged:
    """The note on figures that are known roughly, by their intervals over the repeats instead of within each."""
    others = tuple(note for note in judged.validity.notes if note.code != rough_figures.ROUGHLY_KNOWN)
    rough = machine_rules.notes_without_machine(rough_figures.note(judged.metrics, kind.decisive, limit))
    notes = (*rough, *others)
    return replace(judged, validity=replace(judged.validity, notes=notes))


def _with_note(judged: Judged, note: Reason) -> Judged:
    return replace(judged, validity=replace(judged.validity, notes=(note, *judged.validity.notes)))


def _between(mean: Metric, repeats: Sequence[Metric]) -> Metric:
    """The mean of rates that searches found: the interval is never narrower than what each search left open, and has no
    end on a side that one of them did not bound. If no rate held in some, it is at most the mean of the upper ends."""
    lows = [one.low for one in repeats if one.low is not None]
    highs = [one.high for one in repeats if one.high is not None]
    is_most = len(highs) == len(repeats) and mean.bound in (None, Bound.MOST)
    if is_most and mean.value is not None and any(one.value is None for one in repeats):
        most = sum(highs) / len(highs)
        return replace(mean, value=most, low=None, high=most, bound=Bound.MOST, unbounded=_NO_RATE)
    known = [value for value in (mean.value, mean.low, mean.high) if value is not None]
    low = min((sum(lows) / len(lows), *known)) if len(lows) == len(repeats) else None
    high = max((sum(highs) / len(highs), *known)) if len(highs) == len(repeats) else None
    missing = [side for side, end in (("below", low), ("above", high)) if end is None]
    unbounded = f"a search did not bound its rate from {' and '.join(missing)}" if missing else None
    # What is at least so much in some repeats, and has no rate in others, is known from no side.
    bound = Bound.NONE if low is None and mean.bound is Bound.LEAST else mean.bound
    return replace(mean, low=low, high=high, bound=bound, unbounded=None if mean.value is None else unbounded)


_NO_RATE = "in some repeats no rate held: at most the mean of the lowest rates that did not hold"


def _with_reasons(mean: Metric, repeats: Sequence[Metric]) -> Metric:
    """The mean with the repeats' verdicts: a bound of one of them is one of the mean."""
    verdict = worst(metric.verdict for metric in repeats)
    reasons = tuple(dict.fromkeys(code for metric in repeats for code in metric.reasons))
    bound = joint_side(metric.bound for metric in repeats)
    return replace(mean, verdict=verdict, reasons=reasons, bound=_side(bound, mean))


def _side(bound: Bound | None, figure: Metric) -> Bound | None:
    """The side of a figure that repeats leave: what is at least so much in one, and at most in another, has none."""
    return Bound.NONE if figure.censored and bound is Bound.MOST else bound


def _judged(
    metrics: Mapping[str, Metric],
    done: Sequence[TestResult],
    limit: float,
    kind: PrimaryKind,
    named: Iterable[str],
) -> Judged:
    """The repeats' reasons, each once, and whether the repeats agree with one another."""
    if not done:
        reason = Reason("no-repeat-done", "no repeat of this test completed", Verdict.INCOMPLETE)
        return Judged({}, Validity(Verdict.INCOMPLETE, (reason,)))
    judged, disagreements = dict(metrics), list[Reason]()
    verdict = worst(result.validity.verdict for result in done)
    for name in dict.fromkeys((kind.primary, *named)):
        known = [result for result in done if result.value(name) is not None]
        values = [value for result in known if (value := result.value(name)) is not None]
        found = stability.between_repeats(judged[name], values, limit, name) if name in judged else None
        if found is not None and machine_rules.without_machine([found]):
            doubt, reason = found
            cause = repeat_causes.clause(
                values, [result.circumstances for result in known], is_rate=family_of(name) is Family.RATE
            )
            reason = replace(reason, text=f"{reason.text}; {cause}")
            judged[name] = judged[name].doubted(doubt, reason.code, Bound.NONE)
            disagreements.append(replace(reason, verdict=doubt, metrics=(name,)))
            if name in (kind.primary, *kind.decisive):
                verdict = worst((verdict, doubt))
    reasons = (*disagreements, *_merged([result.validity.reasons for result in done]))
    return Judged(judged, Validity(verdict, reasons, tuple(_merged([result.validity.notes for result in done]))))


def _limit_of_most(done: Sequence[TestResult]) -> Limit | None:
    """The part that limited most of the repeats, with the evidence of the first of them."""
    limits = [result.limit for result in done if result.limit is not None]
    if not limits:
        return None
    (most, times), *_ = Counter(limit.by for limit in limits).most_common()
    first = next(limit for limit in limits if limit.by is most)
    share = f" (in {times} of {len(done)} repeats)" if times < len(done) else ""
    return replace(first, evidence=first.evidence + share)


def _without_some(judged: Judged, failed: int, began: int, done: Sequence[TestResult]) -> Judged:
    """The same where repeats failed, of all that `began`: two that agree still make a figure with an interval; less
    than that does not."""
    ended = sum(result.status == "done" for result in done)
    doubt = Verdict.INCOMPLETE if ended < LEAST_REPEATS else None
    reason = Reason("repeats-failed", f"{failed} of {counted(began, 'repeat')} did not complete", doubt)
    metrics, said = judged.metrics, judged.validity
    if doubt is not None:
        metrics = {name: metric.doubted(doubt, reason.code, Bound.NONE) for name, metric in metrics.items()}
    verdict = worst((said.verdict, doubt or Verdict.VALID))
    return Judged(metrics, replace(said, verdict=verdict, reasons=(reason, *said.reasons)))


def _merged(repeats: Sequence[Sequence[Reason]]) -> Iterable[Reason]:
    """Each code once, with the first repeat's words, and in how many repeats it was seen where not in all."""
    seen: dict[str, tuple[Reason, int]] = {}
    for reasons in repeats:
        # Worst first, as they are; a code that a repeat has twice counts once.
        for reason in {reason.code: reason for reason in reasons}.values():
            first, times = seen.get(reason.code, (reason, 0))
            both = bool(first.metrics and reason.metrics)
            metrics = tuple(dict.fromkeys((*first.metrics, *reason.metrics))) if both else ()
            seen[reason.code] = replace(first, metrics=metrics), times + 1
    for first, times in seen.values():
        share = f" (in {times} of {len(repeats)} repeats)" if times < len(repeats) else ""
        yield replace(first, text=first.text + share)
