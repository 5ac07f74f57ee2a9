"""Makes one result of the loads of a plan's search: the rate found, the figures at it, and the verdict on the search.

The journal has the decision on each rate; each load was analysed like a test of its own. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from leadline.analysis.model import Bound, Limit, LimitedBy, Metric, Reason, TestResult, Validity, Verdict
from leadline.analysis.search_findings import SearchFindings, Trial
from leadline.analysis.validity import worst
from leadline.quantities import rate_in_full
from leadline.registry import KINDS

FOUND_PER_S, FOUND_BPS = "found_rate_per_s", "found_rate_bps"
FURTHER_PER_S, FURTHER_BPS = "found_rate_2_per_s", "found_rate_2_bps"
"""Those of the second, weaker condition of a search."""
SEARCHED = frozenset({FOUND_PER_S, FOUND_BPS, FURTHER_PER_S, FURTHER_BPS})
"""Figures whose interval is that between the highest rate that holds and the lowest that does not."""

NO_RATE_HELD = "no-rate-held"
"""The note on a search whose lowest rate failed: it has no rate, which is its result."""

FEW_SAMPLES = "few-samples"
"""The reason against a rate above which trials failed by too few samples."""
FEW_SAMPLES_TEXT = (
    "above the rate that holds a percentile missed its condition in trials of too few samples to tell: the upper bound "
    "is unknown"
)

_LEAST = frozenset({"generator-limited", FEW_SAMPLES, "all-held"})
_CUT_SHORT = frozenset({"budget", "interrupted", "failed"})


class SearchedKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    def bits_per_operation(self, test: Mapping[str, Any]) -> float | None:
        """Payload bits of one operation at a rate; None where they are not all alike."""


@dataclass(frozen=True, slots=True)
class TrialSearches:
    """Which tests of a trial are loads of searches."""

    labels: tuple[str | None, ...]
    """For each test, in order, the label of the search that it is a load of; None for a test by itself."""
    records: Mapping[str, Mapping[str, Any]]
    """The records of the searches that ended, by label."""
    tests: Mapping[str, Mapping[str, Any]]
    """The case's tests by name, as the manifest has them."""

    @property
    def names(self) -> frozenset[str]:
        """The names of the tests that are searches."""
        return frozenset(label.rpartition("/")[2] for label in self.labels if label is not None)

    def folded(self, results: Sequence[TestResult]) -> Iterator[TestResult]:
        """The results of the tests; one for all loads of a search, in the place of its last load."""
        for place, (label, result) in enumerate(zip(self.labels, results, strict=True)):
            if label is None:
                yield result
            elif label not in self.labels[place + 1 :]:
                loads = [one for of, one in zip(self.labels, results, strict=True) if of == label]
                test = self.tests.get(label.rpartition("/")[2], {})
                yield search_result(loads, findings_of(self.records.get(label)), test)


def findings_of(record: Mapping[str, Any] | None) -> SearchFindings:
    """What a search found, from its record; without one it was cut off."""
    if record is None:
        return SearchFindings("", "interrupted", None, None, None, None)
    trials = tuple(_trial(trial) for trial in record.get("trials") or ())
    first = _findings(record, record, trials)
    further = (
        _findings(one, record, tuple(trial.further[number] for trial in trials if number < len(trial.further)))
        for number, one in enumerate(record.get("further") or ())
    )
    return replace(first, further=tuple(further))


def _findings(bounds: Mapping[str, Any], record: Mapping[str, Any], trials: tuple[Trial, ...]) -> SearchFindings:
    return SearchFindings(
        conditions=str(bounds.get("conditions") or ""),
        ending=str(bounds.get("ending") or "interrupted"),
        low_per_s=bounds.get("low_per_s"),
        high_per_s=bounds.get("high_per_s"),
        decided_s=bounds.get("decided_s"),
        reached_per_s=record.get("reached_per_s"),
        trials=trials,
    )


def _trial(record: Mapping[str, Any]) -> Trial:
    return Trial(**{**record, "further": tuple(_trial(one) for one in record.get("further") or ())})


def disturbed_trials(trials: Sequence[Trial], high_per_s: float | None) -> Reason | None:
    """The reason against a rate found if something else used the machine in trials at its upper bound."""
    failed = [trial for trial in trials if not trial.holds and trial.rate_per_s == high_per_s]
    disturbed = sum(trial.disturbed for trial in failed)
    if not disturbed:
        return None
    text = (
        f"something else used the machine in {disturbed} of {len(failed)} trials at {rate_in_full(high_per_s)}, which "
        "did not hold: on a quiet one the rate may be higher"
    )
    return Reason("trials-disturbed", text, Verdict.DISTURBED)


