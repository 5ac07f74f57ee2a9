"""Comparing runs and systems: the word for each figure, what is left out, and what makes two runs incomparable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from made_journals import MadeRun

from leadline.analysis import analyse, result_rows
from leadline.analysis.comparison import ComparedRuns, Side, compare_results, compare_sides, ratio_of_results
from leadline.analysis.model import Bound, Metric, Reason, RunAnalysis, TestResult, TrialResult, Validity, Verdict
from leadline.analysis.stability import CHANGE_POINT, INTERVALS_DISAGREE
from leadline.report.comparisons import notes_of
from leadline.statistics import Comparison
from synthetic import ar1

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


def with_losses(counts: Sequence[float], label: str) -> Side:
    """A run whose repeats lost this many datagrams."""
    results = [replace(a_result("c01", number, count), kind="udp") for number, count in enumerate(counts, 1)]
    found = [replace(one, metrics={"lost": Metric(one.metrics["throughput_bps"].value, "count")}) for one in results]
    trials = [
        TrialResult(f"c01/{one.repeat}", "c01", one.repeat, "done", None, "route", None, None, (one,)) for one in found
    ]
    return Side(label, replace(EMPTY, trials=tuple(trials)), {})


@pytest.mark.parametrize(
    ("baseline", "candidate", "word", "reason"),
    [
        ([0, 0, 0], [0, 0, 0], Comparison.EQUIVALENT, None),
        ([0, 0], [0, 0], Comparison.CANNOT_TELL, "2 repeats are too few: 3 of each are needed"),
        ([0, 0, 0], [0, 0, 3], Comparison.CANNOT_TELL, "the baseline is 0: there is no ratio to it"),
    ],
)
def test_counts_that_are_0_on_both_sides_are_equivalent(
    baseline: list[float], candidate: list[float], word: Comparison, reason: str | None
) -> None:
    [found] = compare_sides(with_losses(baseline, "a"), with_losses(candidate, "b"), metrics=("lost",)).figures
    assert (found.word, found.reason) == (word, reason)
    assert found.ratio == (1.0 if not any(candidate) else None)


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
    assert (
        reason
        == "not valid: 0 repeats of the baseline, 3 compared with it; 2 repeats are too few: 3 of each are needed"
    )


@pytest.mark.parametrize(("uneven", "is_compared"), [(INTERVALS_DISAGREE, True), (CHANGE_POINT, False)])
def test_uneven_repeats_are_compared_where_the_interval_over_the_repeats_answers_it(
    uneven: str, is_compared: bool
) -> None:
    """Three of five repeats are uneven. To leave them out would choose among the repeats; but a rate that moves to
    another level in most of them has no one mean."""
    doubted = run([2 * rate for rate in RATES])
    trials = []
    for number, trial in enumerate(doubted.trials):
        (test,) = trial.tests
        if number < 3:
            reason = Reason(uneven, "uneven", Verdict.UNSTABLE)
            metrics = {
                name: metric.doubted(Verdict.UNSTABLE, uneven, Bound.NONE) for name, metric in test.metrics.items()
            }
            test = replace(test, metrics=metrics, validity=Validity(Verdict.UNSTABLE, (reason,)))
        trials.append(replace(trial, tests=(test,)))
    candidate = Side("b", replace(doubted, trials=tuple(trials)), TESTS)
    word, ratio, reason_text = throughput(compare_sides(side(RATES), candidate))
    if is_compared:
        assert (word, reason_text) == (Comparison.FASTER, None)
        assert ratio == pytest.approx(2.0)
    else:
        assert word is Comparison.CANNOT_TELL
        assert reason_text is not None and reason_text.startswith("not valid: 0 repeats of the baseline, 3 compared")


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


def test_means_of_pairs_are_those_of_the_repeats_that_both_have() -> None:
    values = (1.0, 1.1, 0.9, 5.0)
    baseline = [a_result("c01", repeat, value) for repeat, value in enumerate(values, 1)]
    candidate = [a_result("c02", repeat, 2 * value) for repeat, value in enumerate(values[:3], 1)]
    found = compare_results(baseline, candidate, "throughput_bps")
    assert found is not None
    assert (found.baseline, found.candidate, found.ratio) == pytest.approx((1.0, 2.0, 2.0))
    assert compare_results(baseline, candidate[::-1], "throughput_bps") == found, "pairs share a number"


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


def test_another_link_or_lab_is_no_comparison_and_another_system_is_what_is_compared() -> None:
    """Each difference stands once, however many tests have it. What a plan leaves open is no difference."""
    link, sut = {"rate_bps": 1_000_000_000, "loss": None}, {"kind": "route", "ip": 4}
    case = {"topology": "remote-access", "clients": 1, "sut": sut, "link": link, "lab": {"cpus": None, "idle": None}}
    before = Side("a", run(RATES), TESTS, cases={"c01": {**case, "lab": {}}})
    assert compare_sides(before, Side("b", run(RATES), TESTS, cases={"c01": case})).differences == ()
    other = {
        **case,
        "sut": {"kind": "openvpn", "ip": 4},
        "link": {**link, "rate_bps": 50_000_000},
        "lab": {"cpus": None, "idle": "poll"},
    }
    compared = compare_sides(before, Side("b", run(RATES), TESTS, cases={"c01": other}))
    said = [(one.what, one.baseline, one.candidate, one.blocking) for one in compared.differences]
    assert said == [
        ("lab.idle", "none", "poll", True),
        ("link.rate_bps", "1000000000", "50000000", True),
        ("sut.kind", "route", "openvpn", False),
    ]


def test_tests_of_one_side_alone_are_named() -> None:
    compared = compare_sides(Side("a", run(RATES, n="1"), TESTS), Side("b", run(RATES, n="2"), TESTS))
    assert compared.figures == ()
    assert compared.missing == ("tcp-up (n=1): only in a", "tcp-up (n=2): only in b")


def test_only_figures_with_a_better_way_are_compared_unless_they_are_named() -> None:
    names = [one.metric for one in compare_sides(side(RATES), side(RATES, "b")).figures]
    assert names[0] == "throughput_bps" and "received_bytes" not in names
    named = compare_sides(side(RATES), side(RATES, "b"), metrics=("received_bytes",))
    assert [one.metric for one in named.figures] == ["received_bytes"]


@pytest.mark.parametrize(
    ("kind", "metric", "word"),
    [
        ("rr", "latency_p95_us", Comparison.SLOWER),
        ("tunnel", "connect_p95_ms", Comparison.SLOWER),
        ("scenario", "latency_p99_us{name:login}", Comparison.SLOWER),
        ("scenario", "latency_p42_us{name:login}", Comparison.SLOWER),
        ("scenario", "error_ratio{name:login}", Comparison.SLOWER),
        ("scenario", "requests_per_s{name:login}", Comparison.FASTER),
        ("http", "status_5xx", Comparison.CANNOT_TELL),
        ("tcp", "sender_idle_ratio", Comparison.CANNOT_TELL),
    ],
)
def test_figure_that_grew_has_the_word_of_its_kind(kind: str, metric: str, word: Comparison) -> None:
    def repeats(case: str, value: float) -> list[TestResult]:
        made = [a_result(case, number, value) for number in (1, 2, 3)]
        return [replace(one, kind=kind, metrics={metric: Metric(value, "us")}) for one in made]

    found = compare_results(repeats("c01", 100.0), repeats("c02", 200.0), metric)
    assert found is not None and (found.ratio, found.word) == (2.0, word)
    assert (found.reason is not None) == (word is Comparison.CANNOT_TELL)
    same = compare_results(repeats("c01", 100.0), repeats("c02", 100.0), metric)
    assert same is not None and same.word is Comparison.EQUIVALENT


def noisy_side(
    label: str, factor: float, repeats: int, rows: np.ndarray[tuple[int, int], np.dtype[np.float64]]
) -> Side:
    """A side of many cases, whose repeats have noise around a factor."""
    trials = [
        TrialResult(f"c{case}/{repeat}", f"c{case}", repeat, "done", None, "route", None, None, (result,))
        for case, row in enumerate(rows)
        for repeat, noise in enumerate(row[:repeats].tolist(), 1)
        for result in [a_result(f"c{case}", repeat, 1e9 * factor * noise)]
    ]
    return Side(label, replace(EMPTY, trials=tuple(trials)), {})


def a_result(case: str, repeat: int, value: float) -> TestResult:
    return TestResult(
        case=case,
        repeat=repeat,
        test="tcp-up",
        kind="tcp",
        parameters={"case": case},
        status="done",
        error=None,
        metrics={"throughput_bps": Metric(value, "bit/s")},
        validity=Validity(Verdict.VALID),
        window=None,
        generator=None,
        errors={},
    )


EMPTY = analyse({}, [])
CASES = (pytest.param(200), pytest.param(2000, marks=pytest.mark.full_matrix))


def words_of(
    factor: float, repeats: int, cases: int, margin: float, *, is_interleaved: bool = False
) -> list[Comparison]:
    """The word for each of many pairs of runs whose trials have 2 % noise."""
    rows = 1 + 0.02 * np.random.default_rng(repeats).standard_normal((2, cases, repeats))
    sides = noisy_side("a", 1.0, repeats, rows[0]), noisy_side("b", factor, repeats, rows[1])
    if is_interleaved:
        sides = begun_at(sides[0], 0.0, 20.0), begun_at(sides[1], 10.0, 20.0)
    return [one.word for one in compare_sides(*sides, margin=margin, metrics=("throughput_bps",)).figures]


def most(share: float, cases: int) -> float:
    """The most that a share may be in so few cases: two standard errors above."""
    return share + 2 * math.sqrt(share * (1 - share) / cases)


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("repeats", [3, 5, 10])
def test_two_identical_systems_are_called_faster_or_slower_in_at_most_5_percent(repeats: int, cases: int) -> None:
    words = words_of(1.0, repeats, cases, 0.001)
    wrong = sum(word in (Comparison.FASTER, Comparison.SLOWER) for word in words)
    assert wrong / cases <= most(0.05, cases)


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("margin", [0.02, 0.0])
def test_true_difference_of_5_percent_is_found_in_95_percent_with_10_repeats(margin: float, cases: int) -> None:
    words = words_of(0.95, 10, cases, margin)
    assert words.count(Comparison.SLOWER) / cases >= 0.95
    assert Comparison.FASTER not in words


@pytest.mark.parametrize("cases", CASES)
def test_equivalent_means_within_the_margin(cases: int) -> None:
    """A difference as large as the margin is called equivalent in at most 5 %, a small one nearly always. Of runs of
    which one followed the other the machine may have changed: more of them cannot tell."""
    for is_interleaved, share in ((True, 0.95), (False, 0.75)):
        large, small = (words_of(factor, 10, cases, 0.05, is_interleaved=is_interleaved) for factor in (1.05, 1.01))
        assert large.count(Comparison.EQUIVALENT) / cases <= most(0.05, cases)
        assert small.count(Comparison.EQUIVALENT) / cases >= share


def begun_at(side: Side, first_s: float, every_s: float, **circumstances: float) -> Side:
    """The same run with the times at which its tests began, and what differed between them."""
    trials = [
        replace(
            trial,
            tests=tuple(
                replace(one, started_at_s=first_s + every_s * one.repeat, circumstances=circumstances)
                for one in trial.tests
            ),
        )
        for trial in side.analysis.trials
    ]
    return replace(side, analysis=replace(side.analysis, trials=tuple(trials)))


def slow_noise(cases: int, repeats: int, seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Repeats in a row of one machine, 2 % apart; half of their variance changes slowly."""
    chance = np.random.default_rng(seed)
    slow = ar1(0.8, cases, repeats, chance)
    return np.asarray(1 + 0.02 * (slow + chance.standard_normal((cases, repeats))) / math.sqrt(2))


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("repeats", [3, 5])
def test_two_runs_of_one_system_on_a_machine_that_changes_slowly_are_called_different_in_5_percent(
    repeats: int, cases: int
) -> None:
    rows = slow_noise(cases, 2 * repeats, 7)
    sides = noisy_side("a", 1.0, repeats, rows), noisy_side("b", 1.0, repeats, rows[:, repeats:])
    compared = compare_sides(*sides, margin=0.001, metrics=("throughput_bps",))
    wrong = sum(one.word in (Comparison.FASTER, Comparison.SLOWER) for one in compared.figures)
    assert wrong / cases <= most(0.05, cases)


