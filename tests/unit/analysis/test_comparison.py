"""Comparing runs and systems: the word for each figure, what is left out, and what makes two runs incomparable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from made_journals import MadeRun

from leadline.analysis import analyse
from leadline.analysis.comparison import ComparedRuns, Side, compare_sides
from leadline.analysis.model import Bound, RunAnalysis, Verdict
from leadline.statistics import Comparison

RATES = (1.00e6, 1.01e6, 0.99e6, 1.005e6, 0.995e6)
TESTS = {("c01", "tcp-up"): {"kind": "tcp", "duration_ms": 10_000}}


def run(rates: Sequence[float], **parameters: str) -> RunAnalysis:
    """A run of one case, a repeat for each rate."""
    made = MadeRun()
    made.begin()
    for number, rate in enumerate(rates, 1):
        made.begin_trial(f"c01/{number}", **parameters)
        made.test(f"c01/{number}", rate)
        made.end_trial(f"c01/{number}")
    made.end()
    return analyse({}, made.entries)


def side(rates: Sequence[float], label: str = "a") -> Side:
    return Side(label, run(rates), TESTS)


def throughput(compared: ComparedRuns) -> tuple[Comparison, float | None, str | None]:
    (found,) = (one for one in compared.figures if one.metric == "throughput_bps")
    return found.word, found.ratio, found.reason


@pytest.mark.parametrize(
    ("factor", "word"),
    [(1.0, Comparison.EQUIVALENT), (1.2, Comparison.FASTER), (0.8, Comparison.SLOWER), (1.055, Comparison.CANNOT_TELL)],
)
def test_two_runs_and_the_word_for_their_ratio(factor: float, word: Comparison) -> None:
    found, ratio, reason = throughput(compare_sides(side(RATES), side([factor * rate for rate in RATES], "b")))
    if word is Comparison.CANNOT_TELL:
        assert found in (Comparison.FASTER, Comparison.CANNOT_TELL)
    else:
        assert (found, reason) == (word, None)
    assert ratio == pytest.approx(factor)


def test_a_difference_within_the_margin_is_none() -> None:
    faster = side([1.03 * rate for rate in RATES], "b")
    assert throughput(compare_sides(side(RATES), faster))[0] is Comparison.EQUIVALENT
    assert throughput(compare_sides(side(RATES), faster, margin=0.01))[0] is Comparison.FASTER


def test_two_repeats_cannot_tell() -> None:
    word, ratio, reason = throughput(compare_sides(side(RATES[:2]), side(RATES[:2], "b")))
    assert (word, ratio) == (Comparison.CANNOT_TELL, 1.0)
    assert reason == "2 repeats are too few: 3 of each are needed"


def test_repeats_that_are_not_valid_are_left_out_and_counted() -> None:
    limited = run([2 * rate for rate in RATES])
    trials = []
    for number, trial in enumerate(limited.trials):
        (test,) = trial.tests
        metrics = {
            name: metric.doubted(Verdict.GENERATOR_LIMITED, "thread-saturated", Bound.LEAST) if number < 3 else metric
            for name, metric in test.metrics.items()
        }
        trials.append(replace(trial, tests=(replace(test, metrics=metrics),)))
    doubtful = Side("b", replace(limited, trials=tuple(trials)), TESTS)
    word, _, reason = throughput(compare_sides(side(RATES), doubtful))
    assert word is Comparison.CANNOT_TELL
    assert reason == "0 and 3 repeats are not valid; 2 repeats are too few: 3 of each are needed"


def test_systems_of_one_run_are_compared_as_pairs() -> None:
    """A drift of all trials by 20 % hides nothing between trials that were measured in turn."""
    made = MadeRun()
    made.begin()
    for number in range(1, 9):
        for case, system, factor in (("c01", "route", 1.0), ("c02", "openvpn", 0.9)):
            label = f"{case}/{number}"
            made.begin_trial(label, sut=system, clients=5)
            made.test(label, factor * 1e6 * (1 + number / 40) * (1 + 0.001 * (number % 3)))
            made.end_trial(label)
    made.end()
    analysis = analyse({}, made.entries)
    first, second = (Side(name, analysis, TESTS, ("sut", name)) for name in ("route", "openvpn"))
    compared = compare_sides(first, second)
    (found,) = (one for one in compared.figures if one.metric == "throughput_bps")
    assert (found.word, found.parameters) == (Comparison.SLOWER, {"clients": "5"})
    assert found.low is not None and found.high is not None
    assert found.low < 0.9001 and found.high > 0.8999 and found.high - found.low < 0.01
    assert compared.differences == ()


def test_other_hardware_and_other_loads_are_no_comparison() -> None:
    other = run(RATES)
    hosts = {name: {**facts, "cpus": 64, "kernel": "6.1"} for name, facts in other.hosts.items()}
    longer = {("c01", "tcp-up"): {"kind": "tcp", "duration_ms": 20_000}}
    compared = compare_sides(side(RATES), Side("b", replace(other, hosts=hosts), longer))
    said = [(one.what, one.baseline, one.candidate, one.blocking) for one in compared.differences]
    assert said == [
        ("number of CPUs", "2", "64", True),
        ("kernel", "6.18", "6.1", False),
        ("tcp-up: duration_ms", "10000", "20000", True),
    ]
    assert [one.what for one in compared.blocking] == ["number of CPUs", "tcp-up: duration_ms"]


def test_tests_of_one_side_alone_are_named() -> None:
    compared = compare_sides(Side("a", run(RATES, n="1"), TESTS), Side("b", run(RATES, n="2"), TESTS))
    assert compared.figures == ()
    assert compared.missing == ("tcp-up (n=1): only in a", "tcp-up (n=2): only in b")


def test_only_figures_with_a_better_way_are_compared_unless_they_are_named() -> None:
    names = [one.metric for one in compare_sides(side(RATES), side(RATES, "b")).figures]
    assert names[0] == "throughput_bps" and "received_bytes" not in names
    named = compare_sides(side(RATES), side(RATES, "b"), metrics=("received_bytes",))
    assert [one.metric for one in named.figures] == ["received_bytes"]
