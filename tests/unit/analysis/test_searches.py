"""Searches in plans: the judgement of datagrams at a rate, and the result that a journal's loads make together."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from made_journals import MadeRun

from leadline.analysis import analyse, judge, parse_targets
from leadline.analysis.capacity import Conditions, judge_packets
from leadline.analysis.datagram_figures import STILL_ARRIVING
from leadline.analysis.model import (
    Bound,
    Interval,
    Limit,
    LimitedBy,
    Metric,
    Reason,
    Summary,
    TestResult,
    Validity,
    Verdict,
)
from leadline.analysis.repeats import summarise
from leadline.analysis.search_findings import SearchFindings, Trial
from leadline.analysis.searches import findings_of, search_result
from leadline.errors import InputError

CONDITIONS = Conditions.read("lost_ratio < 0.1%", "ndr", "udp")
TEST = {"name": "ndr", "kind": "udp", "packet_bytes": 1000}


def load(sent: float, lost: float, verdict: Verdict = Verdict.VALID, limit: LimitedBy | None = None) -> TestResult:
    metrics = {
        "throughput_bps": Metric((sent - lost) * 8000, "bit/s"),
        "sent": Metric(sent, "count"),
        "received": Metric(sent - lost, "count"),
        "lost": Metric(lost, "count"),
        "lost_ratio": Metric(lost / sent, "ratio"),
        "packets_per_s": Metric(sent - lost, "1/s"),
    }
    limited = None if limit is None else Limit(limit, "")
    reasons = (Reason("other-work", "a spin loop", verdict),) if verdict is not Verdict.VALID else ()
    return TestResult(
        "c01", 1, "ndr", "udp", {}, "done", None, metrics, Validity(verdict, reasons), None, None, {}, limit=limited
    )


def cut_off(result: TestResult) -> TestResult:
    """The same where the receiver stopped counting while datagrams still arrived."""
    reason = Reason(STILL_ARRIVING, "50 are outstanding", Verdict.UNDETERMINED)
    return replace(result, validity=Validity(Verdict.UNDETERMINED, (reason,)))


def judged(result: TestResult, rate_per_s: float = 1000.0) -> Trial:
    return judge_packets(CONDITIONS, result, rate_per_s=rate_per_s, duration_s=1.0)


@pytest.mark.parametrize(
    ("result", "holds", "generator_limited"),
    [
        (load(1000, 0), True, False),
        (load(1000, 50), False, False),
        (load(900, 0), False, True),
        (load(900, 0, limit=LimitedBy.LINK), False, False),
        (load(1000, 50, Verdict.UNDETERMINED), False, True),
        (load(1000, 50, Verdict.DISTURBED), False, False),
        # A queue that is still full long after the end has been growing: that is the path's.
        (cut_off(load(1000, 50)), False, False),
    ],
)
def test_trial_of_datagrams_is_judged_by_loss_and_by_what_was_offered(
    result: TestResult, holds: bool, generator_limited: bool
) -> None:
    trial = judged(result)
    assert (trial.holds, trial.generator_limited) == (holds, generator_limited)
    assert trial.disturbed is (result.validity.verdict is Verdict.DISTURBED)
    assert trial.why


def path(offered_per_s: float, seed: int, *, served_per_s: float, queue: float, drift: float = 0.0) -> TestResult:
    """A second of datagrams through a path of a known rate, with a queue; what arrives is read ten times, late by
    a few datagrams. The receiver's clock is faster by `drift`."""
    chance, arrived, waiting, lost, intervals = np.random.default_rng(seed), 0.0, 0.0, 0.0, []
    late = chance.uniform(0, 5, 11)
    for step in range(10):
        waiting += offered_per_s / 10
        served = min(waiting, served_per_s / 10)
        waiting -= served
        lost += max(0.0, waiting - queue)
        waiting = min(waiting, queue)
        arrived += served
        per_s = 10 * (served - late[step + 1] + late[step]) * (1 - drift)
        intervals.append(Interval(step / 10, (step + 1) / 10, {"packets_per_s": per_s}, True))
    return replace(load(offered_per_s, lost), intervals=tuple(intervals))