def test_runs_of_which_one_followed_the_other_are_said_not_to_be_interleaved() -> None:
    sides = side(RATES), side(RATES, "b")
    first, second = begun_at(sides[0], 0.0, 20.0), begun_at(sides[1], 7200.0, 20.0)
    apart = compare_sides(first, second)
    assert apart.not_interleaved is not None
    assert apart.not_interleaved.startswith("not interleaved: b began 1 h 58 min after the last test of a: the interv")
    assert apart.not_interleaved in list(notes_of(apart))
    backwards = compare_sides(second, first).not_interleaved
    assert backwards is not None and "b began 1 h 58 min after the last test of a" in backwards
    in_turn = compare_sides(first, begun_at(sides[1], 10.0, 20.0))
    assert in_turn.not_interleaved is None
    assert width(apart) > 1.3 * width(in_turn)


def width(compared: ComparedRuns) -> float:
    (found,) = (one for one in compared.figures if one.metric == "throughput_bps")
    assert found.low is not None and found.high is not None
    return found.high - found.low


def test_load_that_changed_between_two_runs_explains_as_much_of_a_difference() -> None:
    """Other work takes a tenth of the machine from the second run, which is slower by 8 %."""
    slower = [0.92 * rate for rate in RATES]
    quiet = begun_at(side(RATES), 0.0, 20.0, other_work=0.02, stolen=0.0)
    same = compare_sides(quiet, begun_at(side(slower, "b"), 500.0, 20.0, other_work=0.02, stolen=0.0))
    assert throughput(same)[0] is Comparison.SLOWER
    busy = compare_sides(quiet, begun_at(side(slower, "b"), 500.0, 20.0, other_work=0.1, stolen=0.02))
    assert throughput(busy)[0] is Comparison.CANNOT_TELL
    assert busy.not_interleaved is not None and "other work differed by 10.0 % of its CPUs" in busy.not_interleaved


