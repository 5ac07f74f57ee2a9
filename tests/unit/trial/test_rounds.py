"""Repeating until a precision: which cases get another trial, and when that ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from leadline.analysis.model import Metric, Reason, TestResult, Validity, Verdict
from leadline.plan import Plan, expected_seconds, load_plan, one_round, schedule
from leadline.trial.rounds import Rounds

PLAN = """\
name: small
sut: {kind: route}
axes: {packet: [64, 512]}
tests:
  - {name: load, kind: udp, packet: "{packet}", rate: 1mbit, duration: 1s}
  - {name: ask, kind: rr, duration: 1s}
repeat: {min: 3, max: 6, until: 3%}
targets: [ask.latency_p99_us < 1ms]
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "plan.yaml").write_text(PLAN)
    return load_plan(tmp_path / "plan.yaml")


def result(test: str, value: float, p99_us: float = 100.0, verdict: Verdict = Verdict.VALID) -> TestResult:
    metrics = (
        {"throughput_bps": Metric(value, "bit/s")}
        if test == "load"
        else {"transactions_per_s": Metric(value, "1/s"), "latency_p99_us": Metric(p99_us, "us")}
    )
    kind = "udp" if test == "load" else "rr"
    return TestResult("c01", 1, test, kind, {}, "done", None, metrics, Validity(verdict), None, None, {})


def steady(value: float = 1e6) -> Sequence[TestResult]:
    return [result("load", value), result("ask", value / 100)]


def next_round(plan: Plan, each_round: Sequence[dict[str, Sequence[TestResult]]], ended: str = "done") -> list[str]:
    """The labels of the next round's trials after these."""
    rounds = Rounds(plan, plan.cases)
    for number, of_case in enumerate(each_round, 1):
        for trial in one_round([case for case in plan.cases if case.id in of_case], number, plan.seed):
            rounds.take(trial, ended, of_case[trial.case.id])
    return sorted(trial.label for trial in rounds.next_round(elapsed_s=0.0))


def test_the_plan_begins_with_the_least_number_of_rounds(plan: Plan) -> None:
    assert plan.until is not None
    assert (plan.repeat, plan.until.max, plan.until.until) == (3, 6, 0.03)
    assert len(schedule(plan.cases, plan.repeat, plan.seed)) == 6


def test_a_case_that_is_known_well_enough_is_done(plan: Plan) -> None:
    assert next_round(plan, [{"c01": steady(), "c02": steady()}] * 3) == []


def test_only_the_case_whose_figure_spreads_is_repeated(plan: Plan) -> None:
    spread = [{"c01": steady(), "c02": steady(factor * 1e6)} for factor in (0.9, 1.0, 1.1)]
    assert next_round(plan, spread) == ["c02/4"]


def test_a_figure_that_a_target_names_has_to_be_known_too(plan: Plan) -> None:
    tests = [[result("load", 1e6), result("ask", 1e4, p99_us)] for p99_us in (600.0, 900.0, 1200.0)]
    assert next_round(plan, [{"c01": steady(), "c02": one} for one in tests]) == ["c02/4"]


def test_figure_that_decides_its_target_is_known_well_enough(plan: Plan) -> None:
    tests = [[result("load", 1e6), result("ask", 1e4, p99_us)] for p99_us in (10.0, 11.0, 14.0)]
    assert next_round(plan, [{"c01": steady(), "c02": one} for one in tests]) == []


def test_disturbed_trials_are_made_up_for(plan: Plan) -> None:
    disturbed = [result("load", 5e5, verdict=Verdict.DISTURBED), result("ask", 5e3, verdict=Verdict.DISTURBED)]
    rounds = [{"c01": steady(), "c02": steady()}] * 2 + [{"c01": steady(), "c02": disturbed}]
    assert next_round(plan, rounds) == ["c02/4"]
    assert next_round(plan, [*rounds, {"c02": steady()}]) == []


def test_the_largest_number_of_trials_ends_it(plan: Plan) -> None:
    spread = [steady(factor * 1e6) for factor in (0.8, 1.0, 1.2, 0.7, 1.3)]
    rounds = [{"c01": one, "c02": steady()} for one in spread[:3]] + [{"c01": one} for one in spread[3:]]
    assert next_round(plan, rounds) == ["c01/6"]
    assert next_round(plan, [*rounds, {"c01": steady()}]) == []


@pytest.mark.parametrize("ended", ["failed", "skipped"])
def test_a_case_that_failed_is_not_tried_again_and_again(plan: Plan, ended: str) -> None:
    assert next_round(plan, [{"c01": (), "c02": ()}] * 3, ended) == []


def test_no_round_begins_that_would_end_after_the_plans_time(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN.replace("until: 3%", "until: 3%, within: 1m"))
    plan = load_plan(tmp_path / "plan.yaml")
    rounds = Rounds(plan, plan.cases)
    for number, factor in enumerate((0.9, 1.0, 1.1), 1):
        for trial in one_round(plan.cases, number, plan.seed):
            rounds.take(trial, "done", steady(factor * 1e6))
    round_s = expected_seconds(one_round(plan.cases, 1, plan.seed))
    assert len(rounds.next_round(60.0 - round_s)) == 2 and not rounds.is_out_of_time
    assert rounds.next_round(60.1 - round_s) == [] and rounds.is_out_of_time


def test_first_round_says_how_many_rounds_a_busy_machine_needs(plan: Plan) -> None:
    rounds = Rounds(plan, plan.cases)
    first, second = one_round(plan.cases, 1, plan.seed)
    validity = Validity(Verdict.DISTURBED, (Reason("other-work", "another process used 40 % of one CPU"),))
    rounds.take(first, "done", [replace(result("load", 1e6), validity=validity), result("ask", 1e4)])
    assert rounds.first_round(10.0) is None, "one case has no trial yet"
    rounds.take(second, "done", steady())
    found = rounds.first_round(10.0)
    assert found is not None
    assert (found.results, found.disturbed, found.cause) == (4, 1, "another process used 40 % of one CPU")
    assert (found.needed, found.possible) == (4, 6), "three of four count, three are wanted"
    rounds.take(first, "done", steady())
    assert rounds.first_round(20.0) is None, "a second round has begun"


def test_first_round_whose_results_are_all_disturbed_promises_nothing(plan: Plan) -> None:
    rounds = Rounds(plan, plan.cases)
    for trial in one_round(plan.cases, 1, plan.seed):
        rounds.take(trial, "done", [result("load", 1e6, verdict=Verdict.DISTURBED)])
    found = rounds.first_round(10.0)
    assert found is not None and found.needed is None