@pytest.mark.parametrize("seed", range(5))
def test_queue_of_datagrams_that_grows_does_not_hold(seed: int) -> None:
    """It has room for all that comes in a second, so that nothing is lost yet."""
    grown = judged(path(10_200, seed, served_per_s=10_000, queue=1000.0), 10_200.0)
    assert not grown.holds and not grown.is_no_bound
    assert grown.why.startswith("a queue still grew at the end: datagrams took ")
    assert judged(path(9_900, seed, served_per_s=10_000, queue=1000.0, drift=1e-4), 9_900.0).holds


def test_queue_of_datagrams_that_is_full_grows_no_more() -> None:
    """Its losses are the conditions' matter."""
    lossy = Conditions.read("lost_ratio < 50%", "ndr", "udp")
    full = path(15_000, 1, served_per_s=10_000, queue=100.0)
    assert judge_packets(lossy, full, rate_per_s=15_000.0, duration_s=1.0).holds


def found(ending: str = "found", low: float | None = 1000.0, high: float | None = 1020.0) -> SearchFindings:
    trials = (judged(load(2000, 900), 2000.0), judged(load(1000, 0)), judged(load(1020, 20), 1020.0))
    return SearchFindings("lost_ratio < 0.1%", ending, low, high, 1.0, 2000.0, trials)


LOADS = (load(2000, 900), load(2000, 900), load(1000, 0), load(1020, 20, limit=LimitedBy.GATEWAY))


def test_result_of_a_search_has_the_rates_and_the_figures_at_the_lower_one() -> None:
    result = search_result(LOADS, found(), TEST)
    rate = result.metrics["found_rate_bps"]
    assert (rate.value, rate.low, rate.high) == (8e6, 8e6, 8.16e6)
    assert result.metrics["throughput_bps"].value == 8e6
    assert result.validity.verdict is Verdict.VALID
    assert result.limit is not None
    assert result.limit.by is LimitedBy.GATEWAY


NARROW = replace(found(), trials=(*found().trials[:2], judged(load(1020, 5), 1020.0)))
OFFERED = load(1000, 0, limit=LimitedBy.OFFERED_RATE)


@pytest.mark.parametrize(
    ("low", "evidence"),
    [
        (1000.0, "the conditions held at 1,000/s, but not at 1,020/s: lost_ratio 0.00490196 is not < 0.001"),
        (None, "the conditions did not hold at 1,020/s: lost_ratio 0.00490196 is not < 0.001"),
    ],
)
def test_narrow_failure_at_the_upper_bound_is_not_limited_by_the_offered_rate(low: float | None, evidence: str) -> None:
    loads = (*LOADS[:2], OFFERED, load(1020, 5, limit=LimitedBy.OFFERED_RATE))
    limit = search_result(loads, replace(NARROW, low_per_s=low), TEST).limit
    assert limit == Limit(
        LimitedBy.UNKNOWN, evidence, "above it a condition does not hold (lost_ratio 0.00490196 is not < 0.001)"
    )


def test_limit_of_another_failed_load_at_the_upper_bound_stays() -> None:
    trials = (*NARROW.trials[:2], judged(load(1020, 5), 1020.0), judged(load(1020, 5), 1020.0))
    at_high = [load(1020, 5, limit=by) for by in (LimitedBy.GATEWAY, LimitedBy.OFFERED_RATE)]
    limit = search_result((*LOADS[:2], OFFERED, *at_high), replace(NARROW, trials=trials), TEST).limit
    assert limit is not None and limit.by is LimitedBy.GATEWAY


