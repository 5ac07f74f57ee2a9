"""Percentiles that targets name: known well enough, unstable, or too short a test to tell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from made_journals import EPOCH_NS, S, counters, finished, flow, histogram, outcome, progress, test_data

from leadline.analysis import TestData, analyse_test
from leadline.analysis.model import Bound, Metric, Reason, TestResult, Verdict
from leadline.analysis.repeats import summarise
from leadline.analysis.scope import judge_figures
from leadline.analysis.targets import judge, parse_targets

P99 = "latency_p99_us"


def answered(
    seconds: int,
    each: int = 2000,
    *,
    wander: float = 0.0,
    spread: float = 0.05,
    seed: int = 1,
    outstanding: Sequence[int] = (),
) -> TestData:
    """An rr test whose latencies are lognormal around 1 ms with a deviation of 5 %; those of the second second
    may be longer, and those of the last one more so."""
    generator = np.random.default_rng(seed)
    data, everything = test_data("rr", duration_ms=seconds * 1000), []
    for second in range(1, seconds + 1):
        level = 1e6 * (1 + wander * {2: 0.5, seconds: 1.0}.get(second, 0.0))
        times_ns = (level * np.exp(spread * generator.standard_normal(each))).astype(int)
        everything += times_ns.tolist()
        units = each * second
        for tenth in range(10):
            done = units - each + each * (tenth + 1) // 10
            row = counters(0, sent_units=done, received_units=done)
            made = [histogram("latency", times_ns.tolist())] if tenth == 9 else []
            t_ns = EPOCH_NS + (second - 1) * S + (tenth + 1) * S // 10
            data.add("client1", progress(t_ns, [row], side="local", histograms=made))
    end_ns = EPOCH_NS + seconds * S
    report = flow(0, EPOCH_NS, end_ns, sent_units=units, received_units=units)
    histograms = [histogram("latency", everything)]
    if outstanding:
        histograms.append(histogram("latency_censored", outstanding))
    data.add("client1", finished(end_ns, outcome([report], histograms=histograms)))
    data.asked = (P99,)
    return data


def reasons(result: TestResult) -> list[tuple[str, tuple[str, ...]]]:
    return [(reason.code, reason.metrics) for reason in result.validity.reasons]


def outcome_of(result: TestResult, target: str) -> str:
    return judge(parse_targets([target], {"t": "rr"})[0], "c01", [result]).outcome


def test_percentile_that_is_known_well_is_valid() -> None:
    found = analyse_test(answered(10))
    assert (found.validity.verdict, reasons(found)) == (Verdict.VALID, [])
    assert outcome_of(found, f"{P99} < 2ms") == "met"


def test_percentile_of_few_scattered_values_is_unstable_if_a_target_names_it() -> None:
    data = answered(10, each=100, spread=0.6)
    found = analyse_test(data)
    assert found.metrics[P99].verdict is Verdict.UNSTABLE
    assert (found.validity.verdict, reasons(found)) == (Verdict.UNSTABLE, [("percentile-uncertain", (P99,))])
    assert "latency_p99_us is uncertain by ±" in found.validity.reasons[0].text
    # The interval decides.
    assert [outcome_of(found, f"{P99} < {limit}") for limit in ("10s", "4ms", "1us")] == [
        "met",
        "undecided",
        "missed",
    ]
    data.asked = ()
    assert analyse_test(data).validity.verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("seconds", "wander", "verdict", "words"),
    [
        (3, 0.0, Verdict.VALID, ""),
        (3, 1.0, Verdict.UNDETERMINED, "in single seconds it lies -"),
        (1, 0.0, Verdict.UNDETERMINED, "the seconds of the test are too few"),
    ],
)
def test_short_test_needs_seconds_that_agree(seconds: int, wander: float, verdict: Verdict, words: str) -> None:
    found = analyse_test(answered(seconds, wander=wander))
    assert found.metrics[P99].verdict is verdict
    assert words in "".join(reason.text for reason in found.validity.reasons)
    # All values lie on one side of it.
    assert outcome_of(found, f"{P99} < 10s") == "met"
    value = found.metrics[P99].value
    assert value is not None and outcome_of(found, f"{P99} < {value * 1.001}") == "undecided"


def values_needed(found: TestResult) -> tuple[str, int, int] | None:
    """What the reason says of the cause, how many values are enough, and in how many seconds."""
    text = found.validity.reasons[0].text
    said = re.search(r"; ([^;]+); about ([\d,]+) values, or (\d+) s, are enough$", text)
    if said is None:
        assert text.endswith("; 20 s or more show how much its values depend on each other")
    return said and (said[1], int(said[2].replace(",", "")), int(said[3]))


def test_reason_says_how_many_values_are_enough() -> None:
    """Lognormal values with a deviation of 60 %, 100 a second: the number that is said mostly is enough."""
    enough = list[bool]()
    for seed in range(16):
        first = analyse_test(answered(10, each=100, spread=0.6, seed=seed))
        needed = None if first.metrics[P99].verdict is Verdict.VALID else values_needed(first)
        if needed is None or needed[2] > 200:
            continue
        cause, values, seconds = needed
        assert cause.startswith("10 of 1,000 values lie beyond it")
        assert values == pytest.approx(100 * seconds, rel=0.1)
        longer = analyse_test(answered(seconds, each=100, spread=0.6, seed=100 + seed))
        enough.append(longer.metrics[P99].verdict is Verdict.VALID)
    assert len(enough) >= 10
    assert sum(enough) >= 0.6 * len(enough), enough


def test_values_that_depend_on_each_other_are_named_as_the_cause() -> None:
    """In one second of ten everything takes twice as long, in another half as long again."""
    [reason] = analyse_test(answered(10, wander=1.0)).validity.reasons
    assert "200 of 20,000 values lie beyond it, and as its seconds differ, all are worth about" in reason.text


def test_reason_of_a_short_test_says_how_long_it_has_to_be() -> None:
    [reason] = analyse_test(answered(3, wander=1.0)).validity.reasons
    assert reason.text.endswith("; 5 s or more show how much its values depend on each other")


def test_uncertain_percentile_behind_late_sends_is_still_an_upper_bound() -> None:
    """Sends were late, so the true p99 is less than measured; and that is less than the longest time of all."""
    against = [
        (Verdict.GENERATOR_LIMITED, Reason("sends-late", "late")),
        (Verdict.UNDETERMINED, Reason("percentile-uncertain", "short", metrics=(P99,))),
    ]
    figure = Metric(9000.0, "us", low=50.0, high=15_000.0)
    judged = judge_figures({P99: figure}, against, (), primary=P99, decisive=(), delivered=None)
    assert judged.metrics[P99].bound is Bound.MOST
    result = replace(analyse_test(answered(1)), metrics=judged.metrics)
    outcomes = [outcome_of(result, f"{P99} < {limit}") for limit in ("1s", "10ms", "1ms")]
    assert outcomes == ["met", "undecided", "undecided"]


def test_short_test_with_few_values_bounds_no_percentile() -> None:
    found = analyse_test(answered(1, each=700))
    assert (found.metrics[P99].low, found.metrics[P99].high) == (None, None)
    assert outcome_of(found, f"{P99} < 10s") == "undecided"
    enough = analyse_test(answered(1, each=800)).metrics[P99]
    assert enough.low is not None and enough.high is not None


def test_percentile_with_too_few_values_above_it_is_undetermined() -> None:
    """300 values bound their 99th percentile from below alone."""
    found = analyse_test(answered(10, each=30, wander=0.5))
    assert found.metrics[P99].verdict is Verdict.UNDETERMINED
    assert found.metrics[P99].low is not None and found.metrics[P99].high is None
    assert outcome_of(found, f"{P99} < 2ms") == "undecided"
    assert outcome_of(found, f"{P99} < 500us") == "missed"


def test_repeats_decide_whether_a_percentile_is_known() -> None:
    """One second each is too short by itself; three that agree are not."""
    results = [analyse_test(answered(1, seed=seed)) for seed in (1, 2, 3)]
    assert {result.metrics[P99].verdict for result in results} == {Verdict.UNDETERMINED}
    found = summarise(results, planned=3, limit=0.1, case="c01", test="t", kind="rr", parameters={}, named=(P99,))
    assert found.metrics[P99].verdict is Verdict.VALID and found.validity.reasons == ()
    two = summarise(results[:2], planned=2, limit=0.1, case="c01", test="t", kind="rr", parameters={}, named=(P99,))
    assert two.metrics[P99].verdict is Verdict.UNDETERMINED


def test_a_few_operations_in_flight_at_the_end_only_widen_the_interval() -> None:
    """20,000 values and 10 requests that had been waiting for 0.5 ms: they may have taken as long as they like."""
    alone, busy = (analyse_test(answered(10, outstanding=ages)).metrics[P99] for ages in ((), [500_000] * 10))
    assert alone.low is not None and alone.high is not None and busy.low is not None and busy.high is not None
    assert busy.unbounded is None
    assert busy.low <= alone.low and alone.high <= busy.high < 1.01 * alone.high


def test_many_that_had_waited_longer_than_any_answer_leave_a_percentile_open_from_above() -> None:
    found = analyse_test(answered(10, outstanding=[5_000_000] * 300)).metrics[P99]
    assert found.low is not None and found.high is None
    assert found.unbounded == "some operations had not ended: longer times are unknown"


def test_longest_time_bounds_a_percentile_beside_many_in_flight_that_are_younger() -> None:
    found = analyse_test(answered(10, outstanding=[500_000] * 300)).metrics
    high, longest = found[P99].high, found["latency_max_us"].value
    assert high is not None and longest is not None and high <= 1.02 * longest
