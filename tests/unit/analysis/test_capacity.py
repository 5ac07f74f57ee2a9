"""Conditions of a capacity search, and what one trial's result says about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from leadline.analysis import model
from leadline.analysis.capacity import Conditions, judge_trial
from leadline.analysis.model import Metric, Reason, Validity, Verdict
from leadline.analysis.search_findings import Trial
from leadline.errors import InputError

TEXT = "latency_p99_us < 5000 and error_ratio < 0.1%"


def conditions(text: str = TEXT) -> Conditions:
    return Conditions.read(text, "http", "http")


def result(*reasons: Reason, verdict: Verdict = Verdict.VALID, **values: float | None) -> model.TestResult:
    figures = {"requests_per_s": 1000.0, "latency_p99_us": 1200.0, "error_ratio": 0.0, "unsent": 0.0, **values}
    return model.TestResult(
        case="c01",
        repeat=1,
        test="http",
        kind="http",
        parameters={},
        status="done",
        error=None,
        metrics={name: Metric(value, "") for name, value in figures.items()},
        validity=Validity(verdict, reasons),
        window=None,
        generator=None,
        errors={},
    )


def judged(made: model.TestResult, text: str = TEXT) -> Trial:
    return judge_trial(conditions(text), made, rate_per_s=1000.0, duration_s=10.0, connections=20)


def test_conditions_are_targets_that_and_joins() -> None:
    read = conditions("  latency_p99_us<5ms AND error_ratio <= 0.1%  and http.latency_p99_us > 10 ")
    assert [(target.metric, target.op, target.value) for target in read.targets] == [
        ("latency_p99_us", "<", 5000.0),
        ("error_ratio", "<=", 0.001),
        ("latency_p99_us", ">", 10.0),
    ]
    assert read.metrics == ("latency_p99_us", "error_ratio")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "METRIC < VALUE"),
        ("   ", "METRIC < VALUE"),
        ("latency_p99_us", "METRIC < VALUE"),
        ("latency_p99_us < 5000 and ", "METRIC < VALUE"),
        ("and", "METRIC < VALUE"),
        ("and latency_p99_us < 5000", "METRIC < VALUE"),
        ("latency_p99_us < 5000 and  and error_ratio < 1", "METRIC < VALUE"),
        ("latency_p99 < 5000", "unknown metric 'latency_p99'"),
        ("jitter_us < 5000", "unknown metric 'jitter_us'"),
        ("latency_p99_us < soon", "soon"),
        ("latency_p99_us < nan", "nan"),
        ("tcp.latency_p99_us < 5000", "unknown test 'tcp'"),
        ("latency_p99_us < 5000 or error_ratio < 1", "5000 or error_ratio"),
    ],
)
def test_what_is_no_condition_is_one_line(text: str, says: str) -> None:
    with pytest.raises(InputError) as raised:
        conditions(text)
    assert says in str(raised.value) and "\n" not in str(raised.value)
    assert raised.value.exit_code == 2


def test_a_trial_that_holds() -> None:
    trial = judged(result())
    assert trial.holds and not trial.generator_limited
    assert trial.answered_share == 1.0
    assert trial.why == "latency_p99_us 1200; error_ratio 0"
    assert trial.metrics == {"requests_per_s": 1000.0, "latency_p99_us": 1200.0, "error_ratio": 0.0}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"latency_p99_us": 5000.0}, "latency_p99_us 5000 is not < 5000"),
        ({"error_ratio": 0.001}, "error_ratio 0.001 is not < 0.001"),
        ({"latency_p99_us": None}, "latency_p99_us has no samples"),
        ({"unsent": 21.0}, "21 requests that were due were not sent"),
        (
            {"latency_p99_us": 7000.0, "unsent": 400.0},
            "latency_p99_us 7000 is not < 5000; 400 requests that were due were not sent",
        ),
    ],
)
def test_a_trial_that_does_not_hold(values: dict[str, Any], why: str) -> None:
    trial = judged(result(**values))
    assert not trial.holds and not trial.generator_limited
    assert trial.why == why


def test_a_request_for_each_connection_may_be_left_over() -> None:
    assert judged(result(unsent=20.0)).holds
    assert judged(result(unsent=None)).holds


def test_errors_do_not_hold_where_no_condition_is_about_them() -> None:
    only_latency = "latency_p99_us < 5000"
    assert judged(result(error_ratio=0.0), only_latency).holds
    trial = judged(result(error_ratio=0.0001), only_latency)
    assert not trial.holds and trial.why == "error_ratio is 0.0001"
    assert judged(result(error_ratio=0.0001)).holds


@pytest.mark.parametrize("code", ["thread-saturated", "thread-starved", "sends-late", "near-ceiling"])
def test_late_generator_marks_a_trial_generator_limited(code: str) -> None:
    reason = Reason(code, "the generator was late")
    trial = judged(result(reason, verdict=Verdict.GENERATOR_LIMITED, latency_p99_us=9000.0))
    assert not trial.holds and trial.generator_limited
    assert trial.why == "latency_p99_us 9000 is not < 5000; the generator was late"
    # What holds with a generator at its limit holds.
    held = judged(result(reason, verdict=Verdict.GENERATOR_LIMITED))
    assert held.holds and held.generator_limited and held.why == "latency_p99_us 1200; error_ratio 0"


@pytest.mark.parametrize("code", ["hosts-without-figures", "connections-lost", "flows-broken-off", "ended-early"])
def test_an_incomplete_trial_does_not_hold(code: str) -> None:
    trial = judged(result(Reason(code, "something is missing"), verdict=Verdict.INCOMPLETE))
    assert not trial.holds and not trial.generator_limited
    assert trial.why == "something is missing"


def test_a_short_window_alone_does_not_make_a_trial_fail() -> None:
    short = Reason("window-too-short", "short")
    assert judged(result(short, verdict=Verdict.INCOMPLETE)).holds
    late = Reason("sends-late", "late")
    assert judged(result(short, late, verdict=Verdict.INCOMPLETE)).holds
    uneven = Reason("change-point", "the rate changed")
    assert judged(result(short, uneven, verdict=Verdict.INCOMPLETE)).holds
    assert not judged(result(short, Reason("connections-lost", "lost"), verdict=Verdict.INCOMPLETE)).holds


def test_a_thread_without_a_request_is_a_gap_only_where_there_were_enough_for_all() -> None:
    made = result(Reason("flows-not-started", "1 of 2 flows never moved a byte"), verdict=Verdict.INCOMPLETE)
    assert not judged(made).holds
    assert judge_trial(conditions(), made, rate_per_s=19.0, duration_s=1.0, connections=20).holds


def test_an_undetermined_trial_neither_holds_nor_is_the_servers_failure() -> None:
    unknown = Reason("no-generator-figures", "no thread figures")
    trial = judged(result(unknown, verdict=Verdict.UNDETERMINED))
    assert not trial.holds and trial.generator_limited
    assert trial.why == "no thread figures"


def test_requests_that_waited_for_a_connection_are_reported() -> None:
    made = result(latency_p99_us=9000.0)
    note = Reason("connections-busy", "no connection was free when 400 of 10000 requests fell due")
    assert judged(replace(made, validity=Validity(Verdict.VALID, (), (note,)))).connections_busy
    assert not judged(made).connections_busy


def test_other_verdicts_are_no_ones_limit() -> None:
    made = result(Reason("unstable-intervals", "parts differ"), verdict=Verdict.UNSTABLE)
    assert not judged(made).generator_limited
    worse = replace(made, validity=Validity(Verdict.INCOMPLETE, (Reason("window-too-short", "short"),)))
    assert not judged(worse).generator_limited


@pytest.mark.parametrize(("answered", "share"), [(500.0, 0.5), (1100.0, 1.0), (None, 0.0)])
def test_the_share_that_was_answered(answered: float | None, share: float) -> None:
    assert judged(result(requests_per_s=answered)).answered_share == share


@pytest.mark.parametrize(("text", "holds"), [("latency_p99_us < 5000", False), ("latency_p99_us > 1000", True)])
def test_a_lower_bound_does_not_hold_where_it_only_may(text: str, holds: bool) -> None:
    made = result()
    found = judged(replace(made, metrics={**made.metrics, "latency_p99_us": Metric(1200.0, "us", censored=True)}), text)
    assert found.holds == holds
    assert holds or found.why == "latency_p99_us is at least 1200, and may not be < 5000"