@pytest.mark.parametrize(
    ("ending", "by"), [("generator-limited", LimitedBy.GENERATOR), ("all-held", LimitedBy.OFFERED_RATE)]
)
def test_limit_of_a_search_without_an_upper_bound_is_what_ended_it(ending: str, by: LimitedBy) -> None:
    limit = search_result((*LOADS[:2], OFFERED, LOADS[3]), found(ending, high=None), TEST).limit
    assert limit is not None and limit.by is by


@pytest.mark.parametrize(
    ("ending", "high", "verdict", "bound"),
    [
        ("generator-limited", None, Verdict.GENERATOR_LIMITED, Bound.LEAST),
        ("few-samples", None, Verdict.UNDETERMINED, Bound.LEAST),
        ("all-held", None, Verdict.UNDETERMINED, Bound.LEAST),
        ("budget", 1020.0, Verdict.INCOMPLETE, Bound.NONE),
    ],
)
def test_ending_decides_the_verdict_and_the_side(
    ending: str, high: float | None, verdict: Verdict, bound: Bound
) -> None:
    result = search_result(LOADS, found(ending, high=high), TEST)
    assert result.validity.verdict is verdict
    assert result.metrics["found_rate_per_s"].bound is bound


def test_search_without_a_rate_that_holds_has_no_figure_of_a_load() -> None:
    result = search_result(LOADS, found("none-held", low=None), TEST)
    assert result.metrics["found_rate_per_s"].value is None
    assert "throughput_bps" not in result.metrics


def test_trials_that_were_disturbed_make_the_rate_a_lower_bound() -> None:
    disturbed = replace(found(), trials=(*found().trials[:2], judged(load(1020, 20, Verdict.DISTURBED), 1020.0)))
    result = search_result(LOADS, disturbed, TEST)
    assert result.validity.verdict is Verdict.DISTURBED
    assert result.metrics["found_rate_per_s"].bound is Bound.LEAST


def test_mean_over_repeats_keeps_what_each_search_left_open() -> None:
    results = [search_result(LOADS, found(), TEST) for _ in range(3)]
    for repeats in (results[:1], results):
        rate = summarise(
            repeats, planned=len(repeats), limit=0.1, case="c01", test="ndr", kind="udp", parameters={}
        ).metrics["found_rate_per_s"]
        assert (rate.value, rate.low, rate.high) == (1000.0, 1000.0, 1020.0)


def over(*results: TestResult) -> Summary:
    repeats = [replace(result, repeat=number) for number, result in enumerate(results, 1)]
    return summarise(repeats, planned=len(repeats), limit=0.1, case="c01", test="ndr", kind="udp", parameters={})


@pytest.mark.parametrize("ending", ["budget", "few-samples", "all-held", "generator-limited"])
@pytest.mark.parametrize("repeats", [1, 2, 3, 5])
def test_verdict_of_a_search_stays_when_repeats_answer_another_doubt(ending: str, repeats: int) -> None:
    reason = Reason("precision-unknown", "the rate is not known well enough", Verdict.UNDETERMINED, ("throughput_bps",))
    base = load(1000, 0)
    rate = base.metrics["throughput_bps"].doubted(Verdict.UNDETERMINED, reason.code, Bound.NONE)
    validity = Validity(Verdict.UNDETERMINED, (reason,))
    base = replace(base, metrics={**base.metrics, "throughput_bps": rate}, validity=validity)
    single = search_result((*LOADS[:2], base, LOADS[3]), found(ending, high=None), TEST)
    summary = over(*[single] * repeats)
    assert single.validity.verdict is not Verdict.VALID
    assert summary.validity.verdict is single.validity.verdict
    assert summary.metrics["throughput_bps"].verdict is (Verdict.VALID if repeats > 2 else Verdict.UNDETERMINED)


def outcome(target: str, result: Summary | TestResult) -> tuple[str, str]:
    (parsed,) = parse_targets([f"found_rate_per_s {target}"], {"ndr": "udp"})
    judged = judge(parsed, "c01", [result])
    return judged.outcome, judged.reason