def test_plan_with_a_baseline_puts_ratios_into_summaries_and_rows() -> None:
    made = MadeRun()
    made.begin()
    for number in range(1, 6):
        for case, system, factor in (("c01", "route", 1.0), ("c02", "openvpn", 0.8)):
            label = f"{case}/{number}"
            made.begin_trial(label, sut=system)
            made.test(label, factor * 1e6 * (1 + 0.001 * (number % 3)))
            made.end_trial(label)
    made.end()
    cases = [
        {"id": "c01", "parameters": {"sut": "route"}, "tests": [], "baseline": None},
        {"id": "c02", "parameters": {"sut": "openvpn"}, "tests": [], "baseline": "c01"},
    ]
    analysis = analyse({"cases": cases}, made.entries)
    base, other = analysis.summaries
    assert (analysis.baselines, base.baseline, base.ratios, other.baseline) == ({"c02": "c01"}, None, {}, "c01")
    ratio = other.ratios["throughput_bps"]
    assert ratio.word is Comparison.SLOWER
    assert ratio.value == pytest.approx(0.8)
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low <= 0.8 <= ratio.high
    [row] = [row for row in result_rows(analysis) if row["ratio"] is not None and row["metric"] == "throughput_bps"]
    assert (row["case"], row["baseline"], row["comparison"]) == ("c02", "c01", "slower")


