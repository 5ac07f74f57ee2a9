"""Histories over runs: a planted regression is found at its place, and what is not comparable or not valid is apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from leadline.analysis import analyse
from leadline.analysis.model import Bound, Metric, Summary, Validity, Verdict
from leadline.analysis.repeats import mean_with_interval
from leadline.analysis.trend import LEAST_RUNS, History, RecordedRun, Shift, Trend, recorded_run, trend_of
from leadline.report.trends import place_line
from leadline.statistics import slow_loss

MACHINE = (("CPUs", "2"), ("kernel", "6.18"))
LOAD = (("duration_ms", "10000"),)
TESTS = {((), "tcp-up"): LOAD}


def summary(case: str, metrics: Mapping[str, Metric], parameters: Mapping[str, Any]) -> Summary:
    return Summary(case, "tcp-up", "tcp", dict(parameters), 1, 0, dict(metrics), Validity(Verdict.VALID))


def night(number: int, summaries: Sequence[Summary], **changes: Any) -> RecordedRun:
    moment = datetime(2026, 1, 1, 2, tzinfo=UTC) + timedelta(days=number)
    facts: dict[str, Any] = {
        "run": f"night-{number:02}",
        "plan": "nightly",
        "started_at": moment.isoformat(),
        "machine": MACHINE,
        "software": (("Leadline", "0.1.0"),),
        "systems": {},
        "loads": {(one.case, one.test): LOAD for one in summaries},
        "tests": TESTS,
        "summaries": tuple(summaries),
    }
    return RecordedRun(**{**facts, **changes})


def nights(values: Sequence[float], metric: str = "throughput_bps", **changes: Any) -> list[RecordedRun]:
    """A run for each value of one figure."""
    unit = "bit/s" if metric.endswith("_bps") else ""
    return [
        night(number, [summary("c01", {metric: Metric(value, unit)}, {})], **changes)
        for number, value in enumerate(values)
    ]


def noisy(number: int, seed: int = 1, deviation: float = 0.02) -> list[float]:
    values: list[float] = (1e9 * (1 + deviation * np.random.default_rng(seed).standard_normal(number))).tolist()
    return values


def only_history(found: Trend) -> History:
    (history,) = found.histories
    return history


def many_histories(runs: int, repeats: int, seed: int, number: int, factor: float = 1.0) -> list[RecordedRun]:
    """Nights of many cases, whose trials have 2 % noise; from night 30 on all are slower by a factor."""
    rows = 1e9 * (1 + 0.02 * np.random.default_rng(seed).standard_normal((runs, number, repeats)))
    rows[30:] *= factor
    return [
        night(
            index,
            [
                summary(
                    f"c{case:03}",
                    {"throughput_bps": mean_with_interval([Metric(value, "bit/s") for value in values.tolist()])},
                    {"case": case},
                )
                for case, values in enumerate(cases)
            ],
        )
        for index, cases in enumerate(rows)
    ]


def share(found: Sequence[bool]) -> float:
    return sum(found) / len(found)


@pytest.mark.parametrize("repeats", [pytest.param(1, marks=pytest.mark.full_matrix), 3])
def test_regression_of_5_percent_is_found_within_two_runs_of_its_place_and_nothing_else(repeats: int) -> None:
    histories = trend_of(many_histories(60, repeats, 1, 100, 0.95)).histories
    assert len(histories) == 100
    places = [
        [int(change.run.removeprefix("night-")) for change in history.changes if change.shift is Shift.REGRESSION]
        for history in histories
    ]
    assert share([any(abs(place - 30) <= 2 for place in one) for one in places]) >= 0.95
    others = [
        [change for change in history.changes if abs(int(change.run.removeprefix("night-")) - 30) > 2]
        for history in histories
    ]
    assert share([not one for one in others]) >= 0.95


def test_new_regression_is_reported_after_two_nights_of_three_repeats() -> None:
    """The mean of three repeats has less noise. With one value a night three in ten are, and more would cost false
    alarms: see the limit below."""
    found = trend_of(many_histories(32, 3, 2, 1000, 0.95))
    reported = {id(history) for history, _ in found.of_shift(Shift.REGRESSION, is_new=True)}
    assert len(reported) / 1000 >= 0.95
    alone = trend_of(many_histories(32, 1, 2, 100, 0.95))
    assert 15 <= len(alone.of_shift(Shift.REGRESSION, is_new=True)) <= 50


NOISE_OF_ONE, NOISE_OF_THREE = 0.02, 0.02 / 3**0.5


def found_by_one_who_knows(shift: float, nights_after: int, most_nights: int, seed: int = 8) -> float:
    """The share of regressions that are found this many nights later by a test that knows the level and the noise: the
    means of the newest two to `most_nights` nights, with the bound that 95 % of steady histories stay below in each
    night from the tenth to the sixtieth. `shift` is in standard deviations of a night."""
    steady = np.random.default_rng(seed).standard_normal((10_000, 60))

    def clearest(rows: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
        sums = np.cumsum(np.pad(rows, ((0, 0), (1, 0))), axis=1)
        of_each = [(sums[:, 10:] - sums[:, 10 - k : -k]) / k**0.5 for k in range(2, most_nights + 1)]
        return np.asarray(np.max(of_each, axis=0))

    bound = np.quantile(clearest(steady).max(axis=1), 0.95)
    shifted = steady + shift * (np.arange(60) >= 30)
    return float(np.mean(clearest(shifted)[:, 30 + nights_after - 10] > bound))


def test_no_test_finds_a_regression_of_2_and_a_half_deviations_after_two_nights_in_95_percent() -> None:
    """Not even one that knows the level and the noise: a regression of 5 % with one trial of 2 % noise a night. With
    three trials a night it does."""
    alone = [found_by_one_who_knows(0.05 / NOISE_OF_ONE, 2, most) for most in (2, 5, 10)]
    assert alone == pytest.approx([0.68, 0.63, 0.60], abs=0.02)
    assert found_by_one_who_knows(0.05 / NOISE_OF_THREE, 2, 10) >= 0.99
    assert found_by_one_who_knows(0.05 / NOISE_OF_ONE, 3, 10) < 0.9 < found_by_one_who_knows(0.05 / NOISE_OF_ONE, 4, 10)


@pytest.mark.parametrize(
    ("deviations", "needed", "least"),
    [
        (3.5, 3, 2),
        *(
            pytest.param(*sizes, marks=pytest.mark.full_matrix)
            for sizes in ((2.5, 7, 4), (3.0, 4, 3), (4.0, 3, 2), (5.0, 2, 2))
        ),
    ],
)
def test_nights_that_nearly_all_regressions_of_a_size_need(deviations: float, needed: int, least: int) -> None:
    """Beside those that a test needs which knows the level and the noise."""
    found = trend_of(many_histories(30 + needed, 1, 9, 300, 1 - deviations * NOISE_OF_ONE))
    assert len({id(history) for history, _ in found.of_shift(Shift.REGRESSION, is_new=True)}) / 300 >= 0.94
    shares = [found_by_one_who_knows(deviations, nights, 10) for nights in range(2, least + 1)]
    assert [share >= 0.945 for share in shares] == [False] * (least - 2) + [True]


def test_steady_histories_raise_no_alarm() -> None:
    found = trend_of(many_histories(60, 3, 3, 150))
    assert len({id(history) for history, _ in found.of_shift(Shift.REGRESSION)}) <= 6


HISTORIES = (pytest.param(25), pytest.param(100, marks=pytest.mark.full_matrix))


def drifting(number: int, seed: int, noise: float, factor: float) -> list[RecordedRun]:
    """Sixty nights of many cases, whose figure changes by a factor in each."""
    rows = 1e9 * (1 + noise * np.random.default_rng(seed).standard_normal((60, number)))
    rows *= factor ** np.arange(60)[:, np.newaxis]
    return [
        night(
            index,
            [
                summary(f"c{case:03}", {"throughput_bps": Metric(value, "bit/s")}, {"case": case})
                for case, value in enumerate(row.tolist())
            ],
        )
        for index, row in enumerate(rows)
    ]


def share_with_alarm(runs: Sequence[RecordedRun]) -> float:
    found = trend_of(runs)
    return len({id(history) for history, _ in found.of_shift(Shift.REGRESSION, is_new=True)}) / len(found.histories)


@pytest.mark.parametrize("number", HISTORIES)
@pytest.mark.parametrize(
    "noise", [0.02, *(pytest.param(one, marks=pytest.mark.full_matrix) for one in (0.003, 0.005, 0.01))]
)
def test_loss_of_a_thousandth_a_run_raises_an_alarm(noise: float, number: int) -> None:
    """No level differs from the one before it by much, but the newest from the best one."""
    assert share_with_alarm(drifting(number, 11, noise, 0.999)) >= 0.9


@pytest.mark.parametrize("number", HISTORIES)
@pytest.mark.parametrize("noise", [pytest.param(0.005, marks=pytest.mark.full_matrix), 0.02])
def test_steady_and_improving_histories_raise_no_alarm_in_the_end(noise: float, number: int) -> None:
    assert share_with_alarm(drifting(number, 12, noise, 1.0)) <= 0.05
    assert share_with_alarm(drifting(number, 13, noise, 1.001)) <= 0.05


def test_slow_loss_has_its_best_level_and_an_interval() -> None:
    values = [1e9 * 0.999**number * (1 + 0.001 * (-1) ** number) for number in range(60)]
    found = trend_of(nights(values))
    ((history, change),) = found.of_shift(Shift.REGRESSION, is_new=True)
    assert change.best is not None and change.low is not None and change.high is not None
    assert change.best.first_run == "night-00" and change.before == pytest.approx(change.best.mean)
    assert (change.run, change.runs_since, change.probability) == ("night-50", 10, None)
    truth = np.mean(values[50:]) - np.mean(values[: change.best.runs])
    assert change.low < truth < change.high < 0
    assert all(one.shift is Shift.SMALL for one in history.changes[:-1])
    assert place_line(change).startswith("little by little, from the best level, night-00 to night-")


def test_line_shows_a_slow_loss_that_noise_hides() -> None:
    """A thousandth in each of 60 runs beside noise of 3 %: half of that loss is hardly a level of its own."""
    found = [slow_loss(one, (), 0.02, higher_is_better=True) for one in hidden_losses(200, 0.001)]
    assert share([one is not None for one in found]) >= 0.9
    contained = [one.low < -0.05 < one.high < 0 for one in found if one is not None]
    assert share(contained) >= 0.95
    assert share([slow_loss(one, (), 0.02, higher_is_better=True) is None for one in hidden_losses(200, 0.0)]) >= 0.97
    (growing,) = hidden_losses(1, -0.001)
    loss, mirrored = (slow_loss(sign * growing, (), 0.02, higher_is_better=False) for sign in (1, -1))
    assert loss is not None and 0 < loss.low < loss.after - loss.before < loss.high and mirrored is None
    assert slow_loss(growing[:29], (), 0.02, higher_is_better=False) is None


def hidden_losses(number: int, loss: float) -> list[np.ndarray]:
    chance = np.random.default_rng(3)
    return [1 - loss * np.arange(60) + 0.03 * chance.standard_normal(60) for _ in range(number)]


def test_slow_rise_of_a_latency_is_a_loss() -> None:
    values = [1000.0 * 1.001**number * (1 + 0.001 * (-1) ** number) for number in range(60)]
    found = trend_of(nights(values, "rtt_mean_us"), metrics=("rtt_mean_us",))
    ((_, change),) = found.of_shift(Shift.REGRESSION, is_new=True)
    assert change.low is not None and 0 < change.low < change.after - change.before


def test_sudden_loss_is_no_slow_one_when_it_is_old() -> None:
    """Its level is the normal one since."""
    values = [1e9 * (1 + 0.001 * (-1) ** number) for number in range(60)]
    fallen = values[:30] + [0.95 * value for value in values[30:]]
    assert trend_of(nights(fallen)).of_shift(Shift.REGRESSION, is_new=True) == ()


def test_place_levels_and_what_differs_at_a_shift() -> None:
    runs = nights([1e9 + number % 2 for number in range(20)])
    later = [
        night(20 + number, [summary("c01", {"throughput_bps": Metric(8e8 + number % 2, "bit/s")}, {})],
              software=(("Leadline", "0.2.0"),), systems={"c01": "OpenVPN 2.7"})
        for number in range(12)
    ]  # fmt: skip
    history = only_history(trend_of([*later, *runs]))
    (change,) = history.changes
    assert (change.shift, change.run, change.run_before) == (Shift.REGRESSION, "night-20", "night-19")
    assert change.started_at.startswith("2026-01-21") and change.runs_since == 12
    assert change.differences == ("Leadline: 0.1.0 -> 0.2.0", "system under test: none -> OpenVPN 2.7")
    assert change.ratio == pytest.approx(0.8)
    assert [(level.first_run, level.runs) for level in history.levels] == [("night-00", 20), ("night-20", 12)]


@pytest.mark.parametrize(("newest", "is_new"), [(10, False), (12, True)])
def test_regression_is_new_while_its_first_run_is_among_the_newest(newest: int, is_new: bool) -> None:
    runs = nights([1e9 + number % 3 for number in range(20)] + [8e8 + number % 3 for number in range(12)])
    found = trend_of(runs, newest=newest)
    assert len(found.of_shift(Shift.REGRESSION)) == 1
    assert bool(found.of_shift(Shift.REGRESSION, is_new=True)) is is_new


@pytest.mark.parametrize(
    ("metric", "factor", "shift"),
    [
        ("throughput_bps", 0.9, Shift.REGRESSION),
        ("throughput_bps", 1.1, Shift.IMPROVEMENT),
        ("rtt_mean_us", 1.1, Shift.REGRESSION),
        ("rtt_mean_us", 0.9, Shift.IMPROVEMENT),
        ("throughput_bps", 0.985, Shift.SMALL),
        ("gateway_cpu_percent", 1.1, Shift.REGRESSION),
        ("sent_bytes", 0.5, Shift.NEUTRAL),
    ],
)
def test_sort_of_shift_follows_the_better_way_and_the_margin(metric: str, factor: float, shift: Shift) -> None:
    values = noisy(40, deviation=0.001)
    found = trend_of(nights(values[:20] + [factor * one for one in values[20:]], metric), metrics=(metric,))
    (change,) = only_history(found).changes
    assert change.shift is shift
    alarms = found.of_shift(Shift.REGRESSION)
    assert bool(alarms) is (shift is Shift.REGRESSION)


def test_losses_that_begin_at_zero_are_a_regression() -> None:
    runs = nights([0.0] * 20 + [0.01] * 10, "lost_ratio")
    runs = [
        night(n, [Summary("c01", "udp", "udp", {}, 1, 0, run.summaries[0].metrics, Validity(Verdict.VALID))])
        for n, run in enumerate(runs)
    ]
    found = trend_of(runs, metrics=("lost_ratio",))
    ((_, change),) = found.of_shift(Shift.REGRESSION)
    assert change.ratio is None


def test_figures_that_are_not_valid_are_kept_but_raise_no_alarm() -> None:
    disturbed = [
        night(20 + number, [summary("c01", {"throughput_bps": Metric(5e8, "bit/s", verdict=Verdict.DISTURBED)}, {})])
        for number in range(10)
    ]
    history = only_history(trend_of([*nights(noisy(20)), *disturbed]))
    assert len(history.points) == 30 and history.changes == ()
    assert {point.verdict for point in history.points[20:]} == {Verdict.DISTURBED}
    assert sum(level.runs for level in history.levels) == 20


def bounded(value: float, bound: Bound | None = None) -> Metric:
    """A valid figure of which only a bound is known."""
    return Metric(value, "us", censored=bound is None, bound=bound)


@pytest.mark.parametrize("bound", [None, Bound.MOST])
def test_bounds_are_kept_but_raise_no_alarm(bound: Bound | None) -> None:
    """Latencies of an overloaded server are at least so much, before and after it became slower."""
    overloaded = [
        night(number, [summary("c01", {"rtt_mean_us": bounded(1e6 if number < 20 else 2e6, bound)}, {})])
        for number in range(30)
    ]
    found = trend_of(overloaded)
    history = only_history(found)
    assert (len(history.points), history.changes, found.stale) == (30, (), ())
    assert history.reason == "0 of 30 runs are valid, 30 have only a bound: 10 are needed"
    assert {point.bound for point in history.points} == {bound or "at least"}


def failed_nights(numbers: Sequence[int], **changes: Any) -> list[RecordedRun]:
    """Runs whose test has no figure."""
    return [night(number, [summary("c01", {}, {})], **changes) for number in numbers]


@pytest.mark.parametrize(
    ("later", "runs"),
    [
        (failed_nights(range(20, 30)), 10),
        ([night(number, []) for number in range(20, 30)], 10),
        ([night(n, [summary("c01", {"throughput_bps": bounded(1e9)}, {})]) for n in range(20, 32)], 12),
        (failed_nights(range(20, 30), machine=()), 10),
    ],
    ids=["failed", "never began", "bounds", "no host"],
)
def test_figure_that_no_newest_run_has_is_silent(later: list[RecordedRun], runs: int) -> None:
    (one,) = trend_of([*nights(noisy(20)), *later]).silent
    assert (one.name, one.metric, one.run, one.runs) == ("tcp-up", "throughput_bps", "night-19", runs)


@pytest.mark.parametrize(
    ("missing", "newest", "silent"), [(0, 10, False), (1, 10, False), (9, 10, False), (3, 3, True)]
)
def test_figure_that_some_newest_runs_lack_is_stale(missing: int, newest: int, silent: bool) -> None:
    found = trend_of([*nights(noisy(20)), *failed_nights(range(20, 20 + missing))], newest=newest)
    assert [one.runs for one in found.stale] == ([missing] if missing else [])
    assert bool(found.silent) is silent


def test_only_runs_whose_plan_has_the_test_make_a_figure_stale() -> None:
    without = [night(number, [], tests={}) for number in range(20, 32)]
    assert trend_of([*nights(noisy(20)), *without]).stale == ()
    kernel = nights(noisy(32), machine=(("CPUs", "2"), ("kernel", "6.19")))[20:]
    assert trend_of([*nights(noisy(20)), *kernel]).stale == ()
    load = (("duration_ms", "20000"),)
    other = nights(noisy(32), loads={("c01", "tcp-up"): load}, tests={((), "tcp-up"): load})[20:]
    assert trend_of([*nights(noisy(20)), *other]).stale == ()
    few = [*nights(noisy(9)), *failed_nights(range(9, 30))]
    assert trend_of(few).stale == () and only_history(trend_of(few)).reason == "9 of 30 runs are valid: 10 are needed"


def test_failing_machine_is_not_hidden_by_another_one() -> None:
    other = (("CPUs", "4"), ("kernel", "6.18"))
    healthy = [replace(run, run=f"{run.run}-other", machine=other) for run in nights(noisy(32))]
    found = trend_of([*nights(noisy(20)), *failed_nights(range(20, 32)), *healthy])
    assert [one.run for one in found.silent] == ["night-19"]
    after = failed_nights(range(20, 32), machine=(("CPUs", "2"), ("kernel", "6.19")))
    assert trend_of([*nights(noisy(20)), *after]).silent, "another kernel explains no failure"


def test_tests_of_a_run_are_those_of_its_manifest_with_parameters_as_trials_have_them() -> None:
    case = {"id": "c01", "parameters": {"tests.up.zero_copy": "true", "clients": 5}, "tests": [{"name": "up"}]}
    (parameters, test), *_ = recorded_run("r", analyse({}, []), {"cases": [case]}).tests
    assert (dict(parameters), test) == ({"clients": "5", "tests.up.zero_copy": "true"}, "up")
    yes = summary("c01", {"throughput_bps": Metric(1.0, "bit/s")}, {"tests.up.zero_copy": True})
    assert only_history(trend_of([night(1, [yes])])).parameters == {"tests.up.zero_copy": "true"}


def test_too_few_runs_are_named_and_not_judged() -> None:
    found = trend_of(nights(noisy(LEAST_RUNS - 1)))
    assert only_history(found).reason == "9 of 9 runs are valid: 10 are needed"
    assert found.judged == () and only_history(found).changes == ()


def test_another_kernel_or_load_begins_a_history_of_its_own() -> None:
    runs = nights(noisy(12))
    runs += nights([5e8] * 12, machine=(("CPUs", "2"), ("kernel", "6.19")))
    runs += nights([9e8] * 12, loads={("c01", "tcp-up"): (("duration_ms", "20000"),)})
    found = trend_of(runs)
    assert len(found.histories) == 3
    assert found.of_shift(Shift.REGRESSION) == ()
    assert [one.differences for one in found.separations] == [
        ("kernel: 6.18 -> 6.19",),
        ("kernel: 6.19 -> 6.18", "duration_ms: 10000 -> 20000"),
    ]


def test_no_runs_have_no_history() -> None:
    found = trend_of([])
    assert (found.runs, found.histories, found.first) == (0, (), "")


def test_neighbours_that_resemble_each_other_are_a_caution() -> None:
    """Of independent runs hardly any history has one, whether its level shifts or not."""
    shocks = np.random.default_rng(5).standard_normal(60)
    slow = [0.0]
    for shock in shocks:
        slow.append(0.8 * slow[-1] + shock)
    caution = only_history(trend_of(nights([1e9 * (1 + 0.01 * value) for value in slow]))).caution
    assert caution is not None and "neighbouring runs resemble each other (correlation 0." in caution
    for factor in (1.0, 0.9):
        histories = trend_of(many_histories(60, 1, 6, 60, factor)).histories
        assert sum(history.caution is not None for history in histories) <= 6