@pytest.mark.parametrize("ending", ["few-samples", "all-held", "generator-limited"])
def test_lower_bound_that_every_search_has_decides(ending: str) -> None:
    single = search_result(LOADS, found(ending, high=None), TEST)
    for result in (single, over(single), over(single, single, single)):
        rate = result.metrics["found_rate_per_s"]
        assert (rate.value, rate.low, rate.high) == (1000.0, 1000.0, None)
        assert outcome("> 500", result) == ("met", "at least 1000 /s > 500 /s")
        assert outcome("> 5000", result)[0] == "undecided"


@pytest.mark.parametrize("repeats", [0, 1, 3])
def test_searches_without_a_rate_decide_by_their_upper_bound_and_are_named(repeats: int) -> None:
    single = search_result(LOADS, found("none-held", low=None), TEST)
    result = over(*[single] * repeats) if repeats else single
    rate = result.metrics["found_rate_per_s"]
    assert (rate.value, rate.low, rate.high) == (None, None, 1020.0)
    assert outcome("> 5000", result) == ("missed", "at most 1020 /s is not > 5000 /s")
    assert outcome("> 500", result) == ("undecided", "known only to be at most 1020 /s")
    assert result.validity.verdict is Verdict.VALID
    text = "not even the lowest rate tried, 1,020/s, holds"
    assert [(note.code, note.text) for note in result.validity.notes if note.code != "interval-within-test"] == [
        ("no-rate-held", text)
    ]


def test_some_searches_without_a_rate_leave_the_mean_without_a_lower_end() -> None:
    single = search_result(LOADS, found(), TEST)
    summary = over(single, single, search_result(LOADS, found("none-held", low=None), TEST))
    rate = summary.metrics["found_rate_per_s"]
    assert (rate.value, rate.low, rate.high, rate.side) == (1020.0, None, 1020.0, Bound.MOST)
    assert rate.unbounded is not None and rate.unbounded.startswith("in some repeats no rate held")
    assert summary.gaps["found_rate_per_s"] == 1
    assert [note.text for note in summary.validity.notes] == [
        "not even the lowest rate tried, 1,020/s, holds (in 1 of 3 repeats)"
    ]
    assert outcome("> 5000", summary)[0] == "missed"
    assert outcome("> 500", summary)[0] == "undecided"
    lower = search_result(LOADS, replace(found("none-held", low=None), high_per_s=100.0), TEST)
    rate = over(single, single, lower).metrics["found_rate_per_s"]
    assert rate.value == rate.high == pytest.approx((1020 + 1020 + 100) / 3)
    assert outcome("> 900", over(single, single, lower))[0] == "missed"


def test_disturbed_search_beside_one_without_a_rate_bounds_nothing() -> None:
    """Its upper rate may have failed because of the disturbance."""
    disturbed = replace(found(), trials=(*found().trials[:2], judged(load(1020, 20, Verdict.DISTURBED), 1020.0)))
    high = search_result(LOADS, disturbed, TEST)
    assert high.metrics["found_rate_per_s"].bound is Bound.LEAST
    none = search_result(LOADS, found("none-held", low=None), TEST)
    summary = over(high, none)
    assert summary.metrics["found_rate_per_s"].bound is Bound.NONE
    assert [outcome(limit, summary)[0] for limit in ("> 5000", "> 500")] == ["undecided"] * 2


def test_disturbed_search_without_a_rate_decides_nothing() -> None:
    disturbed = (*found().trials[:2], judged(load(1020, 20, Verdict.DISTURBED), 1020.0))
    result = search_result(LOADS, replace(found("none-held", low=None), trials=disturbed), TEST)
    assert result.metrics["found_rate_per_s"].verdict is Verdict.DISTURBED
    assert outcome("> 5000", result)[0] == outcome("> 5000", over(result))[0] == "undecided"


