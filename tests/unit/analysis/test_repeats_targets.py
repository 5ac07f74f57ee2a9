"""Means with t-intervals, disagreeing repeats, and targets: met, missed, undecided."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from made_journals import steady_test

from leadline.analysis import analyse_test, judge, parse_targets
from leadline.analysis.model import Metric, Reason, Summary, Validity, Verdict
from leadline.analysis.model import TestResult as Result
from leadline.analysis.repeats import mean_with_interval, summarise
from leadline.analysis.targets import judge_summaries
from leadline.errors import PlanError

KINDS = {"bulk": "tcp", "call": "rr"}


def test_the_interval_is_students_t() -> None:
    # 2, 4, 4, 4, 6: mean 4, s = sqrt(2), t(0.975, 4) = 2.776445.
    mean = mean_with_interval(Metric(value, "us") for value in (2.0, 4.0, 4.0, 4.0, 6.0))
    assert (mean.value, mean.unit) == (4.0, "us")
    assert mean.low == pytest.approx(4 - 2.776445105 * (2 / 5) ** 0.5, rel=1e-8)
    assert mean.high == pytest.approx(4 + 2.776445105 * (2 / 5) ** 0.5, rel=1e-8)


def test_a_single_repeat_has_no_interval_and_unknown_values_are_left_out() -> None:
    assert mean_with_interval([Metric(3.0, "us")]) == Metric(3.0, "us")
    assert mean_with_interval([Metric(3.0, "us"), Metric(None, "us"), None]) == Metric(3.0, "us")
    assert mean_with_interval([Metric(None, "us")]) == Metric(None, "us")
    same = mean_with_interval([Metric(3.0, "us"), Metric(3.0, "us")])
    assert (same.low, same.high) == (3.0, 3.0)


def repeats(*bytes_per_s: float) -> list[Result]:
    return [analyse_test(steady_test("tcp", rate)) for rate in bytes_per_s]


def summary(results: Sequence[Result], planned: int | None = None, limit: float = 0.1) -> Summary:
    return summarise(
        results, planned=planned or len(results), limit=limit, case="c01", test="t", kind="tcp", parameters={"n": 1}
    )


def test_repeats_that_agree_and_that_do_not() -> None:
    agreeing = summary(repeats(1e6, 1.02e6, 1.04e6))
    assert agreeing.metrics["throughput_bps"].value == pytest.approx(8.16e6)
    assert agreeing.metrics["throughput_bps"].low is not None
    assert agreeing.validity == Validity(Verdict.VALID)
    assert (agreeing.repeats, agreeing.failed) == (3, 0)
    apart = summary(repeats(1e6, 1.2e6))
    assert apart.validity.verdict is Verdict.UNSTABLE
    assert [reason.code for reason in apart.validity.reasons] == ["repeats-disagree"]
    assert summary(repeats(1e6, 1.2e6), limit=0.5).validity.verdict is Verdict.VALID


def test_failed_repeats_are_counted_and_not_averaged() -> None:
    found = summary(repeats(1e6), planned=3)
    assert (found.repeats, found.failed) == (1, 2)
    assert found.metrics["throughput_bps"].value == pytest.approx(8e6)
    assert [reason.code for reason in found.validity.reasons] == ["repeats-failed"]
    none = summary([], planned=2)
    assert (none.repeats, none.failed, none.metrics) == (0, 2, {})
    assert none.validity.verdict is Verdict.INCOMPLETE


def result(value: float | None, verdict: Verdict = Verdict.VALID, test: str = "bulk", kind: str = "tcp") -> Summary:
    metric = "throughput_bps" if kind == "tcp" else "latency_p99_us"
    validity = Validity(verdict, (Reason("x", "y"),))
    return Summary("c01", test, kind, {}, 1, 0, {metric: Metric(value, "")}, validity)


LIMITED = Verdict.GENERATOR_LIMITED


@pytest.mark.parametrize(
    ("target", "value", "verdict", "outcome"),
    [
        ("bulk.throughput_bps > 100mbit", 2e8, Verdict.VALID, "met"),
        ("bulk.throughput_bps > 100mbit", 1e8, Verdict.VALID, "missed"),
        ("bulk.throughput_bps >= 100mbit", 1e8, Verdict.VALID, "met"),
        ("bulk.throughput_bps > 100mbit", 2e8, LIMITED, "met"),
        ("bulk.throughput_bps > 100mbit", 0.5e8, LIMITED, "undecided"),
        ("bulk.throughput_bps < 100mbit", 2e8, LIMITED, "missed"),
        ("bulk.throughput_bps < 100mbit", 0.5e8, LIMITED, "undecided"),
        ("bulk.throughput_bps == 100mbit", 1e8, LIMITED, "undecided"),
        ("bulk.throughput_bps > 100mbit", 2e8, Verdict.RECEIVER_LIMITED, "met"),
        ("bulk.throughput_bps > 100mbit", 2e8, Verdict.UNSTABLE, "undecided"),
        ("bulk.throughput_bps > 100mbit", 2e8, Verdict.INCOMPLETE, "undecided"),
        ("bulk.throughput_bps > 100mbit", 2e8, Verdict.UNDETERMINED, "undecided"),
        ("bulk.throughput_bps > 100mbit", None, Verdict.VALID, "undecided"),
        ("throughput_bps > 100mbit", 2e8, Verdict.VALID, "met"),
    ],
)
def test_a_target(target: str, value: float | None, verdict: Verdict, outcome: str) -> None:
    (parsed,) = parse_targets([target], KINDS)
    judged = judge(parsed, "c01", [result(value, verdict)])
    assert (judged.outcome, judged.value, judged.target, judged.case) == (outcome, value, target, "c01")
    assert judged.reason


def test_a_limited_generator_says_nothing_certain_of_latency() -> None:
    (parsed,) = parse_targets(["call.latency_p99_us < 1ms"], KINDS)
    assert judge(parsed, "c01", [result(500.0, LIMITED, "call", "rr")]).outcome == "undecided"
    assert judge(parsed, "c01", [result(500.0, Verdict.VALID, "call", "rr")]).outcome == "met"


def test_a_target_of_every_test_is_as_bad_as_the_worst() -> None:
    (parsed,) = parse_targets(["throughput_bps > 100mbit"], {"bulk": "tcp", "more": "tcp"})
    good, bad = result(2e8), result(1e6, test="more")
    open_ = result(None, test="more")
    assert judge(parsed, "c01", [good, bad]).outcome == "missed"
    assert judge(parsed, "c01", [good, open_]).outcome == "undecided"


def test_a_target_without_a_result_is_undecided() -> None:
    (parsed,) = parse_targets(["bulk.throughput_bps > 1"], KINDS)
    assert judge(parsed, "c01", []).outcome == "undecided"
    assert [found.case for found in judge_summaries([parsed], [result(2.0), result(3.0, test="call")])] == ["c01"]


def test_nonsense_is_refused() -> None:
    with pytest.raises(PlanError):
        parse_targets(["bulk.nothing < 3"], KINDS)