def search_result(results: Sequence[TestResult], found: SearchFindings, test: Mapping[str, Any]) -> TestResult:
    """The result of a search, whose first load had no rate. Its figures are those of the longest load at the rate
    found, the last of several."""
    loads = list(zip(found.trials, results[1:], strict=False))
    at_low = [(trial, one) for trial, one in loads if trial.holds and trial.rate_per_s == found.low_per_s]
    longest_s = max((trial.duration_s for trial, _ in at_low), default=0.0)
    base = next((one for trial, one in reversed(at_low) if trial.duration_s == longest_s), None)
    reasons = tuple(_reasons(found))
    verdict = worst([reason.verdict or Verdict.VALID for reason in reasons])
    figures = _found_metrics(found, test, reasons)
    for one in found.further[:1]:
        names = {FOUND_PER_S: FURTHER_PER_S, FOUND_BPS: FURTHER_BPS}
        weaker = _found_metrics(one, test, tuple(_reasons(one)))
        figures |= {names[name]: metric for name, metric in weaker.items()}
    whole = base if base is not None else results[-1]
    of_base = base.validity if base is not None else Validity(Verdict.VALID)
    return replace(
        whole,
        status="done" if found.ending not in ("interrupted", "failed") else found.ending,
        metrics={**figures, **(base.metrics if base is not None else {})},
        validity=Validity(
            worst([verdict, of_base.verdict]), (*reasons, *of_base.reasons), (*_notes(found), *of_base.notes)
        ),
        limit=_limit(found, loads, whole.limit),
        search=found,
    )


def _limit(found: SearchFindings, loads: Sequence[tuple[Trial, TestResult]], of_whole: Limit | None) -> Limit | None:
    """What limited the rate found: what limited a load at the upper bound, or else the condition that failed there.

    A load that fails narrowly is delivered nearly whole, so its own limit is the offered rate. That of a search with an
    upper bound is not: more was asked for, and did not hold."""
    failed = [
        (trial, one)
        for trial, one in reversed(loads)
        if trial.rate_per_s == found.high_per_s and not trial.holds and not trial.is_no_bound
    ]
    limits = [one.limit for _, one in failed if one.limit is not None]
    limit = next((one for one in limits if one.by is not LimitedBy.OFFERED_RATE), of_whole)
    if limit is not None and limit.by is not LimitedBy.OFFERED_RATE:
        return limit
    if found.ending == "generator-limited":
        return Limit(LimitedBy.GENERATOR, next(_reasons(found)).text)
    if found.high_per_s is None:
        return limit
    held = "did not hold" if found.low_per_s is None else f"held at {rate_in_full(found.low_per_s)}, but not"
    why = next((trial.why for trial, _ in failed), found.conditions)
    text = f"the conditions {held} at {rate_in_full(found.high_per_s)}: {why}"
    return Limit(LimitedBy.UNKNOWN, text, f"above it a condition does not hold ({why})")


def doubt_by_ending(metric: Metric, ending: str, doubts: Iterable[tuple[Verdict, str]]) -> Metric:
    """The rate found, with the verdicts on its search and their codes: it is at least as high where the search ended
    for want of a higher rate, or where something else made higher ones fail."""
    for verdict, code in doubts:
        is_least = ending in _LEAST or verdict is Verdict.DISTURBED
        metric = metric.doubted(verdict, code, Bound.LEAST if is_least else Bound.NONE)
    return metric


def _found_metrics(found: SearchFindings, test: Mapping[str, Any], reasons: Sequence[Reason]) -> dict[str, Metric]:
    kind: SearchedKind = KINDS.find(str(test.get("kind")))
    unknown = next((note.text for note in _notes(found)), None)
    figures = {FOUND_PER_S: Metric(found.low_per_s, "1/s", found.low_per_s, found.high_per_s, unknown=unknown)}
    bits = kind.bits_per_operation(test)
    if bits is not None:
        low, high = (None if rate is None else rate * bits for rate in (found.low_per_s, found.high_per_s))
        figures[FOUND_BPS] = Metric(low, "bit/s", low, high, unknown=unknown)
    doubts = [(reason.verdict, reason.code) for reason in reasons if reason.verdict is not None]
    return {name: doubt_by_ending(metric, found.ending, doubts) for name, metric in figures.items()}


def _reasons(found: SearchFindings) -> Iterator[Reason]:
    """Why the rate found is not known from both sides."""
    high = "" if found.high_per_s is None else f"; at {rate_in_full(found.high_per_s)} the conditions did not hold"
    if found.ending == "generator-limited":
        text = f"above the rate that holds the generator was at its limit or late: the path's limit is unknown{high}"
        yield Reason("generator-limited-trials", text, Verdict.GENERATOR_LIMITED)
    elif found.ending == FEW_SAMPLES:
        yield Reason(FEW_SAMPLES, FEW_SAMPLES_TEXT, Verdict.UNDETERMINED)
    elif found.ending in ("found", "none-held"):
        disturbed = disturbed_trials(found.trials, found.high_per_s)
        if disturbed is not None:
            yield disturbed
    elif found.ending == "all-held":
        text = "the highest rate tried holds: the generator offers no more, or not much"
        yield Reason("highest-rate-held", text, Verdict.UNDETERMINED)
    elif found.ending == "budget":
        text = "the trials disagreed until the time budget was used up: the bounds are the last ones"
        yield Reason("search-budget", text, Verdict.INCOMPLETE)
    elif found.ending in _CUT_SHORT:
        yield Reason("ended-early", "the search was cut short", Verdict.INCOMPLETE)


def _notes(found: SearchFindings) -> Iterator[Reason]:
    """Names a search without a rate: that even the lowest one failed is a result, and no reason against it."""
    if found.ending == "none-held":
        lowest = "" if found.high_per_s is None else f", {rate_in_full(found.high_per_s)},"
        yield Reason(NO_RATE_HELD, f"not even the lowest rate tried{lowest} holds")