def test_margin_of_the_plan_decides_what_is_equivalent() -> None:
    made = MadeRun()
    made.begin()
    for number in range(1, 6):
        for case, factor in (("c01", 1.0), ("c02", 0.8)):
            made.begin_trial(f"{case}/{number}", sut=case)
            made.test(f"{case}/{number}", factor * 1e6 * (1 + 0.001 * (number % 3)))
            made.end_trial(f"{case}/{number}")
    made.end()
    manifest = {"cases": [{"id": "c01"}, {"id": "c02", "baseline": "c01"}], "plan": {"limits": {"margin": "40%"}}}
    _, other = analyse(manifest, made.entries).summaries
    assert other.ratios["throughput_bps"].word is Comparison.EQUIVALENT


def searches(case: str, low: float, high: float | None, repeats: int = 3) -> list[TestResult]:
    """Repeats of a search that found these two rates, each with the throughput of the load at the lower one."""
    metrics = {
        "found_rate_per_s": Metric(low, "1/s", low, high),
        "found_rate_bps": Metric(8000 * low, "bit/s", 8000 * low, None if high is None else 8000 * high),
        "throughput_bps": Metric(8000 * low, "bit/s"),
        "lost_ratio": Metric(0.001, "ratio"),
    }
    found = (a_result(case, number, 0.0) for number in range(1, repeats + 1))
    return [replace(one, kind="udp", test="ndr", metrics=metrics) for one in found]


@pytest.mark.parametrize("metric", ["found_rate_per_s", "found_rate_bps", "throughput_bps"])
@pytest.mark.parametrize(
    ("baseline", "candidate", "word"),
    [
        ((1000.0, 1110.0), (1080.0, 1190.0), Comparison.CANNOT_TELL),
        ((1000.0, 1110.0), (1200.0, 1320.0), Comparison.FASTER),
        ((1000.0, 1020.0), (1000.0, 1020.0), Comparison.EQUIVALENT),
    ],
)
def test_ratio_of_found_rates_has_what_each_search_left_open(
    metric: str, baseline: tuple[float, float], candidate: tuple[float, float], word: Comparison
) -> None:
    sides = searches("c01", *baseline), searches("c02", *candidate)
    found = compare_results(*sides, metric)
    assert found is not None
    assert found.word is word
    assert (found.ratio, found.low, found.high) == pytest.approx(
        (candidate[0] / baseline[0], candidate[0] / baseline[1], candidate[1] / baseline[0])
    )
    if word is Comparison.CANNOT_TELL:
        assert found.reason is not None and found.reason.endswith("or search with a smaller width")
    estimate, _ = ratio_of_results(*sides, metric)
    assert estimate is not None and (estimate.low, estimate.high) == (found.low, found.high)