def test_loads_of_a_journal_become_one_result() -> None:
    made = MadeRun()
    made.begin()
    made.begin_trial("c01/1")
    for number, rate in enumerate((2e6, 1e6), 1):
        made.test("c01/1", rate, name=f"ndr.{number}")
    for entry in made.entries:
        if entry.get("record") == "test-begin":
            entry["search"] = "c01/1/ndr"
            entry["test"] = {**entry["test"], "name": "ndr", "kind": "udp"}
    record: dict[str, Any] = {**asdict(found()), "trials": [asdict(found().trials[1])], "label": "c01/1/ndr"}
    made.entries.append({"record": "search-end", "at_ns": 1, **record})
    made.end_trial("c01/1")
    made.end()
    (trial,) = analyse({"cases": [{"id": "c01", "tests": [TEST]}]}, made.entries).trials
    (result,) = trial.tests
    assert (result.test, result.search is not None) == ("ndr", True)
    assert result.metrics["found_rate_per_s"].value == 1000.0


def test_search_that_was_cut_off_is_incomplete() -> None:
    result = search_result(LOADS[:1], findings_of(None), TEST)
    assert (result.status, result.validity.verdict) == ("interrupted", Verdict.INCOMPLETE)


# --- Several rates of one search --------------------------------------------------------------------------------


def test_trial_is_judged_by_each_condition() -> None:
    both = Conditions.read_all(["lost_ratio <= 0.5%", "lost_ratio <= 0"], "ndr", "udp")
    assert (both.text, [one.text for one in both.further]) == ("lost_ratio <= 0", ["lost_ratio <= 0.5%"])
    assert both.allowed_losses == (0.005,)
    trial = judge_packets(both, load(1000, 3), rate_per_s=1000.0, duration_s=1.0)
    assert [one.holds for one in trial.by_condition] == [False, True]


@pytest.mark.parametrize(
    "texts",
    [
        ["lost_ratio <= 0", "packets_per_s > 5"],
        ["lost_ratio <= 0 and jitter_us < 5", "lost_ratio <= 0.5% and jitter_us < 4"],
        ["lost_ratio <= 0", "lost_ratio < 1%"],
        ["lost_ratio <= 0", "lost_ratio <= 0"],
    ],
)
def test_conditions_of_one_search_are_forms_of_one_condition(texts: list[str]) -> None:
    with pytest.raises(InputError, match="the same figures only"):
        Conditions.read_all(texts, "ndr", "udp")


def test_result_of_a_search_has_both_rates() -> None:
    """The record of a journal, whose trials have the judgement by the second condition in them."""
    both = Conditions.read_all(["lost_ratio <= 0", "lost_ratio <= 0.5%"], "ndr", "udp")
    loads = [load(900, 0), load(1000, 3), load(1100, 100)]
    trials = [
        judge_packets(both, one, rate_per_s=rate, duration_s=1.0)
        for rate, one in zip((900.0, 1000.0, 1100.0), loads, strict=True)
    ]
    bounds = {"ending": "found", "decided_s": 1.0}
    record = {
        "conditions": both.text,
        **bounds,
        "low_per_s": 900.0,
        "high_per_s": 1000.0,
        "trials": json.loads(json.dumps([asdict(trial) for trial in trials])),
        "further": [{"conditions": both.further[0].text, **bounds, "low_per_s": 1000.0, "high_per_s": 1100.0}],
    }
    found = findings_of(record)
    assert [one.holds for one in found.further[0].trials] == [True, True, False]
    metrics = search_result([load(2000, 500), *loads], found, TEST).metrics
    rates = [metrics[name] for name in ("found_rate_per_s", "found_rate_2_per_s")]
    assert [(rate.low, rate.high) for rate in rates] == [(900.0, 1000.0), (1000.0, 1100.0)]
    assert metrics["found_rate_2_bps"].value == 8e6