def test_searches_of_which_some_found_no_rate_have_no_ratio() -> None:
    baseline, candidate = searches("c01", 2000.0, 2040.0, 6), searches("c02", 2000.0, 2040.0, 6)
    none = Metric(None, "1/s", None, 100.0)
    candidate[3:] = [replace(one, metrics={"found_rate_per_s": none}) for one in candidate[3:]]
    found = compare_results(baseline, candidate, "found_rate_per_s")
    assert found is not None
    assert (found.word, found.ratio, found.candidate_bound) == (Comparison.CANNOT_TELL, None, Bound.MOST)
    assert found.reason is not None and "only a bound is known of the other side (at most)" in found.reason


def test_two_runs_of_searches_are_compared_with_what_each_left_open() -> None:
    runs = []
    for label, rates in (("a", (1000.0, 1110.0)), ("b", (1080.0, 1190.0))):
        tests = searches("c01", *rates)
        trials = [
            TrialResult(f"c01/{n}", "c01", n, "done", None, "route", None, None, (one,))
            for n, one in enumerate(tests, 1)
        ]
        runs.append(Side(label, replace(EMPTY, trials=tuple(trials)), {}))
    words = {one.metric: one.word for one in compare_sides(*runs).figures}
    assert words["found_rate_bps"] is words["throughput_bps"] is Comparison.CANNOT_TELL
    assert words["lost_ratio"] is Comparison.EQUIVALENT


def test_ratio_to_a_search_without_an_upper_bound_has_no_interval() -> None:
    found = compare_results(searches("c01", 1000.0, None), searches("c02", 1200.0, 1220.0), "found_rate_per_s")
    assert found is not None
    assert (found.ratio, found.low, found.word) == (1.2, None, Comparison.CANNOT_TELL)
    assert found.reason == "a search did not bound its rate from above"


def with_latencies(case: str, *latencies: Metric) -> list[TestResult]:
    """Repeats of an http load with these latencies, all of them valid."""
    made = (a_result(case, number, 0.0) for number in range(1, len(latencies) + 1))
    return [
        replace(one, kind="http", metrics={"latency_p99_us": latency})
        for one, latency in zip(made, latencies, strict=True)
    ]


def at_least(value: float) -> Metric:
    """A latency that is only known as a lower bound, as operations were outstanding at the end."""
    return Metric(value, "us", censored=True)


EXACT = tuple(Metric(value, "us") for value in (1.90e6, 1.91e6, 1.89e6))
LEAST = tuple(replace(one, censored=True) for one in EXACT)
MOST = tuple(replace(one, bound=Bound.MOST) for one in EXACT)


@pytest.mark.parametrize(
    ("baseline", "candidate", "bounds", "of"),
    [
        (LEAST, LEAST, ("at least", "at least"), "the baseline (at least) and of the other side (at least)"),
        (LEAST, EXACT, ("at least", None), "the baseline (at least)"),
        (EXACT, (*EXACT[:2], at_least(1.9e6)), (None, "at least"), "the other side (at least)"),
        (EXACT, MOST, (None, "at most"), "the other side (at most)"),
        (EXACT, (LEAST[0], *MOST[1:]), (None, "not known"), "the other side (not known)"),
    ],
)
def test_bounds_have_no_ratio(
    baseline: Sequence[Metric], candidate: Sequence[Metric], bounds: tuple[str | None, str | None], of: str
) -> None:
    """Two loads at 1000/s of servers that answer in 100 and 200 ms: both have a backlog, so their latencies are at
    least about the same, and how large they are is not known."""
    sides = with_latencies("c01", *baseline), with_latencies("c02", *candidate)
    found = compare_results(*sides, "latency_p99_us")
    assert found is not None
    assert (found.ratio, found.low, found.high, found.word) == (None, None, None, Comparison.CANNOT_TELL)
    assert found.reason == f"only a bound is known of {of}: a bound has no ratio"
    assert found.baseline == pytest.approx(1.9e6)
    assert (found.baseline_bound, found.candidate_bound) == bounds
    assert ratio_of_results(*sides, "latency_p99_us") == (None, found.reason)
